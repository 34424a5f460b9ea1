import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.babelgate.client.Client;
import io.babelgate.client.Consumer;
import io.babelgate.client.ConsumerOptions;
import io.babelgate.client.DeadLetters;
import io.babelgate.client.Delivery;
import io.babelgate.client.Failure;
import io.babelgate.client.LeaseLostException;
import io.babelgate.client.Message;
import io.babelgate.client.NackOptions;
import io.babelgate.client.ProblemException;
import io.babelgate.client.RejectException;
import io.babelgate.client.UnreachableException;
import io.babelgate.client.generated.model.DeadLetter;
import io.babelgate.client.generated.model.DeadLetterEdit;
import io.babelgate.client.generated.model.DeadLetterFilter;
import io.babelgate.client.generated.model.DeadLetterPage;
import io.babelgate.client.generated.model.EntryResult;
import io.babelgate.client.generated.model.PurgeResult;
import io.babelgate.client.generated.model.Receipt;
import io.babelgate.client.generated.model.RedriveDeadLetterRequest;
import io.babelgate.client.generated.model.RedriveRequest;
import io.babelgate.client.generated.model.RedriveResult;
import io.babelgate.client.generated.model.RedrivenLetter;
import io.babelgate.client.generated.model.Removal;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;

/**
 * Produces, consumes and checks with the client. Prints one JSON object per line.
 *
 * <p>Usage: Conformance produce QUEUE PRODUCER COUNT | consume QUEUE LEASE_SECONDS CONCURRENCY [stream] | checks QUEUE
 * | properties QUEUE REFUSING | options QUEUE JSON | letters QUEUE | redrive QUEUE | refusals JSON
 */
public final class Conformance {
    private static final String JOB = "urn:babel:conformance:made";
    private static final String TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10";
    private static final String TRACEPARENT = "00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01";
    private static final Duration HALF_A_MINUTE = Duration.ofSeconds(30);
    private static final ObjectMapper JSON = new ObjectMapper();

    private Conformance() {}

    public static void main(String[] arguments) throws Exception {
        String queue = arguments[1];
        switch (arguments[0]) {
            case "produce" -> produce(queue, arguments[2], Integer.parseInt(arguments[3]));
            case "consume" -> consume(
                    queue,
                    ConsumerOptions.DEFAULTS
                            .lease(seconds(Double.parseDouble(arguments[2])))
                            .concurrency(Integer.parseInt(arguments[3]))
                            .stream(arguments.length > 4)
                            .grace(Duration.ofSeconds(5)));
            case "properties" -> properties(queue, arguments[2]);
            case "options" -> options(queue, JSON.readTree(arguments[2]));
            case "letters" -> letters(queue);
            case "redrive" -> redrive(queue);
            case "refusals" -> refusals(JSON.readTree(queue));
            default -> checks(queue);
        }
    }

    private static synchronized void say(Map<String, Object> what) throws Exception {
        System.out.println(JSON.writeValueAsString(what));
        System.out.flush();
    }

