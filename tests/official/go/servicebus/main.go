// Microsoft's client of Service Bus for Go. The URL is a connection string.
package main

import (
	"context"
	"time"

	"babelgate.test/official/official"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

var odd = map[string]any{
	"odd-bool":   true,
	"odd-byte":   int8(-7),
	"odd-ubyte":  uint8(200),
	"odd-short":  int16(-7),
	"odd-ushort": uint16(7),
	"odd-int":    int32(-7),
	"odd-uint":   uint32(7),
	"odd-long":   int64(1) << 53,
	"odd-ulong":  uint64(1)<<63 + 7,
	"odd-float":  float32(1.5),
	"odd-double": 1.25,
	"odd-uuid":   amqp.UUID{1, 2, 3},
	"odd-time":   time.UnixMilli(1_700_000_000_123),
}

func open(connection string) *azservicebus.Client {
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	official.Check(err)
	return client
}

func given(line official.Line, name string) *string {
	if value, found := line.Properties[name]; found {
		return &value
	}
	return nil
}

func produce(connection, queue string, lines []official.Line) {
	ctx, client := context.Background(), open(connection)
	defer client.Close(ctx)
	sender, err := client.NewSender(queue, nil)
	official.Check(err)
	for _, line := range lines {
		official.Check(sender.SendMessage(ctx, &azservicebus.Message{
			Body:                  line.Payload,
			ApplicationProperties: line.With(odd),
			Subject:               given(line, "Subject"),
			CorrelationID:         given(line, "CorrelationId"),
			MessageID:             given(line, "MessageId"),
			ContentType:           given(line, "ContentType"),
		}, nil))
	}
}

func consume(ctx context.Context, connection, queue, verb string, print func(official.Line)) {
	all, client := context.Background(), open(connection)
	defer client.Close(all)
	receiver, err := client.NewReceiverForQueue(queue, nil)
	official.Check(err)
	most := 1
	if verb == "consume" {
		most = 20
	}
	for {
		messages, err := receiver.ReceiveMessages(ctx, most, nil)
		if ctx.Err() != nil {
			return
		}
		official.Check(err)
		for _, message := range messages {
			switch verb {
			case "consume":
				official.Check(receiver.CompleteMessage(all, message, nil))
			case "return":
				official.Check(receiver.AbandonMessage(all, message, nil))
			default:
				official.Check(receiver.DeadLetterMessage(all, message, nil))
			}
			print(read(message))
		}
		if verb != "consume" {
			return
		}
	}
}

func read(message *azservicebus.ReceivedMessage) official.Line {
	properties := map[string]string{"MessageId": message.MessageID}
	for name, value := range map[string]*string{
		"Subject":       message.Subject,
		"CorrelationId": message.CorrelationID,
		"ContentType":   message.ContentType,
	} {
		if value != nil {
			properties[name] = *value
		}
	}
	return official.Line{
		Payload:    message.Body,
		Headers:    official.TypedAll(message.ApplicationProperties),
		Properties: properties,
	}
}

func main() {
	official.Run(produce, consume)
}
