package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import io.babelgate.client.generated.ApiClient;
import io.babelgate.client.generated.model.EntryResult;
import io.babelgate.client.generated.model.Receipt;
import io.babelgate.client.generated.model.SettleOutcome;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;

/**
 * A client of one gateway. Any number of threads may use it. Its methods throw {@link ProblemException} and
 * {@link UnreachableException}.
 */
public final class Client {
    /** The version of this client. */
    public static final String VERSION = "0.2.0";

    /** The code with which a queue refuses idempotency keys. */
    static final String NEEDS_NO_KEY = "idempotency_unsupported";

    private static final String LOCAL_URL = "http://127.0.0.1:8080";
    private static final Pattern GATEWAY_URL = Pattern.compile(
            "https?://[^\\x00-\\x20\\x7f/?#:][^\\x00-\\x20\\x7f/?#]*(/[^\\x00-\\x20\\x7f?#]*)?", Pattern.CASE_INSENSITIVE);
    private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(10);

    private final String url;
    private final String token;
    private final Duration timeout;
    private final Duration retryFor;
    private final HttpClient http;
    private final Set<String> withoutKeys = ConcurrentHashMap.newKeySet();

    private Client(Builder builder) {
        String given = first(builder.url, System.getenv("BABELGATE_URL"), LOCAL_URL);
        if (!GATEWAY_URL.matcher(given).matches()) {
            throw new IllegalArgumentException("the URL of the gateway begins with http:// or https:// and names a host, such"
                    + " as http://127.0.0.1:8080, without spaces, line ends, query and fragment");
        }
        url = given.replaceAll("/+$", "");
        token = first(builder.token, System.getenv("BABELGATE_TOKEN"));
        if (token != null && !isVisible(token)) {
            throw new IllegalArgumentException("the token is visible ASCII, without spaces and line ends; one that was read"
                    + " from a file often ends in a line feed");
        }
        timeout = builder.timeout;
        retryFor = builder.retryFor;
        http = httpClient().build();
    }

    /** A client with the defaults: BABELGATE_URL and BABELGATE_TOKEN, else http://127.0.0.1:8080 without a token. */
    public static Client create() {
        return builder().build();
    }

    /** Options of a client. */
    public static Builder builder() {
        return new Builder();
    }

    /** Options of a client. */
    public static final class Builder {
        private String url;
        private String token;
        private Duration timeout = Duration.ofSeconds(30);
        private Duration retryFor = Duration.ofSeconds(60);

        private Builder() {}

        /** The gateway. Default: BABELGATE_URL, else http://127.0.0.1:8080. */
        public Builder url(String url) {
            this.url = url;
            return this;
        }

        /** The bearer token. Default: BABELGATE_TOKEN. */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /** For one answer, beyond the time that a receive may wait. Default: 30 s. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** For how long a failed call is repeated; zero: never. Default: 60 s. */
        public Builder retryFor(Duration retryFor) {
            this.retryFor = retryFor;
            return this;
        }

        /**
         * A client with these options.
         *
         * @throws IllegalArgumentException for a URL or a token that cannot be one; its text does not show the token
         */
        public Client build() {
            return new Client(this);
        }
    }

    /**
     * Publish one message; returns when the broker has stored it. A failed call is repeated with the same idempotency
     * key, so the message is written once. On a queue that keeps no keys, it is repeated only if nothing was written.
     */
    public Receipt publish(String queue, Message message) {
        String own = message.idempotencyKey();
        String key = own != null || withoutKeys.contains(queue) ? own : Call.newKey();
        try {
            return Json.as(call(Call.publish(queue, message, key), retryFor), Receipt.class);
        } catch (ProblemException problem) {
            if (own != null || !problem.code().equals(NEEDS_NO_KEY)) {
                throw problem;
            }
            withoutKeys.add(queue);
            return Json.as(call(Call.publish(queue, message, null), retryFor), Receipt.class);
        }
    }

    /** Publish a message of this kind. See {@link Message#of}. */
    public Receipt publish(String queue, String job, Object data) {
        return publish(queue, Message.of(job, data));
    }

    /**
     * Publish messages in order; one result per message. Only entries that failed are sent again. An exception means that
     * a request failed as a whole; messages of earlier requests may have been published.
     */
    public List<EntryResult> publishBatch(String queue, List<Message> messages) {
        Batch batch = new Batch(queue, messages, !withoutKeys.contains(queue));
        Attempts attempts = new Attempts(false, retryFor);
        while (true) {
            for (List<Integer> part = batch.take(); !part.isEmpty(); part = batch.take()) {
                batch.record(part, call(batch.call(part), retryFor));
            }
            ProblemException failure = batch.failure();
            if (batch.keysUnsupported()) {
                withoutKeys.add(queue);
            }
            if (failure == null) {
                return batch.results();
            }
            Duration pause;
            try {
                pause = attempts.pauseAfter(failure);
            } catch (ProblemException last) {
                return batch.results();
            }
            sleep(pause);
        }
    }

    /**
     * Lease messages; none when there are none within {@code wait}.
     *
     * @param maxMessages 1 to 100
     * @param wait at most 30 s
     * @param lease null: that of the queue
     */
    public List<Delivery> receive(String queue, int maxMessages, Duration wait, Duration lease) {
        return deliveries(queue, call(Call.receive(queue, maxMessages, wait, lease), retryFor));
    }

    /** Remove messages of one queue. A single delivery whose lease is over throws {@link LeaseLostException}. */
    public SettleOutcome ack(Delivery... deliveries) {
        return settle(Call.settle("ack", some(deliveries), Json.object()));
    }

