import type { components } from "./generated/api.js";
import { type Camel, type Data } from "./messages.js";
type Schemas = components["schemas"];
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
/**
 * The dead letters of one queue. Methods throw ProblemError and UnreachableError. A redrive, a deletion and a purge are
 * repeated only if they changed nothing.
 */
export declare class DeadLetters {
    #private;
    /** A page of dead letters, oldest first. */
    list(options?: DeadLetterListOptions): Promise<DeadLetterPage>;
    /** One dead letter. `cursor`: where the search begins; default: at the oldest. */
    show(letterId: string, { cursor }?: {
        cursor?: string;
    }): Promise<DeadLetter>;
    /** Send dead letters back: each is published, and removed when the broker has stored the message. */
    redrive(options?: RedriveOptions): Promise<RedriveResult>;
    /** Send one dead letter back, edited or unchanged. */
    redriveOne(letterId: string, options?: RedriveOneOptions): Promise<RedrivenLetter>;
    /** Remove 1 to 1,000 dead letters; one result for each. */
    delete(letterIds: string | readonly string[]): Promise<Removal>;
    /** Remove all dead letters. `dryRun`: only count them. */
    purge({ dryRun }?: {
        dryRun?: boolean;
    }): Promise<PurgeResult>;
}
export {};
