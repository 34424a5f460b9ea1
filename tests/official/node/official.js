// What the programs around clients for Node have in common: a message is a JSON object a line.
"use strict";

const { buffer } = require("node:stream/consumers");

// A text as it is, another value behind its type.
function typed(value) {
  if (typeof value === "string") return value;
  const type = value === null || value === undefined ? "nothing" : value.constructor.name;
  return `${type} ${JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each))}`;
}

function typedAll(values) {
  return Object.fromEntries(Object.entries(values ?? {}).map(([name, value]) => [name, typed(value)]));
}

function print(payload, headers, properties) {
  const shown = Object.entries(properties).map(([name, value]) => [name, value === undefined ? null : String(value)]);
  const line = { payload: payload.toString("base64"), headers: typedAll(headers), properties: Object.fromEntries(shown) };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

// Calls produce(url, queue, lines), or consume(url, queue, verb, ended): that settles messages by the verb ("consume",
// "return" or "reject") and prints them. It returns after one message if the verb is another than "consume", and when the
// promise `ended` is resolved: the standard input has a line. Arguments: the verb, the URL, the queue.
async function run(produce, consume) {
  const [verb, url, queue] = process.argv.slice(2);
  if (verb === "produce") {
    const input = (await buffer(process.stdin)).toString();
    const lines = input.split("\n").filter(Boolean).map((line) => JSON.parse(line));
    for (const line of lines) line.payload = Buffer.from(line.payload, "base64");
    await produce(url, queue, lines);
  } else {
    await consume(url, queue, verb, new Promise((resolve) => process.stdin.once("data", resolve)));
  }
  await new Promise((resolve) => process.stdout.write("", resolve));
  process.exit(0);
}

process.on("unhandledRejection", (error) => {
  console.error(error);
  process.exit(1);
});

module.exports = { print, run };