    private static Map<String, Object> facts(Object... facts) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int i = 0; i < facts.length; i += 2) {
            made.put((String) facts[i], facts[i + 1]);
        }
        return made;
    }

    private static void produce(String queue, String producer, int count) throws Exception {
        Client client = Client.create();
        List<Integer> odd = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            if (n % 2 == 1) {
                odd.add(n);
                continue;
            }
            Receipt receipt = client.publish(queue, JOB, Map.of("producer", producer, "n", n));
            say(facts("id", receipt.getId(), "producer", producer, "n", n));
        }
        for (int from = 0; from < odd.size(); from += 10) {
            List<Integer> part = odd.subList(from, Math.min(from + 10, odd.size()));
            List<Message> messages = part.stream()
                    .map(n -> Message.of(JOB, Map.of("producer", producer, "n", n)))
                    .toList();
            for (EntryResult result : client.publishBatch(queue, messages)) {
                if (result.getStatus() >= 300) {
                    throw new IllegalStateException(result.getCode() + ": " + result.getDetail());
                }
                say(facts("id", result.getId(), "producer", producer, "n", part.get(result.getIndex().intValue())));
            }
        }
    }

    private static void consume(String queue, ConsumerOptions options) throws Exception {
        Consumer consumer = Client.create().consumer(queue, Conformance::handle, options);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.close();
            try {
                say(facts("event", "stopped"));
            } catch (Exception error) {
                error.printStackTrace();
            }
            // The status of an ordinary end, instead of the signal's.
            Runtime.getRuntime().halt(0);
        }));
        consumer.run();
    }

    private static void handle(Delivery delivery) throws Exception {
        JsonNode data = delivery.data();
        Thread.sleep((long) (data.path("sleep_seconds").asDouble() * 1000));
        if (data.path("reject").asBoolean()) {
            throw new RejectException("as the message says");
        }
        if (delivery.attempts() < data.path("fail_times").asInt()) {
            throw new IllegalStateException("as the message says");
        }
        Map<String, Object> handled = facts("event", "handled", "id", delivery.id());
        handled.put("producer", data.path("producer").asText());
        handled.put("n", data.path("n").asInt());
        handled.put("attempts", delivery.attempts());
        say(handled);
    }

    private static void checks(String queue) throws Exception {
        Client client = Client.create();
        Map<String, Object> found = new LinkedHashMap<>();
        Message first = Message.of(JOB, Map.of("n", 1)).traceId(TRACE_ID).traceparent(TRACEPARENT);
        Receipt receipt = client.publish(queue, first);
        found.put("published", facts("id", receipt.getId(), "queue", receipt.getQueue(), "trace_id", receipt.getTraceId()));
        Message twice = Message.of(JOB, Map.of("n", 2)).idempotencyKey("once-" + receipt.getId());
        String once = client.publish(queue, twice).getId();
        found.put("replayed", once.equals(client.publish(queue, twice).getId()));
        List<Message> batch = List.of(
                Message.of(JOB, Map.of("n", 3)), Message.of(null, Map.of("n", 4)), Message.of(JOB, Map.of("n", 5)));
        found.put("batch", client.publishBatch(queue, batch).stream().map(EntryResult::getStatus).toList());
        List<Delivery> deliveries = client.receive(queue, 10, Duration.ofSeconds(20), HALF_A_MINUTE);
        Delivery delivery = deliveries.get(0);
        found.put(
                "received",
                facts(
                        "id", delivery.id(),
                        "job", delivery.job(),
                        "trace_id", delivery.traceId(),
                        "data", delivery.data(),
                        "attempts", delivery.attempts(),
                        "redelivered", delivery.redelivered(),
                        "traceparent", delivery.traceparent()));
        long until = client.extend(Duration.ofMinutes(5), delivery).getResults().get(0).getLeaseExpiresAt();
        found.put("extended", until > delivery.leaseExpiresAt().toEpochMilli());
        client.nack(new NackOptions(Duration.ZERO, new Failure("no", "NoError"), true), delivery);
        Delivery again = one(client, queue, HALF_A_MINUTE);
        found.put("nacked_attempts", again.attempts());
        List<Delivery> rest = new ArrayList<>(deliveries.subList(1, deliveries.size()));
        rest.add(again);
        found.put("acked", client.ack(rest.toArray(Delivery[]::new)).getSettled());
        client.publish(queue, JOB, Map.of("n", 6));
        Delivery late = one(client, queue, Duration.ofSeconds(1));
        Thread.sleep(1200);
        Delivery taken = one(client, queue, HALF_A_MINUTE);
        try {
            client.ack(late);
        } catch (LeaseLostException lost) {
            found.put("lease_lost", lost.code());
        }
        client.ack(taken);
        try {
            client.ack(new Delivery(queue, "nonsense"));
        } catch (ProblemException problem) {
            found.put(
                    "problem",
                    facts("status", problem.status(), "code", problem.code(), "retryable", problem.retryable()));
        }
        Client nowhere = Client.builder().url("http://127.0.0.1:9").retryFor(Duration.ZERO).build();
        try {
            nowhere.publish(queue, JOB, Map.of("n", 7));
        } catch (UnreachableException unreachable) {
            found.put("not_found_or_unreachable", unreachable.getClass().getSimpleName());
        }
        say(found);
    }

    /** {@code queue} takes broker properties, and {@code refusing} takes none. */
    private static void properties(String queue, String refusing) throws Exception {
        Client client = Client.create();
        Map<String, Object> found = new LinkedHashMap<>();
        Message plain = Message.of(JOB, Map.of("n", 1));
        Message single = plain.brokerProperties(Map.of("TimeToLive", 3600, "ReplyTo", "replies"));
        List<Message> batch = List.of(plain.brokerProperties(Map.of("TimeToLive", 86400.5, "To", "warehouse")));
        client.publish(queue, single);
        found.put("published", received(client, queue));
        EntryResult accepted = client.publishBatch(queue, batch).get(0);
        if (accepted.getStatus() >= 300) {
            throw new IllegalStateException(accepted.getCode() + ": " + accepted.getDetail());
        }
        found.put("batch", received(client, queue));
        try {
            client.publish(refusing, single);
        } catch (ProblemException problem) {
            found.put("refused", facts("status", problem.status(), "code", problem.code()));
        }
        EntryResult refused = client.publishBatch(refusing, batch).get(0);
        found.put("refused_in_batch", facts("status", refused.getStatus(), "code", refused.getCode()));
        client.publish(refusing, plain);
        found.put("without", received(client, refusing));
        say(found);
    }

    /** Publish without options, then with all that are {@code given}, alone and in a batch. */
    private static void options(String queue, JsonNode given) throws Exception {
        Client client = Client.create();
        client.publish(queue, JOB, Map.of("n", 0));
        String key = given.path("idempotency_key").asText();
        TypeReference<Map<String, String>> texts = new TypeReference<>() {};
        TypeReference<Map<String, Object>> any = new TypeReference<>() {};
        Map<String, BiFunction<Message, JsonNode, Message>> setters = Map.ofEntries(
                Map.entry("trace_id", (message, value) -> message.traceId(value.asText())),
                Map.entry("delay_seconds", (message, value) -> message.delay(seconds(value.asDouble()))),
                Map.entry("deliver_at", (message, value) -> message.deliverAt(Instant.ofEpochMilli(value.asLong()))),
                Map.entry("ttl_seconds", (message, value) -> message.ttl(seconds(value.asDouble()))),
                Map.entry("priority", (message, value) -> message.priority(value.asInt())),
                Map.entry("ordering_key", (message, value) -> message.orderingKey(value.asText())),
                Map.entry("headers", (message, value) -> message.headers(JSON.convertValue(value, texts))),
                Map.entry("idempotency_key", (message, value) -> message.idempotencyKey(value.asText())),
                Map.entry("traceparent", (message, value) -> message.traceparent(value.asText())),
                Map.entry("lang", (message, value) -> message.lang(value.asText())),
                Map.entry("ext", (message, value) -> message.ext(JSON.convertValue(value, any))));
        Function<Integer, Message> made = n -> {
            Message message = Message.of(JOB, Map.of("n", n));
            for (Map.Entry<String, JsonNode> option : given.properties()) {
                message = setters.get(option.getKey()).apply(message, option.getValue());
            }
            return message;
        };
        client.publish(queue, made.apply(1));
        List<EntryResult> results = client.publishBatch(queue, List.of(made.apply(2).idempotencyKey(key + "-batch")));
        say(facts("batch", results.stream().map(EntryResult::getStatus).toList()));
    }

    /** {@code queue} has five dead letters. */
    private static void letters(String queue) throws Exception {
        DeadLetters dead = Client.create().deadLetters(queue);
        DeadLetterPage page = dead.list(new DeadLetterFilter(), 2, null);
        DeadLetterPage rest = dead.list(new DeadLetterFilter(), 10, page.getNextCursor());
        Map<String, Object> found = new LinkedHashMap<>();
        int first = page.getDeadLetters().size();
        found.put("pages", Arrays.asList(first, rest.getDeadLetters().size(), rest.getNextCursor()));
        List<Integer> ofJob = new ArrayList<>();
        for (String job : List.of(JOB, "urn:another")) {
            DeadLetterFilter filter = new DeadLetterFilter().job(job).reason(DeadLetterFilter.ReasonEnum.FAILED);
            ofJob.add(dead.list(filter, null, null).getDeadLetters().size());
        }
        found.put("of_job", ofJob);
        List<String> ids = new ArrayList<>();
        page.getDeadLetters().forEach(each -> ids.add(each.getLetterId()));
        rest.getDeadLetters().forEach(each -> ids.add(each.getLetterId()));
        DeadLetter shown = dead.show(ids.get(0));
        found.put("shown", facts("letter_id", shown.getLetterId().equals(ids.get(0)), "error", shown.getError()));
        DeadLetterFilter every = new DeadLetterFilter().job(JOB);
        RedriveResult dry = dead.redrive(new RedriveRequest().filter(every).limit(4L).dryRun(true));
        found.put("dry", List.of(dry.getMatched(), dry.getRedriven()));
        found.put("redriven", dead.redrive(new RedriveRequest().ids(ids.subList(0, 1))).getRedriven());
        RedriveDeadLetterRequest edit =
                new RedriveDeadLetterRequest().edit(new DeadLetterEdit().data(Map.of("n", 100)));
        RedrivenLetter one = dead.redriveOne(ids.get(1), edit, null);
        found.put("one", facts("to_queue", one.getToQueue().equals(queue), "edited", one.getEdited()));
        Removal removal = dead.delete(ids.get(2), "nonsense");
        found.put("deleted", List.of(removal.getRemoved(), removal.getFailed()));
        PurgeResult counted = dead.purge(true);
        found.put("counted", List.of(counted.getMatched(), counted.getRemoved()));
        found.put("purged", dead.purge(false).getRemoved());
        try {
            dead.show(ids.get(0));
        } catch (ProblemException problem) {
            found.put("gone", problem.code());
        }
        say(found);
    }

    /** The gateway breaks the connection. */
    private static void redrive(String queue) throws Exception {
        try {
            Client.create().deadLetters(queue).redrive(new RedriveRequest());
        } catch (UnreachableException error) {
            say(facts("outcome_unknown", error.outcomeUnknown()));
        }
    }

    /** What is said of each URL, token and traceparent that is {@code given}; null if nothing is. */
    private static void refusals(JsonNode given) throws Exception {
        Client client = Client.create();
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("urls", said(given.path("urls"), each -> Client.builder().url(each).build()));
        found.put("tokens", said(given.path("tokens"), each -> Client.builder().token(each).build()));
        found.put("traceparents", said(given.path("traceparents"), each ->
                client.publish("q", Message.of(JOB, Map.of()).traceparent(each))));
        say(found);
    }

    private static List<String> said(JsonNode given, Function<String, Object> attempt) {
        List<String> texts = new ArrayList<>();
        for (JsonNode each : given) {
            try {
                attempt.apply(each.asText());
                texts.add(null);
            } catch (IllegalArgumentException error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                texts.add(trace.toString());
            }
        }
        return texts;
    }

    private static Duration seconds(double seconds) {
        return Duration.ofMillis((long) (seconds * 1000));
    }

    private static Map<String, JsonNode> received(Client client, String queue) {
        Delivery delivery = one(client, queue, HALF_A_MINUTE);
        client.ack(delivery);
        return delivery.brokerProperties();
    }

    private static Delivery one(Client client, String queue, Duration lease) {
        return client.receive(queue, 1, Duration.ofSeconds(20), lease).get(0);
    }
}
