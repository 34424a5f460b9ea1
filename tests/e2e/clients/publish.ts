// Publishes a draft with the types of openapi-typescript, and prints the id of its receipt.
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const path = { queue: "emails" };

const draft: components["schemas"]["Draft"] = {
  job: "urn:babel:emails:welcome",
  data: { to: "ada@example.com" },
  idempotency_key: "order-4711",
};
// @ts-expect-error a misspelt member
const misspelt: components["schemas"]["Draft"] = { job: "a", data: {}, delay_second: 60 };

const inline = await client.POST("/queues/{queue}/messages", {
  params: { path },
  body: { job: "urn:babel:emails:welcome", data: { to: "ada@example.com" }, delay_seconds: 60 },
});
if (inline.error) throw new Error(`${inline.error.code}: ${inline.error.detail}`);
const batch = await client.POST("/queues/{queue}/messages:batch", { params: { path }, body: [draft] });
if (batch.error) throw new Error(batch.error.code);
const received = await client.POST("/queues/{queue}/messages:receive", { params: { path } });
const [message] = received.data?.messages ?? [];
const acked = await client.POST("/queues/{queue}/messages:ack", { params: { path }, body: { ack_tokens: [message.ack_token] } });
const code: string | undefined = misspelt.job;
console.log(JSON.stringify({ created_at: inline.data.created_at, to: message.envelope.data["to"], acked: acked.data?.settled, code }));
