// Azure/go-amqp, the client for Go that Artemis' users have.
package main

import (
	"context"
	"strconv"
	"time"

	"babelgate.test/official/official"
	"github.com/Azure/go-amqp"
)

const jobAnnotation = "x-opt-jms-type"

var odd = map[string]any{
	"odd-bool":    true,
	"odd-byte":    int8(-7),
	"odd-ubyte":   uint8(200),
	"odd-short":   int16(-7),
	"odd-ushort":  uint16(7),
	"odd-int":     int32(-7),
	"odd-uint":    uint32(7),
	"odd-long":    int64(1) << 53,
	"odd-ulong":   uint64(1)<<63 + 7,
	"odd-float":   float32(1.5),
	"odd-double":  1.25,
	"odd-bytes":   []byte{0, 255},
	"odd-time":    time.UnixMilli(1_700_000_000_123),
	"odd-uuid":    amqp.UUID{1, 2, 3},
	"odd-nothing": nil,
}

func open(ctx context.Context, url string) (*amqp.Conn, *amqp.Session) {
	connection, err := amqp.Dial(ctx, url, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	official.Check(err)
	session, err := connection.NewSession(ctx, nil)
	official.Check(err)
	return connection, session
}

func produce(url, queue string, lines []official.Line) {
	ctx := context.Background()
	connection, session := open(ctx, url)
	defer connection.Close()
	sender, err := session.NewSender(ctx, queue, nil)
	official.Check(err)
	for _, line := range lines {
		message := &amqp.Message{
			Header:                &amqp.MessageHeader{Durable: true},
			ApplicationProperties: line.With(odd),
		}
		if line.Properties["body"] == "amqp-value" {
			message.Value = string(line.Payload)
		} else {
			message.Data = [][]byte{line.Payload}
		}
		if job, given := line.Properties[jobAnnotation]; given {
			message.Annotations = amqp.Annotations{jobAnnotation: job}
		}
		if id, given := line.Properties["correlation-id"]; given {
			message.Properties = &amqp.MessageProperties{CorrelationID: id}
		}
		official.Check(sender.Send(ctx, message, nil))
	}
}

func consume(ctx context.Context, url, queue, verb string, print func(official.Line)) {
	all := context.Background()
	connection, session := open(all, url)
	defer connection.Close()
	credit := int32(20)
	if verb != "consume" {
		// It is given by hand, so that the client holds no message that was not asked for.
		credit = -1
	}
	receiver, err := session.NewReceiver(all, queue, &amqp.ReceiverOptions{Credit: credit})
	official.Check(err)
	if verb != "consume" {
		official.Check(receiver.IssueCredit(1))
	}
	for {
		message, err := receiver.Receive(ctx, nil)
		if ctx.Err() != nil {
			return
		}
		official.Check(err)
		switch verb {
		case "consume":
			official.Check(receiver.AcceptMessage(all, message))
		case "return":
			official.Check(receiver.ModifyMessage(all, message, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
		default:
			official.Check(receiver.RejectMessage(all, message, nil))
		}
		print(read(message))
		if verb != "consume" {
			return
		}
	}
}

func read(message *amqp.Message) official.Line {
	line := official.Line{
		Payload:    message.GetData(),
		Headers:    official.TypedAll(message.ApplicationProperties),
		Properties: map[string]string{"body": "data"},
	}
	if text, isText := message.Value.(string); isText {
		line.Payload, line.Properties["body"] = []byte(text), "amqp-value"
	}
	if message.Header != nil {
		line.Properties["durable"] = strconv.FormatBool(message.Header.Durable)
	}
	if job, isText := message.Annotations[jobAnnotation].(string); isText {
		line.Properties[jobAnnotation] = job
	}
	if properties := message.Properties; properties != nil {
		if id, isText := properties.CorrelationID.(string); isText {
			line.Properties["correlation-id"] = id
		}
		if properties.CreationTime != nil {
			line.Properties["creation-time"] = strconv.FormatInt(properties.CreationTime.UnixMilli(), 10)
		}
	}
	return line
}

func main() {
	official.Run(produce, consume)
}
