package io.babelgate.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.System.Logger.Level;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** Runs a handler for the messages of a queue, several at a time, until it is stopped. */
public final class Consumer implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("io.babelgate.client");
    private static final int MOST_PER_RECEIVE = 100;
    private static final int MOST_REFUSALS = 8;
    private static final Duration GIVE_BACK_WITHIN = Duration.ofSeconds(5);

    /** How long a stop waits for an answer that is on its way: else its messages stay leased for nobody. */
    private static final Duration ARRIVE_WITHIN = Duration.ofMillis(250);

    private final Client client;
    private final String queue;
    private final MessageHandler handler;
    private final ConsumerOptions options;
    private final Semaphore free;
    private final Map<String, Held> held = new ConcurrentHashMap<>();
    private final CompletableFuture<Void> stopped = new CompletableFuture<>();
    private final AtomicBoolean started = new AtomicBoolean();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final AtomicInteger threads = new AtomicInteger();
    private volatile MessageStream stream;
    private volatile long streamEndedAt = System.nanoTime();

    Consumer(Client client, String queue, MessageHandler handler, ConsumerOptions options) {
        this.client = client;
        this.queue = queue;
        this.handler = handler;
        this.options = options;
        this.free = new Semaphore(options.concurrency());
    }

    /**
     * Consume until {@link #stop}, or until this thread is interrupted. A gateway that is away or overloaded is waited
     * for. What is held is finished or given back at the end. A consumer runs once.
     *
     * @throws ProblemException when the gateway refuses to receive, such as for an unknown queue or a missing right
     */
    public void run() {
        if (!started.compareAndSet(false, true)) {
            throw new IllegalStateException("A consumer runs once.");
        }
        ExecutorService handlers = Executors.newCachedThreadPool(this::thread);
        ScheduledExecutorService keeper = Executors.newSingleThreadScheduledExecutor(this::thread);
        long every = Math.max(options.lease().toNanos() / 12, 1);
        keeper.scheduleWithFixedDelay(this::keepLeases, every, every, TimeUnit.NANOSECONDS);
        try {
            if (!options.stream() || !stream(handlers)) {
                receive(handlers);
            }
        } finally {
            finish(handlers);
            closeStream();
            keeper.shutdownNow();
            ended.countDown();
        }
    }

    /** Receive no more, and end {@link #run} when the running handlers have ended, or after the grace. Does not wait. */
    public void stop() {
        stopped.complete(null);
        free.release();
        MessageStream open = stream;
        if (open != null) {
            open.wake();
        }
    }

    /** Stop, and wait until {@link #run} has ended. */
    @Override
    public void close() {
        stop();
        try {
            if (started.get()) {
                ended.await();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void receive(ExecutorService handlers) {
        Attempts attempts = new Attempts(false, null);
        while (true) {
            try {
                free.acquire();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return;
            }
            if (stopped.isDone()) {
                return;
            }
            int wanted = 1;
            while (wanted < MOST_PER_RECEIVE && free.tryAcquire()) {
                wanted++;
            }
            List<Delivery> deliveries = List.of();
            try {
                Call call = Call.receive(queue, wanted, options.longPoll(), options.lease());
                deliveries = Client.deliveries(queue, arrived(client.send(call)));
                attempts = new Attempts(false, null);
            } catch (BabelgateException error) {
                if (stopped.isDone() || Thread.currentThread().isInterrupted()) {
                    return;
                }
                Duration pause = attempts.pauseAfter(error);
                LOG.log(Level.WARNING, "receive from {0} failed, next in {1}: {2}", queue, pause, error.getMessage());
                awaitStop(pause);
            } finally {
                free.release(wanted - deliveries.size());
            }
            deliveries.forEach(delivery -> start(delivery, handlers));
        }
    }

    /** Start the handlers of what streams deliver, until a stop. False: there are none, and long polls are to follow. */
    private boolean stream(ExecutorService handlers) {
        Attempts attempts = new Attempts(false, null);
        // Answers as of a gateway without streams that are waited out: none before a stream has worked.
        int refusalsLeft = 0;
        Call call = Call.stream(queue, options.concurrency(), options.lease());
        while (!stopped.isDone()) {
            MessageStream open = new MessageStream(client, call);
            stream = open;
            try {
                while (!stopped.isDone()) {
                    JsonNode message = open.next();
                    if (message != null) {
                        free.acquire();
                        if (!stopped.isDone()) {
                            start(new Delivery(queue, message), handlers);
                        }
                    }
                }
                // It ends when the handlers have ended. What was not handled goes back then.
                return true;
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return true;
            } catch (BabelgateException error) {
                closeStream();
                if (stopped.isDone()) {
                    return true;
                }
                if (open.wasHeard()) {
                    attempts = new Attempts(false, null);
                    refusalsLeft = MOST_REFUSALS;
                }
                BabelgateException failure = error;
                if (open.isUnavailable() && refusalsLeft == 0) {
                    LOG.log(Level.WARNING, "The gateway offers no streams: the consumer goes on with long polls.");
                    return false;
                } else if (open.isUnavailable()) {
                    // What has worked comes back, such as after an update of the gateway.
                    refusalsLeft--;
                    failure = new UnreachableException(error, false);
                }
                Duration pause = attempts.pauseAfter(failure);
                LOG.log(Level.WARNING, "stream of {0} failed, next in {1}: {2}", queue, pause, failure.getMessage());
                awaitStop(pause);
            }
        }
        return true;
    }

    /**
     * Close the stream. The gateway takes back what is not settled, unless it was killed: these leases are to be asked
     * about now.
     */
    private void closeStream() {
        MessageStream open = stream;
        if (open != null) {
            open.close();
            stream = null;
            streamEndedAt = System.nanoTime();
        }
    }

    private void start(Delivery delivery, ExecutorService handlers) {
        Held each = new Held(delivery, System.nanoTime() + options.lease().toNanos());
        held.put(delivery.ackToken(), each);
        each.running = handlers.submit(() -> handle(each));
    }

    /** The answer, waited for until a stop, and a moment longer. */
    private JsonNode arrived(CompletableFuture<HttpResponse<byte[]>> sent) {
        Duration most = client.timeout().plus(options.longPoll());
        try {
            CompletableFuture.anyOf(sent, stopped).get(most.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException | TimeoutException error) {
            return Client.answer(sent, Duration.ZERO);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return Client.answer(sent, ARRIVE_WITHIN);
    }

    private void awaitStop(Duration most) {
        try {
            stopped.get(most.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException error) {
            // It goes on.
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            stop();
        }
    }

    private void handle(Held each) {
        try {
            String action = "ack";
            ObjectNode parameters = Json.object();
            try {
                handler.handle(each.delivery);
            } catch (RejectException error) {
                action = "reject";
                parameters = Failure.parameters(Failure.of(error));
            } catch (RetryException error) {
                action = "nack";
                parameters = new NackOptions(error.delay(), Failure.of(error), true).parameters();
            } catch (Throwable error) {
                if (each.isInterrupted()) {
                    return; // its lease is lost, or the stop gives it back
                }
                LOG.log(Level.WARNING, "the handler of " + queue + " failed for " + each.delivery.id(), error);
                action = "nack";
                parameters = Failure.parameters(Failure.of(error));
            }
            if (each.settles()) {
                Thread.interrupted(); // what the handler left must not end the settle
                settle(each, Call.settle(action, List.of(each.delivery), parameters), action);
            }
        } finally {
            if (!each.isLeft()) {
                held.remove(each.delivery.ackToken(), each);
            }
            free.release();
        }
    }

    private void settle(Held each, Call call, String action) {
        // While the lease lives, and it is prolonged until this ends, the message is delivered to nobody else.
        Duration left = Duration.ofNanos(each.deadline - System.nanoTime());
        try {
            client.call(call, left.compareTo(client.timeout()) > 0 ? left : client.timeout());
        } catch (BabelgateException error) {
            LOG.log(Level.WARNING, "no {0} of {1} on {2}: {3}", action, each.delivery.id(), queue, error.getMessage());
        }
    }

    /** Prolong each lease of which a third is over, or that began before the end of a stream. */
    private void keepLeases() {
        long now = System.nanoTime();
        long lease = options.lease().toNanos();
        List<Held> due = new ArrayList<>();
        List<Delivery> deliveries = new ArrayList<>();
        for (Held each : held.values()) {
            if (each.deadline - now <= 0) {
                // A gateway refuses to settle after the end of a lease.
                lose(each);
            } else if (!each.delivery.leaseLost()
                    && (each.deadline - now < lease * 2 / 3 || each.deadline - lease - streamEndedAt < 0)) {
                due.add(each);
                deliveries.add(each.delivery);
            }
        }
        if (due.isEmpty()) {
            return;
        }
        Call call = Call.settle(
                "extend", deliveries, Json.object().put("lease_seconds", Json.seconds(options.lease())));
        Map<Integer, String> codes = new HashMap<>();
        long asked = System.nanoTime();
        try {
            // An answer that comes too late must not hinder the next attempt.
            long most = Math.max(lease / 3, TimeUnit.SECONDS.toNanos(1));
            for (JsonNode result : client.once(call, Duration.ofNanos(most)).path("results")) {
                codes.put(result.path("index").asInt(), result.path("code").asText(""));
            }
        } catch (LeaseLostException error) {
            codes.put(0, LeaseLostException.CODE);
        } catch (RuntimeException error) {
            LOG.log(Level.WARNING, "{0} leases of {1} were not prolonged: {2}", due.size(), queue, error.getMessage());
            return;
        }
        for (int index = 0; index < due.size(); index++) {
            String code = codes.getOrDefault(index, "");
            if (code.equals(LeaseLostException.CODE)) {
                lose(due.get(index));
            } else if (code.isEmpty()) {
                due.get(index).deadline = asked + lease;
            }
        }
    }

    private void lose(Held each) {
        if (each.loses()) {
            LOG.log(Level.WARNING, "the lease of {0} on {1} is lost", each.delivery.id(), queue);
        }
    }

    /** Wait for what runs, then give back what does not end. */
    private void finish(ExecutorService handlers) {
        handlers.shutdown();
        boolean interrupted = Thread.interrupted();
        try {
            if (!handlers.awaitTermination(options.grace().toNanos(), TimeUnit.NANOSECONDS)) {
                held.values().forEach(Held::interrupt);
                // A handler that ends its own way now may still ack.
                handlers.awaitTermination(1, TimeUnit.SECONDS);
            }
        } catch (InterruptedException error) {
            interrupted = true;
        }
        List<Delivery> left = new ArrayList<>();
        held.values().forEach(each -> {
            if (each.gives()) {
                left.add(each.delivery);
            }
        });
        if (!left.isEmpty()) {
            try {
                client.call(Call.settle("nack", left, NackOptions.NOT_ATTEMPTED.parameters()), GIVE_BACK_WITHIN);
            } catch (BabelgateException error) {
                String text = "{0} messages of {1} were not given back; their leases will end: {2}";
                LOG.log(Level.WARNING, text, left.size(), queue, error.getMessage());
            }
        }
        handlers.shutdownNow();
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private Thread thread(Runnable work) {
        Thread thread = new Thread(work, "babelgate-" + queue + "-" + threads.incrementAndGet());
        thread.setDaemon(true);
        return thread;
    }

    /**
     * A delivery on its way, and the {@code System.nanoTime} at which its lease ends; it began a lease before. Exactly one
     * settles it.
     */
    private static final class Held {
        private final Delivery delivery;
        private volatile long deadline;
        private volatile Future<?> running;
        private boolean interrupted;
        private boolean settling;
        private boolean given;

        Held(Delivery delivery, long deadline) {
            this.delivery = delivery;
            this.deadline = deadline;
        }

        /** The handler has ended: whether its outcome is to be settled. */
        synchronized boolean settles() {
            settling = !given && !delivery.leaseLost();
            return settling;
        }

        /** The stop gives the message back, unless it is settled or lost. */
        synchronized boolean gives() {
            given = !settling && !delivery.leaseLost();
            return given;
        }

        /** Whether this is news to a running handler. */
        synchronized boolean loses() {
            if (settling || given || delivery.leaseLost()) {
                return false;
            }
            delivery.loseLease();
            interrupt();
            return true;
        }

        synchronized void interrupt() {
            if (!settling && running != null) {
                interrupted = true;
                running.cancel(true);
            }
        }

        synchronized boolean isInterrupted() {
            return interrupted;
        }

        /** The handler was interrupted, and did not settle: the stop gives it back. */
        synchronized boolean isLeft() {
            return interrupted && !settling && !delivery.leaseLost();
        }
    }
}
