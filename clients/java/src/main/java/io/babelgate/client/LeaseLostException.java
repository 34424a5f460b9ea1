package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;

/** A lease is over: the message was settled, or is delivered again. */
public final class LeaseLostException extends ProblemException {
    private static final long serialVersionUID = 1;
    static final String CODE = "lease_lost";

    LeaseLostException(int status, JsonNode problem, Duration retryAfter) {
        super(status, problem, retryAfter);
    }
}
