package io.babelgate.client;

import java.time.Duration;

/**
 * Options of a consumer; {@link #DEFAULTS} and the methods of its copies.
 *
 * @param concurrency most messages at a time, 1 to 1,000; no more are leased
 * @param lease prolonged for as long as the handler runs
 * @param longPoll how long a receive waits, at most 30 s
 * @param grace how long a stop waits for running handlers
 * @param stream whether one open stream delivers the messages, instead of long polls; these follow where the gateway
 *     offers no streams
 */
public record ConsumerOptions(int concurrency, Duration lease, Duration longPoll, Duration grace, boolean stream) {
    /** 10 messages at a time, a lease of 60 s, a long poll of 20 s, a grace of 30 s, and no stream. */
    public static final ConsumerOptions DEFAULTS =
            new ConsumerOptions(10, Duration.ofSeconds(60), Duration.ofSeconds(20), Duration.ofSeconds(30), false);

    /** One request prolongs all leases, and takes so many ack tokens. */
    private static final int MOST_CONCURRENCY = 1_000;

    /** Checks the values. */
    public ConsumerOptions {
        if (concurrency < 1 || concurrency > MOST_CONCURRENCY) {
            throw new IllegalArgumentException("concurrency must be from 1 to " + MOST_CONCURRENCY);
        }
    }

    /** These, without a stream. */
    public ConsumerOptions(int concurrency, Duration lease, Duration longPoll, Duration grace) {
        this(concurrency, lease, longPoll, grace, false);
    }

    /** With another concurrency. */
    public ConsumerOptions concurrency(int concurrency) {
        return new ConsumerOptions(concurrency, lease, longPoll, grace, stream);
    }

    /** With another lease. */
    public ConsumerOptions lease(Duration lease) {
        return new ConsumerOptions(concurrency, lease, longPoll, grace, stream);
    }

    /** With another long poll. */
    public ConsumerOptions longPoll(Duration longPoll) {
        return new ConsumerOptions(concurrency, lease, longPoll, grace, stream);
    }

    /** With another grace. */
    public ConsumerOptions grace(Duration grace) {
        return new ConsumerOptions(concurrency, lease, longPoll, grace, stream);
    }

    /** With a stream, or without. */
    public ConsumerOptions stream(boolean stream) {
        return new ConsumerOptions(concurrency, lease, longPoll, grace, stream);
    }
}
