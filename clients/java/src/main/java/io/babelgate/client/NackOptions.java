package io.babelgate.client;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;

/**
 * How messages are delivered again.
 *
 * @param delay null: the backoff of the queue
 * @param failure why they were not handled; null: not told
 * @param attempted false: give them back at once, without counting an attempt; the others must be null then
 */
public record NackOptions(Duration delay, Failure failure, boolean attempted) {
    /** After the backoff of the queue. */
    public static final NackOptions FAILED = new NackOptions(null, null, true);

    /** At once, without counting an attempt. */
    public static final NackOptions NOT_ATTEMPTED = new NackOptions(null, null, false);

    ObjectNode parameters() {
        ObjectNode parameters = Failure.parameters(failure);
        if (delay != null) {
            parameters.put("delay_seconds", Json.seconds(delay));
        }
        return attempted ? parameters : parameters.put("failed", false);
    }
}
