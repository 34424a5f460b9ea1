package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.Map;
import java.util.TreeMap;

/** A received message, which is leased to the caller. */
public final class Delivery {
    private final String queue;
    private final String ackToken;
    private final Instant leaseExpiresAt;
    private final long attempts;
    private final boolean redelivered;
    private final Map<String, String> headers = new TreeMap<>();
    private final Map<String, JsonNode> brokerProperties = new TreeMap<>();
    private final JsonNode envelope;
    private volatile boolean leaseLost;

    Delivery(String queue, JsonNode received) {
        this.queue = queue;
        this.ackToken = received.path("ack_token").asText();
        this.leaseExpiresAt = Instant.ofEpochMilli(received.path("lease_expires_at").asLong());
        this.attempts = received.path("attempts").asLong();
        this.redelivered = received.path("redelivered").asBoolean();
        this.envelope = received.path("envelope");
        received.path("broker_properties")
                .properties()
                .forEach(each -> brokerProperties.put(each.getKey(), each.getValue()));
        received.path("headers").properties().forEach(each -> headers.put(each.getKey(), each.getValue().asText()));
    }

    /** For a token that was kept, such as by another process: enough to settle the message. */
    public Delivery(String queue, String ackToken) {
        this(queue, Json.object().put("ack_token", ackToken));
    }

    /** The queue that it was received from. */
    public String queue() {
        return queue;
    }

    /** Proves the lease; the gateway wants it for each settle. */
    public String ackToken() {
        return ackToken;
    }

    /** When the lease ended at first. A consumer prolongs it. */
    public Instant leaseExpiresAt() {
        return leaseExpiresAt;
    }

    /** The number of earlier deliveries that ended without an ack. */
    public long attempts() {
        return attempts;
    }

    /** Whether the message was delivered before. */
    public boolean redelivered() {
        return redelivered;
    }

    /** Native headers. */
    public Map<String, String> headers() {
        return Map.copyOf(headers);
    }

    /** By their names in the API, such as {@code SequenceNumber}; empty if the broker has none. */
    public Map<String, JsonNode> brokerProperties() {
        return Map.copyOf(brokerProperties);
    }

    /** The W3C trace context to continue; null if there is none. */
    public String traceparent() {
        return headers.get("traceparent");
    }

    /** The whole message as it lies on the queue. */
    public JsonNode envelope() {
        return envelope;
    }

    /** The id of the message: use it to detect duplicates. */
    public String id() {
        return envelope.path("meta").path("id").asText();
    }

    /** The kind of the message. */
    public String job() {
        return envelope.path("job").asText(envelope.path("urn").asText());
    }

    /** The trace that the message belongs to. */
    public String traceId() {
        return envelope.path("trace_id").asText();
    }

    /** The payload. */
    public JsonNode data() {
        return envelope.path("data");
    }

    /**
     * The payload as Jackson reads it.
     *
     * @throws IllegalArgumentException if it does not fit {@code type}
     */
    public <T> T dataAs(Class<T> type) {
        return Json.as(data(), type);
    }

    /** Whether the lease was lost while a handler of a consumer runs: somebody else may handle the message. */
    public boolean leaseLost() {
        return leaseLost;
    }

    void loseLease() {
        leaseLost = true;
    }
}
