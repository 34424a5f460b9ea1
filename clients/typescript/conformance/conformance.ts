// Produces, consumes and checks with the client. Prints one JSON object per line.
// Usage: conformance.js produce QUEUE PRODUCER COUNT | consume QUEUE LEASE_SECONDS CONCURRENCY [stream]
//        | checks QUEUE | properties QUEUE REFUSING | options QUEUE JSON | letters QUEUE | redrive QUEUE | refusals JSON
import { createServer, type AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Delivery, LeaseLostError, ProblemError, Reject, UnreachableError } from "babelgate-client";

const JOB = "urn:babel:conformance:made";
const TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10";
const TRACEPARENT = "00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01";
const client = new Client();

function say(facts: object): void {
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

async function produce(queue: string, producer: string, count: number): Promise<void> {
  for (let n = 0; n < count; n += 2) {
    const { id } = await client.publish(queue, JOB, { producer, n });
    say({ id, producer, n });
  }
  for (let start = 1; start < count; start += 20) {
    const part = Array.from({ length: 10 }, (_, i) => start + 2 * i).filter((n) => n < count);
    const results = await client.publishBatch(queue, part.map((n) => ({ job: JOB, data: { producer, n } })));
    for (const [index, { status, id }] of results.entries()) {
      if (status !== 201) throw new Error(`${status}`);
      say({ id, producer, n: part[index] });
    }
  }
}

async function consume(queue: string, leaseSeconds: number, concurrency: number, stream: boolean): Promise<void> {
  async function handle({ id, data, attempts }: Delivery, signal: AbortSignal): Promise<void> {
    await sleep(Number(data["sleep_seconds"] ?? 0) * 1000, undefined, { signal });
    if (data["reject"]) throw new Reject("as the message says");
    if (attempts < Number(data["fail_times"] ?? 0)) throw new Error("as the message says");
    say({ event: "handled", id, producer: data["producer"], n: data["n"], attempts });
  }
  const consumer = client.consumer(queue, handle, { concurrency, leaseSeconds, graceSeconds: 5, stream });
  await consumer.run({ signals: ["SIGTERM"] });
  say({ event: "stopped" });
}

async function checks(queue: string): Promise<void> {
  const published = await client.publish(queue, JOB, { n: 1 }, { traceId: TRACE_ID, traceparent: TRACEPARENT });
  const once = { idempotencyKey: `once-${published.id}` };
  const twice = [await client.publish(queue, JOB, { n: 2 }, once), await client.publish(queue, JOB, { n: 2 }, once)];
  const batch = [3, 4, 5].map((n) => ({ job: n === 4 ? "" : JOB, data: { n } }));
  const results = await client.publishBatch(queue, batch);
  const [first, ...rest] = await client.receive(queue, { maxMessages: 10, waitSeconds: 10, leaseSeconds: 30 });
  const extended = (await client.extend(first!, 300)).results[0]!.leaseExpiresAt!;
  await client.nack(first!, { delaySeconds: 0, error: { message: "no", exception: "NoError" } });
  const [again] = await client.receive(queue, { waitSeconds: 10, leaseSeconds: 30 });
  const { settled } = await client.ack([again!, ...rest]);
  const { ackToken: _, ...message } = again!;
  const nonsense = new Delivery(queue, {
    ack_token: "nonsense",
    lease_expires_at: message.leaseExpiresAt,
    attempts: 0,
    redelivered: false,
    headers: {},
    envelope: message.envelope,
  });
  const problem = await caught(client.ack(nonsense), ProblemError);
  await client.publish(queue, JOB, { n: 6 });
  const [late] = await client.receive(queue, { waitSeconds: 10, leaseSeconds: 1 });
  await sleep(1200);
  const [taken] = await client.receive(queue, { waitSeconds: 20, leaseSeconds: 30 });
  const lost = await caught(client.ack(late!), LeaseLostError);
  await client.ack(taken!);
  const closed = new Client({ url: `http://127.0.0.1:${await closedPort()}`, retrySeconds: 0 });
  const unreachable = await caught(closed.publish(queue, JOB, {}), UnreachableError);
  say({
    published: { ...published, trace_id: published.traceId },
    replayed: twice[0]!.id === twice[1]!.id,
    batch: results.map((result) => result.status),
    received: {
      id: first!.id,
      job: first!.job,
      trace_id: first!.traceId,
      data: first!.data,
      attempts: first!.attempts,
      redelivered: first!.redelivered,
      traceparent: first!.traceparent,
    },
    extended: extended > first!.leaseExpiresAt,
    nacked_attempts: again!.attempts,
    acked: settled,
    problem: { status: problem.status, code: problem.code, retryable: problem.retryable },
    lease_lost: lost.code,
    not_found_or_unreachable: unreachable.outcomeUnknown ? "unknown" : unreachable.name,
  });
}

/** `queue` takes broker properties, and `refusing` takes none. */
async function properties(queue: string, refusing: string): Promise<void> {
  const single = { TimeToLive: 3600, ReplyTo: "replies" };
  const entry = { job: JOB, data: { n: 2 }, brokerProperties: { TimeToLive: 86400.5, To: "warehouse" } };
  async function received(name: string): Promise<object> {
    const [delivery] = await client.receive(name, { waitSeconds: 20, leaseSeconds: 30 });
    await client.ack(delivery!);
    return delivery!.brokerProperties;
  }
  await client.publish(queue, JOB, { n: 1 }, { brokerProperties: single });
  const published = await received(queue);
  const [accepted] = await client.publishBatch(queue, [entry]);
  if (accepted!.status !== 201) throw new Error(`${accepted!.status}`);
  const batch = await received(queue);
  const problem = await caught(client.publish(refusing, JOB, { n: 3 }, { brokerProperties: single }), ProblemError);
  const [result] = await client.publishBatch(refusing, [entry]);
  await client.publish(refusing, JOB, { n: 5 });
  say({
    published,
    batch,
    refused: { status: problem.status, code: problem.code },
    refused_in_batch: { status: result!.status, code: result!.code },
    without: await received(refusing),
  });
}

/** Publish without options, then with all that are `given`, alone and in a batch. */
async function options(queue: string, given: Record<string, any>): Promise<void> {
  const { traceparent, idempotency_key: idempotencyKey, headers, lang, ext } = given;
  const { trace_id: traceId, delay_seconds: delaySeconds, ordering_key: orderingKey } = given;
  const { deliver_at: deliverAt, ttl_seconds: ttlSeconds, priority } = given;
  const all = { traceId, delaySeconds, deliverAt, ttlSeconds, priority, orderingKey, headers, lang, ext };
  await client.publish(queue, JOB, { n: 0 });
  await client.publish(queue, JOB, { n: 1 }, { ...all, idempotencyKey, traceparent });
  const message = { job: JOB, data: { n: 2 }, ...all, idempotencyKey: `${idempotencyKey}-batch` };
  const results = await client.publishBatch(queue, [message], { traceparent });
  say({ batch: results.map((result) => result.status) });
}

/** `queue` has five dead letters. */
async function letters(queue: string): Promise<void> {
  const dead = client.deadLetters(queue);
  const page = await dead.list({ limit: 2 });
  const rest = await dead.list({ limit: 10, cursor: page.nextCursor! });
  const ofJob = [];
  for (const job of [JOB, "urn:another"]) ofJob.push((await dead.list({ job, reason: "failed" })).deadLetters.length);
  const ids = [...page.deadLetters, ...rest.deadLetters].map((letter) => letter.letterId);
  const shown = await dead.show(ids[0]!);
  const dry = await dead.redrive({ job: JOB, limit: 4, dryRun: true });
  const { redriven } = await dead.redrive({ ids: ids.slice(0, 1) });
  const one = await dead.redriveOne(ids[1]!, { data: { n: 100 } });
  const { removed, failed } = await dead.delete([ids[2]!, "nonsense"]);
  const counted = await dead.purge({ dryRun: true });
  const purged = (await dead.purge()).removed;
  const gone = await caught(dead.show(ids[0]!), ProblemError);
  say({
    pages: [page.deadLetters.length, rest.deadLetters.length, rest.nextCursor],
    of_job: ofJob,
    shown: { letter_id: shown.letterId === ids[0], error: shown.error },
    dry: [dry.matched, dry.redriven],
    redriven,
    one: { to_queue: one.toQueue === queue, edited: one.edited },
    deleted: [removed, failed],
    counted: [counted.matched, counted.removed],
    purged,
    gone: gone.code,
  });
}

/** The gateway breaks the connection. */
async function redrive(queue: string): Promise<void> {
  const { outcomeUnknown } = await caught(client.deadLetters(queue).redrive(), UnreachableError);
  say({ outcome_unknown: outcomeUnknown });
}

/** What is said of each URL, token and traceparent that is `given`; null if nothing is. */
async function refusals(given: Record<"urls" | "tokens" | "traceparents", string[]>): Promise<void> {
  const said = async (attempt: () => unknown): Promise<string | null> => {
    try {
      await attempt();
      return null;
    } catch (error) {
      if (error instanceof TypeError) return String(error.stack);
      throw error;
    }
  };
  say({
    urls: await Promise.all(given.urls.map((url) => said(() => new Client({ url })))),
    tokens: await Promise.all(given.tokens.map((token) => said(() => new Client({ token })))),
    traceparents: await Promise.all(
      given.traceparents.map((traceparent) => said(() => client.publish("q", JOB, {}, { traceparent }))),
    ),
  });
}

async function caught<E>(call: Promise<unknown>, kind: new (...args: any[]) => E): Promise<E> {
  const error = await call.then(() => undefined, (error: unknown) => error);
  if (!(error instanceof kind)) throw new Error(`not a ${kind.name}`, { cause: error });
  return error;
}

async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const [command, ...more] = process.argv.slice(2) as [string, ...string[]];
const [first = "", second = "", third = ""] = more;
if (command === "produce") await produce(first, second, Number(third));
else if (command === "consume") await consume(first, Number(second), Number(third), more[3] === "stream");
else if (command === "properties") await properties(first, second);
else if (command === "options") await options(first, JSON.parse(second));
else if (command === "letters") await letters(first);
else if (command === "redrive") await redrive(first);
else if (command === "refusals") await refusals(JSON.parse(first));
else await checks(first);
