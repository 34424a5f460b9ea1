package io.babelgate.client;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

/**
 * One request. The same bytes are sent each time, as an idempotency key requires.
 *
 * @param path relative to the URL of the gateway
 * @param body that of a POST; null: a GET
 * @param waits how long the gateway may wait before it answers
 * @param unlessWritten see {@link Attempts}
 */
record Call(String path, byte[] body, Map<String, String> headers, Duration waits, boolean unlessWritten) {
    static Call publish(String queue, Message message, String key) {
        Map<String, String> headers = traced(message);
        if (key != null) {
            headers.put("Idempotency-Key", quoted(key));
        }
        return new Call(path(queue, "messages"), message.draft(null), headers, Duration.ZERO, key == null);
    }

    static Call batch(String queue, byte[] body, Message first, boolean unlessWritten) {
        return new Call(path(queue, "messages:batch"), body, traced(first), Duration.ZERO, unlessWritten);
    }

    static Call receive(String queue, int maxMessages, Duration wait, Duration lease) {
        ObjectNode order = Json.object().put("max_messages", maxMessages).put("wait_seconds", Json.seconds(wait));
        if (lease != null) {
            order.put("lease_seconds", Json.seconds(lease));
        }
        return new Call(path(queue, "messages:receive"), Json.bytes(order), Map.of(), wait, false);
    }

    static Call stream(String queue, int maxInFlight, Duration lease) {
        String query = "messages:stream?max_in_flight=" + maxInFlight + "&lease_seconds=" + Json.seconds(lease);
        return new Call(path(queue, query), null, Map.of("Accept", "application/x-ndjson"), Duration.ZERO, false);
    }

    /** {@code parameters}: the members of the request beside the tokens. */
    static Call settle(String action, Collection<Delivery> deliveries, ObjectNode parameters) {
        ArrayNode tokens = parameters.putArray("ack_tokens");
        deliveries.forEach(each -> tokens.add(each.ackToken()));
        String queue = deliveries.iterator().next().queue();
        return new Call(path(queue, "messages:" + action), Json.bytes(parameters), Map.of(), Duration.ZERO, false);
    }

    static String newKey() {
        return UUID.randomUUID().toString();
    }

    /** The path of {@code action} on {@code queue}. */
    static String path(String queue, String action) {
        return "/queues/" + escaped(queue) + "/" + action;
    }

    /** {@code text} as a part of a path or a query. */
    static String escaped(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static Map<String, String> traced(Message message) {
        Map<String, String> headers = new HashMap<>();
        if (message.traceparent() != null) {
            headers.put("traceparent", message.traceparent());
        }
        return headers;
    }

    /** {@code key} as a structured string of HTTP. */
    private static String quoted(String key) {
        return '"' + key.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
