// Pulsar's official client for Go.
package main

import (
	"context"
	"os"
	"time"

	"babelgate.test/official/official"
	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

var compressions = map[string]pulsar.CompressionType{
	"NONE": pulsar.NoCompression,
	"LZ4":  pulsar.LZ4,
	"ZLIB": pulsar.ZLib,
	"ZSTD": pulsar.ZSTD,
}

func open(url string) pulsar.Client {
	quiet := logrus.New()
	quiet.SetLevel(logrus.ErrorLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: log.NewLoggerWithLogrus(quiet)})
	official.Check(err)
	return client
}

// produce publishes in batches of ten, compressed as the fourth argument says.
func produce(url, topic string, lines []official.Line) {
	client := open(url)
	defer client.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic:                   topic,
		CompressionType:         compressions[os.Args[4]],
		BatchingMaxMessages:     10,
		BatchingMaxPublishDelay: time.Minute,
	})
	official.Check(err)
	defer producer.Close()
	for _, line := range lines {
		properties := map[string]string{}
		for name, value := range line.Headers {
			properties[name] = value.(string)
		}
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload:    line.Payload,
			Properties: properties,
			Key:        line.Properties["key"],
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { official.Check(err) })
	}
	official.Check(producer.Flush())
}

// consume acknowledges every message.
func consume(ctx context.Context, url, topic, _ string, print func(official.Line)) {
	client := open(url)
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:                       topic,
		SubscriptionName:            "babelqueue",
		Type:                        pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		AckWithResponse:             true,
	})
	official.Check(err)
	defer consumer.Close()
	for {
		message, err := consumer.Receive(ctx)
		if ctx.Err() != nil {
			return
		}
		official.Check(err)
		official.Check(consumer.Ack(message))
		headers := map[string]any{}
		for name, value := range message.Properties() {
			headers[name] = value
		}
		print(official.Line{Payload: message.Payload(), Headers: headers, Properties: map[string]string{"key": message.Key()}})
	}
}

func main() {
	official.Run(produce, consume)
}
