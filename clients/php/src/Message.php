<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** A message to publish. */
final class Message
{
    /** What an envelope calls the language of this client. */
    public const LANG = 'php';

    /**
     * @param string $job its kind, by convention a URN
     * @param array<string, mixed>|object $data its payload, a JSON object; an empty array in it is a JSON array
     * @param ?string $traceId by convention a UUID; the gateway makes one
     * @param ?float $delaySeconds seconds until the message can be received
     * @param ?string $orderingKey where the broker supports it
     * @param ?array<string, string> $headers native headers, where the broker supports them
     * @param ?array<string, mixed> $brokerProperties by their names in the API, such as `TimeToLive`, where the broker
     *     supports them
     * @param ?string $idempotencyKey 1 to 255 printable ASCII characters; the client makes one
     * @param string $lang the language of the producer, one of those of the envelope
     * @param ?array<string, mixed> $ext extensions by vendor, which become `meta.ext` of the envelope
     * @param ?int $deliverAt Unix milliseconds before which the message cannot be received; excludes `delaySeconds`
     * @param ?float $ttlSeconds seconds after which the message is dead-lettered if it was not delivered
     * @param ?int $priority 0 to 9, where the broker supports it
     */
    public function __construct(
        public readonly string $job,
        public readonly array|object $data,
        public readonly ?string $traceId = null,
        public readonly ?float $delaySeconds = null,
        public readonly ?string $orderingKey = null,
        public readonly ?array $headers = null,
        public readonly ?array $brokerProperties = null,
        public readonly ?string $idempotencyKey = null,
        public readonly string $lang = self::LANG,
        public readonly ?array $ext = null,
        public readonly ?int $deliverAt = null,
        public readonly ?float $ttlSeconds = null,
        public readonly ?int $priority = null,
    ) {
        if (is_array($data) && $data !== [] && array_is_list($data)) {
            throw new \InvalidArgumentException('data is a list, and a message holds a JSON object');
        }
    }

    /**
     * The body, with the idempotency `key` if there is one.
     *
     * @internal
     * @throws \JsonException
     */
    public function draft(?string $key): string
    {
        $members = [
            'job' => $this->job,
            // An empty array would be a JSON array.
            'data' => (object) $this->data,
            'trace_id' => $this->traceId,
            'meta' => ['lang' => $this->lang] + ($this->ext === null ? [] : ['ext' => (object) $this->ext]),
            'delay_seconds' => $this->delaySeconds,
            'deliver_at' => $this->deliverAt,
            'ttl_seconds' => $this->ttlSeconds,
            'priority' => $this->priority,
            'ordering_key' => $this->orderingKey,
            'headers' => $this->headers === null ? null : (object) $this->headers,
            'broker_properties' => $this->brokerProperties === null ? null : (object) $this->brokerProperties,
            'idempotency_key' => $key,
        ];
        return Call::json(array_filter($members, fn (mixed $value): bool => $value !== null));
    }
}
