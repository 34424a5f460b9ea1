package io.babelgate.client;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** The pauses of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says. */
final class Attempts {
    private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(10);

    private final boolean unlessWritten;
    private final long started = System.nanoTime();
    private final Duration retryFor;
    private Duration pause = FIRST_PAUSE;

    /**
     * @param unlessWritten repeat only if it is certain that nothing was written; else the call has the same effect
     *     twice as once
     * @param retryFor until the last attempt; null: for ever
     */
    Attempts(boolean unlessWritten, Duration retryFor) {
        this.unlessWritten = unlessWritten;
        this.retryFor = retryFor;
    }

    /** The pause until the next attempt. Throws {@code error} if there is none. */
    Duration pauseAfter(BabelgateException error) {
        if (!repeats(error, unlessWritten)) {
            throw error;
        }
        double jitter = 0.5 + ThreadLocalRandom.current().nextDouble() / 2;
        Duration next = Duration.ofNanos((long) (pause.toNanos() * jitter));
        Duration doubled = pause.multipliedBy(2);
        pause = doubled.compareTo(LONGEST_PAUSE) < 0 ? doubled : LONGEST_PAUSE;
        if (error instanceof ProblemException problem && problem.retryAfter().compareTo(next) > 0) {
            next = problem.retryAfter();
        }
        if (retryFor != null && System.nanoTime() - started + next.toNanos() > retryFor.toNanos()) {
            throw error;
        }
        return next;
    }

    /** Whether a call that ended with {@code error} may be made again. */
    static boolean repeats(BabelgateException error, boolean unlessWritten) {
        if (error instanceof UnreachableException unreachable) {
            return !unreachable.interrupted() && (!unlessWritten || !unreachable.outcomeUnknown());
        }
        ProblemException problem = (ProblemException) error;
        boolean nothingWritten = problem.status() == 429 || problem.status() == 503;
        return problem.retryable() && (!unlessWritten || (nothingWritten && !problem.code().startsWith("http_")));
    }
}
