import type { Call } from "./calls.js";
import type { components } from "./generated/api.js";
import { camel, json, type Camel, type Data } from "./messages.js";

type Schemas = components["schemas"];
/** How long a gateway may redrive before it answers. */
const REDRIVE_SECONDS = 60;

/** A stored dead letter. `failedAt`: Unix milliseconds. `recordBase64` replaces a `record` that is no JSON object. */
export type DeadLetter = Camel<Schemas["DeadLetter"]>;
/** A page of dead letters, oldest first. `nextCursor` is null on the last page. */
export interface DeadLetterPage {
  readonly deadLetters: readonly DeadLetter[];
  readonly nextCursor: string | null;
}
/** The result of a redrive. */
export interface RedriveResult extends Omit<Camel<Schemas["RedriveResult"]>, "errors"> {
  readonly errors: readonly Camel<Schemas["RedriveFailure"]>[];
}
/** The result of the redrive of one dead letter. */
export type RedrivenLetter = Camel<Schemas["RedrivenLetter"]>;
/** The result of a deletion: one of `results` for each `letterId`. */
export interface Removal extends Omit<Camel<Schemas["Removal"]>, "results"> {
  readonly results: readonly Camel<Schemas["RemovalResult"]>[];
}
/** The result of a purge. */
export type PurgeResult = Camel<Schemas["PurgeResult"]>;

/** Which dead letters: those that meet all conditions. `before` and `after`: when dead-lettered, in Unix milliseconds. */
export interface DeadLetterConditions {
  job?: string;
  reason?: "failed" | "unknown_urn" | "poison";
  before?: number;
  after?: number;
  traceId?: string;
}

/** `limit`: 1 to 1,000. `cursor`: `nextCursor` of the page before. */
export interface DeadLetterListOptions extends DeadLetterConditions {
  limit?: number;
  cursor?: string;
}

/** Which dead letters are sent back, and how. */
export interface RedriveOptions extends DeadLetterConditions {
  /** The `letterId` of 1 to 1,000 dead letters, instead of conditions. */
  ids?: readonly string[];
  /** Default: 1,000. */
  limit?: number;
  /** Default: their own queue. */
  toQueue?: string;
  /** Only count. */
  dryRun?: boolean;
  /** Also records without a valid envelope, to another queue. */
  force?: boolean;
  /** The highest rate, at which `limit` letters take at most 60 s. */
  perSecond?: number;
}

/** How one dead letter is sent back: with new `data`, or with a whole new `body`, or unchanged. */
export interface RedriveOneOptions {
  data?: Data;
  body?: Record<string, unknown>;
  toQueue?: string;
  force?: boolean;
  /** Where the search begins; default: at the oldest. */
  cursor?: string;
}

/** What sends the calls: a client. */
interface Caller {
  call(call: Call): Promise<Record<string, any>>;
}

/**
 * The dead letters of one queue. Methods throw ProblemError and UnreachableError. A redrive, a deletion and a purge are
 * repeated only if they changed nothing.
 */
export class DeadLetters {
  readonly #client: Caller;
  readonly #path: string;

  /** @internal */
  constructor(client: Caller, queue: string) {
    this.#client = client;
    this.#path = `/queues/${encodeURIComponent(queue)}/dead-letters`;
  }

  /** A page of dead letters, oldest first. */
  async list(options: DeadLetterListOptions = {}): Promise<DeadLetterPage> {
    const { traceId, ...rest } = options;
    const answer = await this.#get("", { ...rest, trace_id: traceId });
    const deadLetters = answer["dead_letters"].map((letter: any) => camel<DeadLetter>(letter));
    return { deadLetters, nextCursor: answer["next_cursor"] };
  }

  /** One dead letter. `cursor`: where the search begins; default: at the oldest. */
  async show(letterId: string, { cursor }: { cursor?: string } = {}): Promise<DeadLetter> {
    return camel<DeadLetter>(await this.#get(`/${encodeURIComponent(letterId)}`, { cursor }));
  }

  /** Send dead letters back: each is published, and removed when the broker has stored the message. */
  async redrive(options: RedriveOptions = {}): Promise<RedriveResult> {
    const { job, reason, before, after, traceId, ids, limit, toQueue, dryRun, force, perSecond } = options;
    const conditions = json({ job, reason, before, after, trace_id: traceId });
    const filter = conditions === "{}" ? undefined : JSON.parse(conditions);
    const order = { ids, limit, force, filter, to_queue: toQueue, dry_run: dryRun, per_second: perSecond };
    const answer = await this.#post(":redrive", order, REDRIVE_SECONDS);
    return camel<RedriveResult>({ ...answer, errors: answer["errors"].map((error: any) => camel(error)) });
  }

  /** Send one dead letter back, edited or unchanged. */
  async redriveOne(letterId: string, options: RedriveOneOptions = {}): Promise<RedrivenLetter> {
    const { data, body, toQueue, force, cursor } = options;
    const edit = data === undefined && body === undefined ? undefined : { data, body };
    const path = `/${encodeURIComponent(letterId)}:redrive${query({ cursor })}`;
    return camel<RedrivenLetter>(await this.#post(path, { edit, force, to_queue: toQueue }));
  }

  /** Remove 1 to 1,000 dead letters; one result for each. */
  async delete(letterIds: string | readonly string[]): Promise<Removal> {
    const answer = await this.#post(":delete", { ids: typeof letterIds === "string" ? [letterIds] : letterIds });
    return camel<Removal>({ ...answer, results: answer["results"].map((result: any) => camel(result)) });
  }

  /** Remove all dead letters. `dryRun`: only count them. */
  async purge({ dryRun }: { dryRun?: boolean } = {}): Promise<PurgeResult> {
    return camel<PurgeResult>(await this.#post(":purge", { dry_run: dryRun }));
  }

  #get(path: string, parameters: Record<string, unknown>): Promise<Record<string, any>> {
    return this.#client.call({ path: this.#path + path + query(parameters) });
  }

  #post(path: string, order: object, waitSeconds = 0): Promise<Record<string, any>> {
    return this.#client.call({ path: this.#path + path, body: json(order), waitSeconds, unlessWritten: true });
  }
}

function query(parameters: Record<string, unknown>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}
