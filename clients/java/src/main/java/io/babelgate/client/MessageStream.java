package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.BodySubscribers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * One open stream of messages. A line is read from the network when the one before it was taken, so that a gateway whose
 * client is busy waits.
 */
final class MessageStream implements Flow.Subscriber<String>, AutoCloseable {
    private static final System.Logger LOG = System.getLogger("io.babelgate.client");
    private static final String CONTENT_TYPE = "application/x-ndjson";

    /** Three keep-alives of a gateway. */
    private static final Duration MOST_SILENCE = Duration.ofSeconds(45);

    /** How gateways without streams, and proxies that do not pass them on, answer. */
    private static final Set<Integer> UNAVAILABLE = Set.of(404, 405, 406, 501);

    private static final String WAKE = "";

    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final CompletableFuture<HttpResponse<byte[]>> answer;
    private volatile Flow.Subscription subscription;
    private volatile boolean woken;
    private boolean heard;
    private boolean undecodable;
    private boolean unavailable;

    MessageStream(Client client, Call call) {
        answer = client.send(call, this::body);
        answer.whenComplete((response, error) -> lines.add(WAKE));
    }

    /** Whether the gateway has sent anything, be it a keep-alive. */
    boolean wasHeard() {
        return heard;
    }

    /** Whether {@link #next} failed as where there are no streams. */
    boolean isUnavailable() {
        return unavailable;
    }

    /** End the wait of {@link #next}. */
    void wake() {
        woken = true;
        lines.add(WAKE);
    }

    /**
     * The next message; null after {@link #wake}. Throws when the stream has ended, cannot be read, or is silent for too
     * long.
     */
    JsonNode next() throws InterruptedException {
        while (!woken) {
            String line = lines.poll(MOST_SILENCE.toNanos(), TimeUnit.NANOSECONDS);
            if (line == null) {
                // Something keeps back what the gateway sends.
                unavailable = !heard;
                throw new UnreachableException(new IOException("the stream is silent"), false);
            }
            if (!line.equals(WAKE)) {
                if (undecodable) {
                    String detail = "a line of the stream is no JSON object";
                    throw new ProblemException(200, Json.object().put("detail", detail), Duration.ZERO);
                }
                heard = true;
                subscription.request(1);
                JsonNode event = Json.read(line.getBytes(StandardCharsets.UTF_8));
                // Half a line may come where a stream ends; one that others follow is whole.
                undecodable = event.isEmpty();
                JsonNode data = event.path("data");
                switch (event.path("event").asText()) {
                    case "message" -> {
                        return data;
                    }
                    case "problem" -> failed(data);
                    default -> {
                        // Keep-alives; a drain, which the end follows; and what later gateways send.
                    }
                }
            } else if (answer.isDone() && lines.isEmpty()) {
                throw ended();
            }
        }
        return null;
    }

    @Override
    public void close() {
        answer.cancel(true);
        Flow.Subscription open = subscription;
        if (open != null) {
            open.cancel();
        }
    }

    private void failed(JsonNode data) {
        ProblemException problem = new ProblemException(data.path("status").asInt(), data, Duration.ZERO);
        if (!problem.retryable()) {
            throw problem;
        }
        LOG.log(Level.WARNING, "the gateway cannot receive, and tries again: {0}", problem.getMessage());
    }

    private BabelgateException ended() {
        try {
            Client.answer(answer, Duration.ZERO);
        } catch (ProblemException problem) {
            // With 504 a proxy gives up on a stream that it keeps back.
            boolean offersNone = UNAVAILABLE.contains(problem.status()) || problem.code().equals("http_504");
            unavailable = offersNone && !problem.code().equals("queue_not_found");
            return problem;
        } catch (BabelgateException error) {
            return error;
        }
        unavailable = subscription == null;
        return new UnreachableException(new IOException("the stream has ended"), false);
    }

    /** Whatever is no stream is read whole. */
    private BodySubscriber<byte[]> body(HttpResponse.ResponseInfo head) {
        boolean streams = head.headers().firstValue("Content-Type").orElse("").startsWith(CONTENT_TYPE);
        return head.statusCode() == 200 && streams
                ? BodySubscribers.fromLineSubscriber(this, done -> new byte[0], StandardCharsets.UTF_8, "\n")
                : BodySubscribers.ofByteArray();
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
        subscription = given;
        given.request(1);
    }

    @Override
    public void onNext(String line) {
        lines.add(line);
    }

    @Override
    public void onError(Throwable error) {
        // The answer ends with it.
    }

    @Override
    public void onComplete() {
        // So does the answer.
    }
}
