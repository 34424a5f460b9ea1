package io.babelgate.client;

/** Handles messages of a consumer, several at a time. */
@FunctionalInterface
public interface MessageHandler {
    /**
     * Handle one message. A return acks it; an exception nacks it with its text and class. {@link RejectException} and
     * {@link RetryException} do what they say. The thread is interrupted when the lease is lost or the grace of a stop is
     * over: then somebody else may handle the message.
     */
    void handle(Delivery delivery) throws Exception;
}
