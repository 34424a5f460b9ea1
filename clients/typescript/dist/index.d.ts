/** Client of babelgate: publish messages, and consume them safely. */
export { VERSION } from "./calls.js";
export { Client, type ClientOptions, type Failure, type Traced } from "./client.js";
export { Consumer, type ConsumerOptions, type Handler } from "./consumer.js";
export { DeadLetters } from "./deadletters.js";
export type { DeadLetter, DeadLetterConditions, DeadLetterListOptions, DeadLetterPage, PurgeResult, RedriveOneOptions, RedriveOptions, RedriveResult, RedrivenLetter, Removal, } from "./deadletters.js";
export { BabelgateError, LeaseLostError, ProblemError, Reject, Retry, UnreachableError } from "./errors.js";
export { Delivery } from "./messages.js";
export type { BrokerProperties, Data, Defect, EntryResult, Envelope, Lang, Message, MessageOptions, Receipt, ReceivedBrokerProperties, SettleOutcome, SettleResult, } from "./messages.js";
/** The whole API, for a client such as openapi-fetch: `createClient<paths>({ baseUrl: client.url })`. */
export type { components, paths } from "./generated/api.js";
