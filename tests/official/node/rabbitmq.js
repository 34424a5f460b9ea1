// amqplib, the client for Node that RabbitMQ's tutorials use.
"use strict";

const amqplib = require("amqplib");
const { print, run } = require("./official");

const ODD = {
  "odd-bool": true,
  "odd-byte": { "!": "byte", value: -7 },
  "odd-short": { "!": "short", value: -7 },
  "odd-int": { "!": "int", value: -7 },
  "odd-long": { "!": "long", value: 2 ** 53 - 1 },
  "odd-float": { "!": "float", value: 1.5 },
  "odd-double": 1.25,
  "odd-bytes": Buffer.from([0, 255]),
  "odd-decimal": { "!": "decimal", value: { digits: 12345, places: 2 } },
  "odd-time": { "!": "timestamp", value: 1700000000 },
  "odd-nothing": null,
  "odd-list": [1, "b", { c: true }],
  "odd-table": { d: { e: 1 } },
};

async function produce(url, queue, lines) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createConfirmChannel();
  for (const { payload, headers, properties, odd } of lines) {
    channel.sendToQueue(queue, payload, {
      headers: odd ? { ...headers, ...ODD } : headers,
      persistent: true,
      contentType: properties.content_type,
      correlationId: properties.correlation_id,
      messageId: properties.message_id,
      type: properties.type,
      appId: properties.app_id,
    });
  }
  await channel.waitForConfirms();
  await connection.close();
}

async function consume(url, queue, verb, ended) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createChannel();
  await channel.prefetch(verb === "consume" ? 20 : 1);
  const one = new Promise((resolve) => {
    channel.consume(queue, (message) => {
      if (verb === "consume") channel.ack(message);
      else channel.nack(message, false, verb === "return");
      show(message);
      if (verb !== "consume") resolve();
    });
  });
  await Promise.race([one, ended]);
  await channel.close();
  await connection.close();
}

function show({ content, properties }) {
  print(content, properties.headers, {
    content_type: properties.contentType,
    content_encoding: properties.contentEncoding,
    delivery_mode: properties.deliveryMode,
    correlation_id: properties.correlationId,
    message_id: properties.messageId,
    timestamp: properties.timestamp,
    type: properties.type,
    app_id: properties.appId,
  });
}

run(produce, consume);
