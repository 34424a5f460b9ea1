<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * One POST. The same bytes are sent each time, as an idempotency key requires.
 *
 * @internal
 */
final class Call
{
    public const VERSION = '0.2.0';
    private const MOST_LEVELS = 4096;

    /**
     * @param array<string, string> $headers
     * @param float $waitSeconds how long the gateway may wait before it answers, beyond the usual time-out
     * @param bool $unlessWritten repeat only if it is certain that nothing was written; else the call has the same
     *     effect twice as once
     */
    public function __construct(
        public readonly string $path,
        public readonly string $body,
        public readonly array $headers = [],
        public readonly float $waitSeconds = 0,
        public readonly bool $unlessWritten = false,
    ) {
    }

    public static function publish(string $queue, Message $message, ?string $key, ?string $traceparent): self
    {
        $headers = $key === null ? [] : ['Idempotency-Key' => self::quoted($key)];
        $headers += $traceparent === null ? [] : ['traceparent' => $traceparent];
        return new self(self::path($queue, ''), $message->draft(null), $headers, unlessWritten: $key === null);
    }

    public static function receive(string $queue, int $maxMessages, float $waitSeconds, ?float $leaseSeconds): self
    {
        $parameters = ['max_messages' => $maxMessages, 'wait_seconds' => $waitSeconds];
        $parameters += $leaseSeconds === null ? [] : ['lease_seconds' => $leaseSeconds];
        return new self(self::path($queue, ':receive'), self::json($parameters), waitSeconds: $waitSeconds);
    }

    /**
     * @param string $action ack, nack, reject or extend
     * @param list<string> $tokens
     * @param array<string, mixed> $parameters
     */
    public static function settle(string $queue, string $action, array $tokens, array $parameters = []): self
    {
        $given = array_filter($parameters, fn (mixed $value): bool => $value !== null);
        return new self(self::path($queue, ":$action"), self::json(['ack_tokens' => $tokens] + $given));
    }

    public static function path(string $queue, string $action): string
    {
        return '/queues/' . rawurlencode($queue) . '/messages' . $action;
    }

    public static function newKey(): string
    {
        return bin2hex(random_bytes(16));
    }

    /** @throws \JsonException */
    public static function json(mixed $value): string
    {
        $flags = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION;
        return json_encode($value, $flags | JSON_THROW_ON_ERROR, self::MOST_LEVELS);
    }

    /** `key` as a structured string of HTTP. */
    private static function quoted(string $key): string
    {
        if (!preg_match('/^[ -~]{1,255}$/D', $key)) {
            throw new \InvalidArgumentException('an idempotency key has 1 to 255 printable ASCII characters');
        }
        return '"' . addcslashes($key, '\\"') . '"';
    }
}
