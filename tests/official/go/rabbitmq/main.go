// RabbitMQ's official client for Go.
package main

import (
	"context"
	"strconv"
	"time"

	"babelgate.test/official/official"
	"github.com/rabbitmq/amqp091-go"
)

var odd = map[string]any{
	"odd-bool":    true,
	"odd-byte":    byte(200),
	"odd-int8":    int8(-7),
	"odd-int16":   int16(-7),
	"odd-int32":   int32(-7),
	"odd-int64":   int64(1) << 53,
	"odd-float":   float32(1.5),
	"odd-double":  1.25,
	"odd-bytes":   []byte{0, 255},
	"odd-decimal": amqp091.Decimal{Scale: 2, Value: 12345},
	"odd-time":    time.Unix(1_700_000_000, 0),
	"odd-nothing": nil,
	"odd-list":    []any{int32(1), "b", amqp091.Table{"c": true}},
	"odd-table":   amqp091.Table{"d": amqp091.Table{"e": int64(1)}},
}

func open(url string) (*amqp091.Connection, *amqp091.Channel) {
	connection, err := amqp091.Dial(url)
	official.Check(err)
	channel, err := connection.Channel()
	official.Check(err)
	return connection, channel
}

func produce(url, queue string, lines []official.Line) {
	connection, channel := open(url)
	defer connection.Close()
	official.Check(channel.Confirm(false))
	for _, line := range lines {
		given := line.Properties
		confirm, err := channel.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{
			Headers:       line.With(odd),
			ContentType:   given["content_type"],
			DeliveryMode:  amqp091.Persistent,
			CorrelationId: given["correlation_id"],
			MessageId:     given["message_id"],
			Type:          given["type"],
			AppId:         given["app_id"],
			Body:          line.Payload,
		})
		official.Check(err)
		if !confirm.Wait() {
			panic("not confirmed")
		}
	}
}

func consume(ctx context.Context, url, queue, verb string, print func(official.Line)) {
	connection, channel := open(url)
	defer connection.Close()
	prefetch := 1
	if verb == "consume" {
		prefetch = 20
	}
	official.Check(channel.Qos(prefetch, 0, false))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	official.Check(err)
	for {
		select {
		case <-ctx.Done():
			return
		case delivery := <-deliveries:
			if verb == "consume" {
				official.Check(delivery.Ack(false))
			} else {
				official.Check(delivery.Nack(false, verb == "return"))
			}
			print(read(delivery))
			if verb != "consume" {
				return
			}
		}
	}
}

func read(delivery amqp091.Delivery) official.Line {
	properties := map[string]string{
		"content_type":     delivery.ContentType,
		"content_encoding": delivery.ContentEncoding,
		"delivery_mode":    strconv.Itoa(int(delivery.DeliveryMode)),
		"correlation_id":   delivery.CorrelationId,
		"message_id":       delivery.MessageId,
		"timestamp":        strconv.FormatInt(delivery.Timestamp.Unix(), 10),
		"type":             delivery.Type,
		"app_id":           delivery.AppId,
	}
	return official.Line{Payload: delivery.Body, Headers: official.TypedAll(delivery.Headers), Properties: properties}
}

func main() {
	official.Run(produce, consume)
}
