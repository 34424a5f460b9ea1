import { camel, json } from "./messages.js";
/** How long a gateway may redrive before it answers. */
const REDRIVE_SECONDS = 60;
/**
 * The dead letters of one queue. Methods throw ProblemError and UnreachableError. A redrive, a deletion and a purge are
 * repeated only if they changed nothing.
 */
export class DeadLetters {
    #client;
    #path;
    /** @internal */
    constructor(client, queue) {
        this.#client = client;
        this.#path = `/queues/${encodeURIComponent(queue)}/dead-letters`;
    }
    /** A page of dead letters, oldest first. */
    async list(options = {}) {
        const { traceId, ...rest } = options;
        const answer = await this.#get("", { ...rest, trace_id: traceId });
        const deadLetters = answer["dead_letters"].map((letter) => camel(letter));
        return { deadLetters, nextCursor: answer["next_cursor"] };
    }
    /** One dead letter. `cursor`: where the search begins; default: at the oldest. */
    async show(letterId, { cursor } = {}) {
        return camel(await this.#get(`/${encodeURIComponent(letterId)}`, { cursor }));
    }
    /** Send dead letters back: each is published, and removed when the broker has stored the message. */
    async redrive(options = {}) {
        const { job, reason, before, after, traceId, ids, limit, toQueue, dryRun, force, perSecond } = options;
        const conditions = json({ job, reason, before, after, trace_id: traceId });
        const filter = conditions === "{}" ? undefined : JSON.parse(conditions);
        const order = { ids, limit, force, filter, to_queue: toQueue, dry_run: dryRun, per_second: perSecond };
        const answer = await this.#post(":redrive", order, REDRIVE_SECONDS);
        return camel({ ...answer, errors: answer["errors"].map((error) => camel(error)) });
    }
    /** Send one dead letter back, edited or unchanged. */
    async redriveOne(letterId, options = {}) {
        const { data, body, toQueue, force, cursor } = options;
        const edit = data === undefined && body === undefined ? undefined : { data, body };
        const path = `/${encodeURIComponent(letterId)}:redrive${query({ cursor })}`;
        return camel(await this.#post(path, { edit, force, to_queue: toQueue }));
    }
    /** Remove 1 to 1,000 dead letters; one result for each. */
    async delete(letterIds) {
        const answer = await this.#post(":delete", { ids: typeof letterIds === "string" ? [letterIds] : letterIds });
        return camel({ ...answer, results: answer["results"].map((result) => camel(result)) });
    }
    /** Remove all dead letters. `dryRun`: only count them. */
    async purge({ dryRun } = {}) {
        return camel(await this.#post(":purge", { dry_run: dryRun }));
    }
    #get(path, parameters) {
        return this.#client.call({ path: this.#path + path + query(parameters) });
    }
    #post(path, order, waitSeconds = 0) {
        return this.#client.call({ path: this.#path + path, body: json(order), waitSeconds, unlessWritten: true });
    }
}
function query(parameters) {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
    return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}
