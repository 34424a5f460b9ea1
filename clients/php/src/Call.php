<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * One request. The same bytes are sent each time, as an idempotency key requires.
 *
 * @internal
 */
final class Call
{
    public const VERSION = '0.2.0';
    private const MOST_LEVELS = 4096;
    private const VISIBLE = '/^[!-~]+$/D';
    private const GATEWAY_URL = '~^https?://[^\x00-\x20\x7f/?#:][^\x00-\x20\x7f/?#]*(/[^\x00-\x20\x7f?#]*)?$~Di';

    /**
     * @param ?string $body that of a POST; null: a GET
     * @param array<string, string> $headers
     * @param float $waitSeconds how long the gateway may wait before it answers, beyond the usual time-out
     * @param bool $unlessWritten repeat only if it is certain that nothing was written; else the call has the same
     *     effect twice as once
     */
    public function __construct(
        public readonly string $path,
        public readonly ?string $body,
        public readonly array $headers = [],
        public readonly float $waitSeconds = 0,
        public readonly bool $unlessWritten = false,
    ) {
    }

    public static function publish(string $queue, Message $message, ?string $key, ?string $traceparent): self
    {
        $headers = self::traced($traceparent) + ($key === null ? [] : ['Idempotency-Key' => self::quoted($key)]);
        return new self(self::path($queue, 'messages'), $message->draft(null), $headers, unlessWritten: $key === null);
    }

    public static function receive(string $queue, int $maxMessages, float $waitSeconds, ?float $leaseSeconds): self
    {
        $parameters = ['max_messages' => $maxMessages, 'wait_seconds' => $waitSeconds];
        $parameters += $leaseSeconds === null ? [] : ['lease_seconds' => $leaseSeconds];
        return new self(self::path($queue, 'messages:receive'), self::json($parameters), waitSeconds: $waitSeconds);
    }

    public static function stream(string $queue, int $maxInFlight, float $leaseSeconds): self
    {
        $query = http_build_query(['max_in_flight' => $maxInFlight, 'lease_seconds' => $leaseSeconds]);
        return new self(self::path($queue, "messages:stream?$query"), null, ['Accept' => 'application/x-ndjson']);
    }

    /**
     * @param string $action ack, nack, reject or extend
     * @param list<string> $tokens
     * @param array<string, mixed> $parameters
     */
    public static function settle(string $queue, string $action, array $tokens, array $parameters = []): self
    {
        $given = array_filter($parameters, fn (mixed $value): bool => $value !== null);
        return new self(self::path($queue, "messages:$action"), self::json(['ack_tokens' => $tokens] + $given));
    }

    public static function path(string $queue, string $action): string
    {
        return '/queues/' . rawurlencode($queue) . '/' . $action;
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

    /**
     * The header of a trace context, if there is one.
     *
     * @return array<string, string>
     */
    public static function traced(?string $traceparent): array
    {
        if ($traceparent === null) {
            return [];
        }
        if (!preg_match(self::VISIBLE, $traceparent)) {
            throw new \InvalidArgumentException('a traceparent is visible ASCII, without spaces and line ends');
        }
        return ['traceparent' => $traceparent];
    }

    /** `url` without slashes at its end, if it can be that of a gateway. */
    public static function gatewayUrl(string $url): string
    {
        if (!preg_match(self::GATEWAY_URL, $url)) {
            throw new \InvalidArgumentException(
                'the URL of the gateway begins with http:// or https:// and names a host, such as http://127.0.0.1:8080,'
                . ' without spaces, line ends, query and fragment'
            );
        }
        return rtrim($url, '/');
    }

    /** Refuses a token that no header can carry, without showing it. */
    public static function checkToken(#[\SensitiveParameter] string $token): void
    {
        if (!preg_match(self::VISIBLE, $token)) {
            throw new \InvalidArgumentException(
                'the token is visible ASCII, without spaces and line ends; one that was read from a file often ends in a'
                . ' line feed'
            );
        }
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
