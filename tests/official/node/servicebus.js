// Microsoft's client of Service Bus for Node. The URL is a connection string.
"use strict";

const { randomUUID } = require("node:crypto");
const { ServiceBusClient } = require("@azure/service-bus");
const { print, run } = require("./official");

const ODD = { "odd-bool": true, "odd-number": -7, "odd-double": 1.25, "odd-date": new Date(1700000000123) };

async function produce(connection, queue, lines) {
  const client = new ServiceBusClient(connection);
  const sender = client.createSender(queue);
  for (const { payload, headers, properties, odd } of lines) {
    await sender.sendMessages({
      body: payload,
      applicationProperties: odd ? { ...headers, ...ODD } : headers,
      subject: properties.Subject,
      correlationId: properties.CorrelationId,
      // A message without one cannot be settled by this client.
      messageId: properties.MessageId ?? randomUUID(),
      contentType: properties.ContentType,
    });
  }
  await client.close();
}

async function consume(connection, queue, verb, ended) {
  const client = new ServiceBusClient(connection);
  // Otherwise it reads a body that is JSON as an object.
  const receiver = client.createReceiver(queue, { skipParsingBodyAsJson: true });
  let goesOn = true;
  ended.then(() => (goesOn = false));
  while (goesOn) {
    const most = verb === "consume" ? 20 : 1;
    for (const message of await receiver.receiveMessages(most, { maxWaitTimeInMs: 500 })) {
      if (verb === "consume") await receiver.completeMessage(message);
      else if (verb === "return") await receiver.abandonMessage(message);
      else await receiver.deadLetterMessage(message);
      show(message);
      goesOn = goesOn && verb === "consume";
    }
  }
  await client.close();
}

function show(message) {
  print(message.body, message.applicationProperties, {
    Subject: message.subject,
    CorrelationId: message.correlationId,
    MessageId: message.messageId,
    ContentType: message.contentType,
  });
}

run(produce, consume);
