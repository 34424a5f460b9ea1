/** Client of babelgate: publish messages, and consume them safely. */
export { VERSION } from "./calls.js";
export { Client } from "./client.js";
export { Consumer } from "./consumer.js";
export { DeadLetters } from "./deadletters.js";
export { BabelgateError, LeaseLostError, ProblemError, Reject, Retry, UnreachableError } from "./errors.js";
export { Delivery } from "./messages.js";
