package io.babelgate.client;

/** A call that failed: a {@link ProblemException} or an {@link UnreachableException}. */
public abstract class BabelgateException extends RuntimeException {
    private static final long serialVersionUID = 1;

    BabelgateException(String message, Throwable cause) {
        super(message, cause);
    }
}
