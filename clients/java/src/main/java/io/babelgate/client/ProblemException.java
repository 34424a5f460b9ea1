package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** An answer of the gateway that refuses a request (RFC 9457). */
public class ProblemException extends BabelgateException {
    private static final long serialVersionUID = 1;

    /**
     * One defect of a request.
     *
     * @param pointer where it is (RFC 6901)
     * @param code stable, for programs
     * @param detail a sentence for people
     */
    public record Defect(String pointer, String code, String detail) implements java.io.Serializable {}

    private final int status;
    private final String code;
    private final String detail;
    private final boolean retryable;
    private final String traceId;
    private final ArrayList<Defect> errors = new ArrayList<>();
    private final Duration retryAfter;

    ProblemException(int status, JsonNode problem, Duration retryAfter) {
        super(text(problem, "code", "http_" + status) + ": " + text(problem, "detail", "the answer has no details"), null);
        this.status = status;
        this.code = text(problem, "code", "http_" + status);
        this.detail = text(problem, "detail", "the answer has no details");
        this.retryable = problem.path("retryable").asBoolean(fromProxy(status) && !problem.hasNonNull("code"));
        this.traceId = text(problem, "trace_id", null);
        this.retryAfter = retryAfter;
        for (JsonNode each : problem.path("errors")) {
            errors.add(new Defect(text(each, "pointer", ""), text(each, "code", ""), text(each, "detail", "")));
        }
    }

    /** The HTTP status. */
    public int status() {
        return status;
    }

    /** Stable: use it, and not the text, to tell problems apart. {@code http_502} and such if a proxy answered. */
    public String code() {
        return code;
    }

    /** A sentence for people. */
    public String detail() {
        return detail;
    }

    /** Whether the same request may succeed later. */
    public boolean retryable() {
        return retryable;
    }

    /** The trace of the message or request; null if there is none. */
    public String traceId() {
        return traceId;
    }

    /** The defects of the request. */
    public List<Defect> errors() {
        return List.copyOf(errors);
    }

    /** How long to wait before the next attempt; zero if the gateway does not say. */
    public Duration retryAfter() {
        return retryAfter;
    }

    private static boolean fromProxy(int status) {
        return status == 408 || status == 429 || status == 502 || status == 503 || status == 504;
    }

    private static String text(JsonNode object, String name, String otherwise) {
        return object.path(name).isTextual() ? object.path(name).textValue() : otherwise;
    }
}
