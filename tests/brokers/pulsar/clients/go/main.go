// Publishes and consumes messages with the official client for Go: a JSON object a line, with its payload in base64.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

type line struct {
	Payload    []byte            `json:"payload"`
	Properties map[string]string `json:"properties"`
	Key        string            `json:"key"`
	Redelivery uint32            `json:"redelivery"`
}

var compressions = map[string]pulsar.CompressionType{
	"NONE": pulsar.NoCompression,
	"LZ4":  pulsar.LZ4,
	"ZLIB": pulsar.ZLib,
	"ZSTD": pulsar.ZSTD,
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// main is called with "produce" or "consume", the URL, the topic, and the compression of what is produced.
func main() {
	quiet := logrus.New()
	quiet.SetLevel(logrus.ErrorLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[2], Logger: log.NewLoggerWithLogrus(quiet)})
	check(err)
	defer client.Close()
	if os.Args[1] == "produce" {
		produce(client, os.Args[3], compressions[os.Args[4]])
	} else {
		consume(client, os.Args[3])
	}
}

// produce publishes the lines of the standard input in batches of ten.
func produce(client pulsar.Client, topic string, compression pulsar.CompressionType) {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic:                   topic,
		CompressionType:         compression,
		BatchingMaxMessages:     10,
		BatchingMaxPublishDelay: time.Minute,
	})
	check(err)
	defer producer.Close()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var message line
		check(json.Unmarshal(lines.Bytes(), &message))
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload:    message.Payload,
			Properties: message.Properties,
			Key:        message.Key,
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(producer.Flush())
}

// consume acknowledges messages and prints them, until its standard input ends.
func consume(client pulsar.Client, topic string) {
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:                       topic,
		SubscriptionName:            "babelqueue",
		Type:                        pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		AckWithResponse:             true,
	})
	check(err)
	defer consumer.Close()
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		end()
	}()
	output := json.NewEncoder(os.Stdout)
	for {
		message, err := consumer.Receive(ctx)
		if ctx.Err() != nil {
			return
		}
		check(err)
		check(consumer.Ack(message))
		check(output.Encode(line{message.Payload(), message.Properties(), message.Key(), message.RedeliveryCount()}))
	}
}
