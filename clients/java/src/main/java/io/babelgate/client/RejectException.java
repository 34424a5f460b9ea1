package io.babelgate.client;

/** Thrown by a handler: the message is dead-lettered now. */
public final class RejectException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** With the reason that its dead letter has. */
    public RejectException(String message) {
        super(message);
    }

    /** With the reason that its dead letter has, and what caused it. */
    public RejectException(String message, Throwable cause) {
        super(message, cause);
    }
}
