// kafkajs, the client of the SDK for Node.
"use strict";

const { Kafka, logLevel } = require("kafkajs");
const { print, run } = require("./official");

const open = (url) => new Kafka({ brokers: [url], logLevel: logLevel.NOTHING });

async function produce(url, queue, lines) {
  const producer = open(url).producer();
  await producer.connect();
  const messages = lines.map(({ payload, headers }) => ({ value: payload, headers }));
  await producer.send({ topic: queue, acks: -1, messages });
  await producer.disconnect();
}

async function consume(url, queue, verb, ended) {
  const consumer = open(url).consumer({ groupId: "babelqueue" });
  await consumer.connect();
  await consumer.subscribe({ topics: [queue], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }]);
      const headers = Object.entries(message.headers).map(([name, value]) => [name, value.toString()]);
      print(message.value, Object.fromEntries(headers), { partition });
    },
  });
  await ended;
  await consumer.disconnect();
}

run(produce, consume);
