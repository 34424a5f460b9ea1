// Publishes and receives events with the official SDK for JavaScript, over the HTTP API of a gateway.
//
// It reads an event in the JSON format from each line of its input, and publishes all of them to each of the URLs. Or it
// receives once from each of the URLs, and prints the URL and the events of the answer, an array a line.
//
//   node cloudevents.js send binary|structured|batched URL...
//   node cloudevents.js receive one|many URL...
"use strict";

const { CloudEvent, HTTP } = require("cloudevents");
const { readFileSync } = require("node:fs");

const BATCH = "application/cloudevents-batch+json";

async function post(url, headers, body) {
  const answer = await fetch(url, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(`answered ${answer.status}: ${await answer.text()}`);
  return answer;
}

// The SDK leaves it to its caller to encode the values (HTTP binding, section 3.1.3.2).
function encoded(headers) {
  const escape = (text) => text.replace(/[^!#$&-~]/gu, encodeURIComponent);
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, name.startsWith("ce-") ? escape(String(value)) : value]),
  );
}

function read() {
  const headers = { "content-type": "application/cloudevents+json" };
  return readFileSync(0, "utf8").split("\n").filter(Boolean).map((body) => HTTP.toEvent({ headers, body }));
}

async function send(mode, url, events) {
  if (mode === "batched") {
    await post(url, { "content-type": BATCH }, `[${events.map((event) => event.toString()).join(",")}]`);
    return;
  }
  for (const event of events) {
    const message = HTTP[mode](event);
    // The SDK reads data_base64 as an array of 32 bits for each byte.
    const body = message.body instanceof Uint32Array ? Uint8Array.from(message.body) : message.body;
    await post(url, encoded(message.headers), body);
  }
}

async function receive(count, url) {
  const accept = count === "many" ? BATCH : "application/cloudevents+json";
  const answer = await post(url, { accept }, undefined);
  const made = HTTP.toEvent({ headers: Object.fromEntries(answer.headers), body: await answer.text() });
  const events = [made].flat();
  for (const event of events) {
    if (!(event instanceof CloudEvent) || !event.validate()) throw new Error("no valid event");
  }
  console.log(JSON.stringify([url, events]));
}

async function main(verb, how, ...urls) {
  const events = verb === "send" ? read() : [];
  for (const url of urls) await (verb === "send" ? send(how, url, events) : receive(how, url));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
