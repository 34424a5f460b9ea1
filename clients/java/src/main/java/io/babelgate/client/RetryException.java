package io.babelgate.client;

import java.time.Duration;

/** Thrown by a handler: the message is delivered again after a delay. It counts as a failed attempt. */
public final class RetryException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final Duration delay;

    /** With the delay, and the reason that the gateway notes. */
    public RetryException(Duration delay, String message) {
        super(message);
        this.delay = delay;
    }

    /** The delay until the next delivery. */
    public Duration delay() {
        return delay;
    }
}
