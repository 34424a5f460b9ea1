// rhea, the client for Node that speaks AMQP 1.0.
"use strict";

const { once } = require("node:events");
const rhea = require("rhea");
const { print, run } = require("./official");

const { types } = rhea;
const JOB = "x-opt-jms-type";
const ODD = {
  "odd-bool": true,
  "odd-byte": types.wrap_byte(-7),
  "odd-ubyte": types.wrap_ubyte(200),
  "odd-short": types.wrap_short(-7),
  "odd-int": types.wrap_int(-7),
  "odd-uint": types.wrap_uint(7),
  "odd-long": types.wrap_long(2 ** 53 - 1),
  "odd-ulong": types.wrap_ulong(7),
  "odd-float": types.wrap_float(1.5),
  "odd-double": types.wrap_double(1.25),
  "odd-bytes": Buffer.from([0, 255]),
  "odd-time": types.wrap_timestamp(1700000000123),
  "odd-symbol": types.wrap_symbol("red"),
};

function connect(url) {
  const { hostname, port } = new URL(url);
  return rhea.create_container().connect({ host: hostname, port: Number(port), reconnect: false });
}

async function close(connection) {
  connection.close();
  await once(connection, "connection_close");
}

async function produce(url, queue, lines) {
  const connection = connect(url);
  const sender = connection.open_sender(queue);
  const accepted = new Promise((resolve, reject) => {
    let left = lines.length;
    sender.on("accepted", () => --left || resolve());
    sender.on("rejected", () => reject(new Error("a message was rejected")));
  });
  for (const { payload, headers, properties, odd } of lines) {
    if (!sender.sendable()) await once(sender, "sendable");
    sender.send({
      durable: true,
      body: properties.body === "amqp-value" ? payload.toString() : rhea.message.data_section(payload),
      application_properties: odd ? { ...headers, ...ODD } : headers,
      correlation_id: properties["correlation-id"],
      message_annotations: JOB in properties ? { [JOB]: properties[JOB] } : undefined,
    });
  }
  await accepted;
  await close(connection);
}

async function consume(url, queue, verb, ended) {
  const connection = connect(url);
  const credit = verb === "consume" ? 20 : 0;
  const receiver = connection.open_receiver({ source: queue, autoaccept: false, credit_window: credit });
  if (verb !== "consume") receiver.add_credit(1);
  const one = new Promise((resolve) => {
    receiver.on("message", ({ message, delivery }) => {
      if (verb === "consume") delivery.accept();
      else if (verb === "return") delivery.modified({ delivery_failed: true });
      else delivery.reject();
      show(message);
      if (verb !== "consume") resolve();
    });
  });
  await Promise.race([one, ended]);
  await close(connection);
}

function show(message) {
  const isText = typeof message.body === "string";
  print(isText ? Buffer.from(message.body) : message.body.content, message.application_properties, {
    body: isText ? "amqp-value" : "data",
    durable: message.durable,
    "correlation-id": message.correlation_id,
    "creation-time": message.creation_time?.getTime(),
    [JOB]: message.message_annotations?.[JOB],
  });
}

run(produce, consume);
