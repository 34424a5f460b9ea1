package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.babelgate.client.generated.model.EntryResult;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** A batch on its way: the bytes of each entry, and its last result. */
final class Batch {
    /** A gateway takes 10,000 entries and 16 MiB by default. Smaller requests are repeated in smaller parts. */
    private static final int ENTRIES_PER_REQUEST = 1_000;

    private static final int BYTES_PER_REQUEST = 4_194_304;

    private final String queue;
    private final List<Message> messages;
    private final String[] keys;
    private final byte[][] drafts;
    private final ObjectNode[] results;
    private List<Integer> pending = new ArrayList<>();
    private boolean keysUnsupported;

    Batch(String queue, List<Message> messages, boolean keyed) {
        this.queue = queue;
        this.messages = List.copyOf(messages);
        this.keys = new String[messages.size()];
        this.drafts = new byte[messages.size()][];
        this.results = new ObjectNode[messages.size()];
        for (int index = 0; index < keys.length; index++) {
            String own = messages.get(index).idempotencyKey();
            keys[index] = own != null ? own : keyed ? Call.newKey() : null;
            drafts[index] = messages.get(index).draft(keys[index]);
            pending.add(index);
        }
    }

    /** What one request carries of the entries that are not done: their positions. Empty when all were sent. */
    List<Integer> take() {
        int size = 0;
        int count = 0;
        while (count < pending.size()) {
            size += drafts[pending.get(count)].length + 1;
            if (count > 0 && (count == ENTRIES_PER_REQUEST || size > BYTES_PER_REQUEST)) {
                break;
            }
            count++;
        }
        List<Integer> part = pending.subList(0, count);
        pending = pending.subList(count, pending.size());
        return part;
    }

    Call call(List<Integer> part) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        boolean unlessWritten = false;
        int separator = '[';
        for (int index : part) {
            body.write(separator);
            body.writeBytes(drafts[index]);
            separator = ',';
            unlessWritten |= keys[index] == null;
        }
        body.write(']');
        return Call.batch(queue, body.toByteArray(), messages.get(part.get(0)), unlessWritten);
    }

    /** Note the results of a part. */
    void record(List<Integer> part, JsonNode answer) {
        for (JsonNode result : answer.path("results")) {
            int index = part.get(result.path("index").asInt());
            results[index] = ((ObjectNode) result).put("index", index);
        }
    }

    /** The error for which entries are to be sent again, and prepares that; null when all are done. */
    ProblemException failure() {
        ArrayList<Integer> again = new ArrayList<>();
        ProblemException failure = null;
        for (int index = 0; index < results.length; index++) {
            int status = results[index].path("status").asInt();
            if (status < 300) {
                continue;
            }
            ProblemException error = new ProblemException(status, results[index], Duration.ZERO);
            boolean own = messages.get(index).idempotencyKey() != null;
            if (error.code().equals(Client.NEEDS_NO_KEY) && !own && keys[index] != null) {
                keysUnsupported = true;
                keys[index] = null;
                drafts[index] = messages.get(index).draft(null);
            } else if (!Attempts.repeats(error, keys[index] == null)) {
                continue;
            }
            again.add(index);
            failure = new ProblemException(503, results[index].deepCopy().put("retryable", true), Duration.ZERO);
        }
        pending = again;
        return failure;
    }

    /** Whether the queue refused the keys of this client. */
    boolean keysUnsupported() {
        return keysUnsupported;
    }

    /** One result per message, in order. */
    List<EntryResult> results() {
        ArrayList<EntryResult> read = new ArrayList<>();
        for (ObjectNode each : results) {
            read.add(Json.as(each, EntryResult.class));
        }
        return read;
    }
}
