<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** A received message, leased until `leaseExpiresAt` (Unix milliseconds). */
final class Delivery
{
    private bool $leaseLost = false;

    /**
     * @param int $attempts earlier deliveries that ended without an ack
     * @param array<string, string> $headers
     * @param array<string, mixed> $envelope the whole message
     * @param array<string, mixed> $brokerProperties by their names in the API, such as `SequenceNumber`; empty if the
     *     broker has none
     */
    public function __construct(
        public readonly string $queue,
        public readonly string $ackToken,
        public readonly int $leaseExpiresAt,
        public readonly int $attempts,
        public readonly bool $redelivered,
        public readonly array $headers,
        public readonly array $envelope,
        public readonly array $brokerProperties = [],
    ) {
    }

    /**
     * @internal
     * @param array<string, mixed> $received
     */
    public static function from(string $queue, array $received): self
    {
        return new self(
            $queue,
            $received['ack_token'],
            $received['lease_expires_at'],
            $received['attempts'],
            $received['redelivered'],
            $received['headers'],
            $received['envelope'],
            $received['broker_properties'] ?? [],
        );
    }

    /** `meta.id`: use it to detect duplicates. */
    public function id(): ?string
    {
        return $this->envelope['meta']['id'] ?? null;
    }

    /** The kind of the message. */
    public function job(): ?string
    {
        return $this->envelope['job'] ?? $this->envelope['urn'] ?? null;
    }

    /** @return array<string, mixed> */
    public function data(): array
    {
        return $this->envelope['data'];
    }

    /** The id that all messages of one story share. */
    public function traceId(): string
    {
        return $this->envelope['trace_id'];
    }

    /** The W3C trace context that travelled with the message. */
    public function traceparent(): ?string
    {
        return $this->headers['traceparent'] ?? null;
    }

    /** Whether the consumer knows that the lease is over; then somebody else may handle the message. */
    public function leaseLost(): bool
    {
        return $this->leaseLost;
    }

    /** @internal */
    public function loseLease(): void
    {
        $this->leaseLost = true;
    }
}
