// kafka-go, the client of the SDK for Go.
package main

import (
	"context"
	"errors"
	"strconv"

	"babelgate.test/official/official"
	"github.com/segmentio/kafka-go"
)

const group = "babelqueue"

func produce(url, queue string, lines []official.Line) {
	writer := &kafka.Writer{Addr: kafka.TCP(url), Topic: queue, RequiredAcks: kafka.RequireAll, BatchTimeout: 1}
	var messages []kafka.Message
	for _, line := range lines {
		var headers []kafka.Header
		for name, value := range line.With(nil) {
			headers = append(headers, kafka.Header{Key: name, Value: []byte(value.(string))})
		}
		messages = append(messages, kafka.Message{Value: line.Payload, Headers: headers})
	}
	official.Check(writer.WriteMessages(context.Background(), messages...))
	official.Check(writer.Close())
}

func consume(ctx context.Context, url, queue, verb string, print func(official.Line)) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{url}, GroupID: group, Topic: queue, StartOffset: kafka.FirstOffset,
	})
	for {
		message, err := reader.FetchMessage(ctx)
		if errors.Is(err, context.Canceled) {
			official.Check(reader.Close())
			return
		}
		official.Check(err)
		official.Check(reader.CommitMessages(context.Background(), message))
		headers := map[string]any{}
		for _, each := range message.Headers {
			headers[each.Key] = string(each.Value)
		}
		properties := map[string]string{"partition": strconv.Itoa(message.Partition)}
		print(official.Line{Payload: message.Value, Headers: headers, Properties: properties})
	}
}

func main() {
	official.Run(produce, consume)
}
