/**
 * A client of babelgate, the HTTP gateway in front of message brokers: it publishes messages, and consumes them safely.
 * Start with {@link io.babelgate.client.Client}. The packages below {@code generated} have the types of the whole API.
 */
package io.babelgate.client;
