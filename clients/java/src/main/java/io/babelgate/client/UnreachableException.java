package io.babelgate.client;

/** No gateway answered. */
public final class UnreachableException extends BabelgateException {
    private static final long serialVersionUID = 1;
    private final boolean outcomeUnknown;

    UnreachableException(Throwable cause, boolean outcomeUnknown) {
        super("No gateway answered: " + cause, cause);
        this.outcomeUnknown = outcomeUnknown;
    }

    /** Whether the request may have been carried out all the same. */
    public boolean outcomeUnknown() {
        return outcomeUnknown;
    }

    boolean interrupted() {
        return getCause() instanceof InterruptedException;
    }
}
