package io.babelgate.client;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Why a message was not handled.
 *
 * @param message a sentence for people; null: none
 * @param exception its kind, such as a class name; null: none
 */
public record Failure(String message, String exception) {
    private static final int MOST_MESSAGE_CHARACTERS = 10_000;
    private static final int MOST_EXCEPTION_CHARACTERS = 1_000;

    static Failure of(Throwable error) {
        return new Failure(String.valueOf(error.getMessage()), error.getClass().getName());
    }

    /** Parameters of a settle with this failure, which may be null. */
    static ObjectNode parameters(Failure failure) {
        ObjectNode parameters = Json.object();
        if (failure != null) {
            ObjectNode error = parameters.putObject("error");
            if (failure.message != null) {
                error.put("message", Json.clipped(failure.message, MOST_MESSAGE_CHARACTERS));
            }
            if (failure.exception != null) {
                error.put("exception", Json.clipped(failure.exception, MOST_EXCEPTION_CHARACTERS));
            }
        }
        return parameters;
    }
}
