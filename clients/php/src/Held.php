<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * A delivery on its way.
 *
 * @internal
 */
final class Held
{
    /** Nothing is to be settled any more. */
    public bool $over = false;
    /** The settle that follows the handler, and its attempts. */
    public ?Call $settle = null;
    public ?Attempts $attempts = null;
    /** When the next attempt is due; null while one is on its way. */
    public ?float $settleAt = null;

    /** @param float $deadline the time of Attempts::now() at which the lease ends; it began a lease before */
    public function __construct(
        public readonly string $ackToken,
        public readonly string $id,
        public float $deadline,
        public ?Worker $worker,
    ) {
    }
}