    /** Deliver messages again. */
    public SettleOutcome nack(NackOptions options, Delivery... deliveries) {
        return settle(Call.settle("nack", some(deliveries), options.parameters()));
    }

    /** Dead-letter messages. {@code why} may be null. */
    public SettleOutcome reject(Failure why, Delivery... deliveries) {
        return settle(Call.settle("reject", some(deliveries), Failure.parameters(why)));
    }

    /** Prolong leases: they end {@code lease} from now. */
    public SettleOutcome extend(Duration lease, Delivery... deliveries) {
        return settle(Call.settle("extend", some(deliveries), Json.object().put("lease_seconds", Json.seconds(lease))));
    }

    /** A consumer of {@code queue}. It starts with its method {@code run}. */
    public Consumer consumer(String queue, MessageHandler handler, ConsumerOptions options) {
        return new Consumer(this, queue, handler, options);
    }

    /** The dead letters of {@code queue}: list, show, redrive, delete and purge them. */
    public DeadLetters deadLetters(String queue) {
        return new DeadLetters(call -> call(call, retryFor), queue);
    }

    /** The generated client, for the whole API: {@code new QueuesApi(client.api())}. */
    public ApiClient api() {
        ApiClient api = new ApiClient(httpClient(), ApiClient.createDefaultObjectMapper(), url);
        api.setReadTimeout(timeout);
        return token == null ? api : api.setRequestInterceptor(it -> it.header("Authorization", "Bearer " + token));
    }

    Duration timeout() {
        return timeout;
    }

    /** The answer, after attempts for at most {@code retryFor}. */
    JsonNode call(Call call, Duration retryFor) {
        Attempts attempts = new Attempts(call.unlessWritten(), retryFor);
        while (true) {
            try {
                return once(call, timeout);
            } catch (BabelgateException error) {
                sleep(attempts.pauseAfter(error));
            }
        }
    }

    /** The answer of one attempt, within {@code timeout} beyond what the gateway may wait. */
    JsonNode once(Call call, Duration timeout) {
        return answer(send(call), timeout.plus(call.waits()));
    }

    /** One attempt that has begun. */
    CompletableFuture<HttpResponse<byte[]>> send(Call call) {
        return send(call, HttpResponse.BodyHandlers.ofByteArray());
    }

    /** One attempt that has begun; {@code body} reads the answer. */
    CompletableFuture<HttpResponse<byte[]>> send(Call call, HttpResponse.BodyHandler<byte[]> body) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + call.path()))
                .header("User-Agent", "babelgate-java/" + VERSION);
        if (call.body() != null) {
            request.header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofByteArray(call.body()));
        }
        call.headers().forEach(request::header);
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        return http.sendAsync(request.build(), body);
    }

    /** The answer to {@code sent}. */
    static JsonNode answer(CompletableFuture<HttpResponse<byte[]>> sent, Duration timeout) {
        HttpResponse<byte[]> response;
        try {
            response = sent.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException error) {
            throw unreachable(error.getCause());
        } catch (TimeoutException error) {
            sent.cancel(true);
            throw new UnreachableException(new IOException("no answer within " + Json.seconds(timeout) + " s"), true);
        } catch (InterruptedException error) {
            sent.cancel(true);
            Thread.currentThread().interrupt();
            throw new UnreachableException(error, true);
        }
        JsonNode read = Json.read(response.body());
        if (response.statusCode() < 300) {
            return read;
        }
        Duration after = response.headers().firstValue("Retry-After").map(Client::seconds).orElse(Duration.ZERO);
        throw LeaseLostException.CODE.equals(read.path("code").asText())
                ? new LeaseLostException(response.statusCode(), read, after)
                : new ProblemException(response.statusCode(), read, after);
    }

    static List<Delivery> deliveries(String queue, JsonNode answer) {
        List<Delivery> deliveries = new ArrayList<>();
        answer.path("messages").forEach(each -> deliveries.add(new Delivery(queue, each)));
        return deliveries;
    }

    private SettleOutcome settle(Call call) {
        return Json.as(call(call, retryFor), SettleOutcome.class);
    }

    private static Collection<Delivery> some(Delivery... deliveries) {
        if (deliveries.length == 0) {
            throw new IllegalArgumentException("at least one delivery must be given");
        }
        return Arrays.asList(deliveries);
    }

    private static HttpClient.Builder httpClient() {
        // HTTP/2 over clear text would begin with an upgrade, which the gateway does not offer.
        return HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER)
                .connectTimeout(CONNECT_TIMEOUT);
    }

    private static UnreachableException unreachable(Throwable cause) {
        boolean sent = !(cause instanceof ConnectException || cause instanceof HttpConnectTimeoutException);
        return new UnreachableException(cause, sent);
    }

    /** Whether {@code text} is visible ASCII, which every header can carry. */
    static boolean isVisible(String text) {
        return text.matches("[!-~]+");
    }

    private static Duration seconds(String text) {
        return text.matches("[0-9]{1,9}") ? Duration.ofSeconds(Long.parseLong(text)) : Duration.ZERO;
    }

    private static void sleep(Duration pause) {
        try {
            TimeUnit.NANOSECONDS.sleep(pause.toNanos());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new UnreachableException(error, false);
        }
    }

    private static String first(String... texts) {
        return Arrays.stream(texts)
                .filter(each -> each != null && !each.isEmpty())
                .findFirst()
                .orElse(null);
    }
}
