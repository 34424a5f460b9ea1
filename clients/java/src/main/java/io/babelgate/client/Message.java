package io.babelgate.client;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/** A message to publish. Each method returns a copy with one more member. */
public final class Message {
    /** What an envelope calls the language of this client. */
    private static final String LANG = "java";

    private final ObjectNode draft;
    private final String idempotencyKey;
    private final String traceparent;

    private Message(ObjectNode draft, String idempotencyKey, String traceparent) {
        this.draft = draft;
        this.idempotencyKey = idempotencyKey;
        this.traceparent = traceparent;
    }

    /**
     * A message of this kind.
     *
     * @param job its kind, by convention a URN
     * @param data its payload, which Jackson must write as a JSON object: a map, a record, a bean, a tree
     * @throws IllegalArgumentException if {@code data} is no JSON object
     */
    public static Message of(String job, Object data) {
        if (!(Json.tree(data) instanceof ObjectNode payload)) {
            throw new IllegalArgumentException("data must be a JSON object");
        }
        ObjectNode draft = Json.object();
        if (job != null) {
            draft.put("job", job);
        }
        draft.set("data", payload);
        draft.putObject("meta").put("lang", LANG);
        return new Message(draft, null, null);
    }

    /** Its trace, by convention a UUID. Default: the gateway makes one. */
    public Message traceId(String traceId) {
        return with(draft.deepCopy().put("trace_id", traceId));
    }

    /** Deliver it no sooner than after this time. */
    public Message delay(Duration delay) {
        return with(draft.deepCopy().put("delay_seconds", Json.seconds(delay)));
    }

    /** Deliver it no sooner than at this time; excludes {@link #delay}. */
    public Message deliverAt(Instant time) {
        return with(draft.deepCopy().put("deliver_at", time.toEpochMilli()));
    }

    /** Dead-letter it if it is not delivered in this time. */
    public Message ttl(Duration ttl) {
        return with(draft.deepCopy().put("ttl_seconds", Json.seconds(ttl)));
    }

    /** 0 to 9, where the broker supports it: deliver it before others with a lower priority. */
    public Message priority(int priority) {
        return with(draft.deepCopy().put("priority", priority));
    }

    /** Messages with the same key keep their order, where the broker supports it. */
    public Message orderingKey(String orderingKey) {
        return with(draft.deepCopy().put("ordering_key", orderingKey));
    }

    /** Native headers, where the broker supports them. */
    public Message headers(Map<String, String> headers) {
        return with(draft.deepCopy().set("headers", Json.tree(headers)));
    }

    /** By their names in the API, such as {@code TimeToLive}, where the broker supports them. */
    public Message brokerProperties(Map<String, ?> brokerProperties) {
        return with(draft.deepCopy().set("broker_properties", Json.tree(brokerProperties)));
    }

    /** 1 to 255 printable ASCII characters. A message with the same key is written once. Default: the client makes one. */
    public Message idempotencyKey(String idempotencyKey) {
        if (!idempotencyKey.matches("[ -~]{1,255}")) {
            throw new IllegalArgumentException("an idempotency key has 1 to 255 printable ASCII characters");
        }
        return new Message(draft, idempotencyKey, traceparent);
    }

    /** The language of the producer, one of those of the envelope. Default: java. */
    public Message lang(String lang) {
        ObjectNode copy = draft.deepCopy();
        copy.withObjectProperty("meta").put("lang", lang);
        return with(copy);
    }

    /** Extensions by vendor, which become {@code meta.ext} of the envelope. */
    public Message ext(Map<String, ?> ext) {
        ObjectNode copy = draft.deepCopy();
        copy.withObjectProperty("meta").set("ext", Json.tree(ext));
        return with(copy);
    }

    /** The W3C trace context of the caller. In a batch that of the first message counts. */
    public Message traceparent(String traceparent) {
        if (!Client.isVisible(traceparent)) {
            throw new IllegalArgumentException("a traceparent is visible ASCII, without spaces and line ends");
        }
        return new Message(draft, idempotencyKey, traceparent);
    }

    String idempotencyKey() {
        return idempotencyKey;
    }

    String traceparent() {
        return traceparent;
    }

    /** The JSON of a draft; {@code key} is the idempotency key in it, or null. */
    byte[] draft(String key) {
        return Json.bytes(key == null ? draft : draft.deepCopy().put("idempotency_key", key));
    }

    private Message with(ObjectNode changed) {
        return new Message(changed, idempotencyKey, traceparent);
    }
}
