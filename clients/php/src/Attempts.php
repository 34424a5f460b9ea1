<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * The pauses between the attempts of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says. They
 * end `retrySeconds` after the first attempt.
 *
 * @internal
 */
final class Attempts
{
    private const LONGEST_PAUSE_SECONDS = 10.0;
    private float $pause = 0.1;
    private readonly float $deadline;

    public function __construct(private readonly bool $unlessWritten, float $retrySeconds)
    {
        $this->deadline = self::now() + $retrySeconds;
    }

    /**
     * Seconds until the next attempt.
     *
     * @throws BabelgateException the error itself if there is none
     */
    public function pauseAfter(BabelgateException $error): float
    {
        if (!self::repeats($error, $this->unlessWritten)) {
            throw $error;
        }
        $pause = $this->pause * (0.5 + random_int(0, 1000) / 2000);
        $this->pause = min($this->pause * 2, self::LONGEST_PAUSE_SECONDS);
        if ($error instanceof ProblemException) {
            $pause = max($pause, $error->retryAfterSeconds ?? 0);
        }
        if (self::now() + $pause > $this->deadline) {
            throw $error;
        }
        return $pause;
    }

    public static function repeats(BabelgateException $error, bool $unlessWritten): bool
    {
        if ($error instanceof UnreachableException) {
            return !$unlessWritten || !$error->outcomeUnknown;
        }
        if (!$error instanceof ProblemException) {
            return false;
        }
        if ($error->fromGateway) {
            return $error->retryable && (!$unlessWritten || in_array($error->status, [429, 503], true));
        }
        return !$unlessWritten && in_array($error->status, [408, 429, 502, 503, 504], true);
    }

    /** Seconds on a clock that nobody sets. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
