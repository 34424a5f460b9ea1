package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.babelgate.client.generated.model.DeadLetter;
import io.babelgate.client.generated.model.DeadLetterFilter;
import io.babelgate.client.generated.model.DeadLetterPage;
import io.babelgate.client.generated.model.PurgeResult;
import io.babelgate.client.generated.model.RedriveDeadLetterRequest;
import io.babelgate.client.generated.model.RedriveRequest;
import io.babelgate.client.generated.model.RedriveResult;
import io.babelgate.client.generated.model.RedrivenLetter;
import io.babelgate.client.generated.model.Removal;
import java.time.Duration;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.Function;

/**
 * The dead letters of one queue. Methods throw {@link ProblemException} and {@link UnreachableException}. A redrive, a
 * deletion and a purge are repeated only if they changed nothing.
 */
public final class DeadLetters {
    /** How long a gateway may redrive before it answers. */
    private static final Duration REDRIVE = Duration.ofSeconds(60);

    private final Function<Call, JsonNode> client;
    private final String queue;

    DeadLetters(Function<Call, JsonNode> client, String queue) {
        this.client = client;
        this.queue = queue;
    }

    /** The first page of dead letters, oldest first. */
    public DeadLetterPage list() {
        return list(new DeadLetterFilter(), null, null);
    }

    /**
     * A page of dead letters, oldest first.
     *
     * @param filter those that meet all of its conditions; its times are in Unix milliseconds
     * @param limit 1 to 1,000; null: the default of the gateway
     * @param cursor {@code nextCursor} of the page before; null: the first page
     */
    public DeadLetterPage list(DeadLetterFilter filter, Integer limit, String cursor) {
        ObjectNode parameters = request(filter);
        if (limit != null) {
            parameters.put("limit", limit);
        }
        if (cursor != null) {
            parameters.put("cursor", cursor);
        }
        return get("dead-letters" + query(parameters), DeadLetterPage.class);
    }

    /** One dead letter. */
    public DeadLetter show(String letterId) {
        return show(letterId, null);
    }

    /** One dead letter. {@code cursor}: where the search begins; null: at the oldest. */
    public DeadLetter show(String letterId, String cursor) {
        return get("dead-letters/" + Call.escaped(letterId) + query(of(cursor)), DeadLetter.class);
    }

    /**
     * Send dead letters back: each is published, and removed when the broker has stored the message.
     *
     * @param order which and how: {@code new RedriveRequest().limit(100L)}
     * @throws IllegalArgumentException if {@code order} asks for a job in the background, which
     *     {@link Client#api} offers
     */
    public RedriveResult redrive(RedriveRequest order) {
        if (Boolean.TRUE.equals(order.getBackground())) {
            throw new IllegalArgumentException("a redrive in the background answers with a job: use Client.api()");
        }
        return post("dead-letters:redrive", request(order), REDRIVE, RedriveResult.class);
    }

    /** Send one dead letter back unchanged. */
    public RedrivenLetter redriveOne(String letterId) {
        return redriveOne(letterId, new RedriveDeadLetterRequest(), null);
    }

    /**
     * Send one dead letter back.
     *
     * @param order how: {@code new RedriveDeadLetterRequest().edit(new DeadLetterEdit().data(data))}
     * @param cursor where the search begins; null: at the oldest
     */
    public RedrivenLetter redriveOne(String letterId, RedriveDeadLetterRequest order, String cursor) {
        String action = "dead-letters/" + Call.escaped(letterId) + ":redrive" + query(of(cursor));
        return post(action, request(order), Duration.ZERO, RedrivenLetter.class);
    }

    /** Remove 1 to 1,000 dead letters; one result for each. */
    public Removal delete(String... letterIds) {
        ObjectNode order = Json.object();
        ArrayNode ids = order.putArray("ids");
        for (String each : letterIds) {
            ids.add(each);
        }
        return post("dead-letters:delete", order, Duration.ZERO, Removal.class);
    }

    /** Remove all dead letters; with {@code dryRun} only count them. */
    public PurgeResult purge(boolean dryRun) {
        return post("dead-letters:purge", Json.object().put("dry_run", dryRun), Duration.ZERO, PurgeResult.class);
    }

    private <T> T get(String action, Class<T> type) {
        return Json.as(client.apply(new Call(Call.path(queue, action), null, Map.of(), Duration.ZERO, false)), type);
    }

    private <T> T post(String action, ObjectNode order, Duration waits, Class<T> type) {
        byte[] body = Json.bytes(order);
        return Json.as(client.apply(new Call(Call.path(queue, action), body, Map.of(), waits, true)), type);
    }

    /** An object of a generated class without what is null in it and in its filter or its edit, but not deeper. */
    private static ObjectNode request(Object given) {
        ObjectNode order = (ObjectNode) Json.tree(given);
        order.properties().removeIf(member -> member.getValue().isNull());
        for (JsonNode each : order) {
            if (each instanceof ObjectNode part) {
                part.properties().removeIf(member -> member.getValue().isNull());
            }
        }
        return order;
    }

    private static ObjectNode of(String cursor) {
        ObjectNode parameters = Json.object();
        return cursor == null ? parameters : parameters.put("cursor", cursor);
    }

    private static String query(ObjectNode parameters) {
        StringJoiner query = new StringJoiner("&", "?", "").setEmptyValue("");
        parameters.properties().forEach(
                member -> query.add(member.getKey() + "=" + Call.escaped(member.getValue().asText())));
        return query.toString();
    }
}
