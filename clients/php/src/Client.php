<?php

declare(strict_types=1);

namespace Babelgate\Client;

use Babelgate\Client\Generated\Configuration;
use Babelgate\Client\Generated\Model\EntryResult;
use Babelgate\Client\Generated\Model\Receipt;
use Babelgate\Client\Generated\Model\SettleOutcome;
use Babelgate\Client\Generated\ObjectSerializer;

/** A client of one gateway. Its methods throw ProblemException and UnreachableException. */
final class Client
{
    /** The code with which a queue refuses idempotency keys. */
    public const NEEDS_NO_KEY = 'idempotency_unsupported';
    private const LOCAL_URL = 'http://127.0.0.1:8080';
    /** @internal */
    public readonly Http $http;
    public readonly string $url;
    private readonly ?string $token;
    /** @var array<string, true> */
    private array $withoutKeys = [];

    /**
     * @param ?string $url the gateway; default: BABELGATE_URL, else http://127.0.0.1:8080
     * @param ?string $token the bearer token; default: BABELGATE_TOKEN
     * @param float $timeoutSeconds for one answer, beyond the time that a receive may wait
     * @param float $retrySeconds for how long a failed call is repeated; 0: never
     * @throws \InvalidArgumentException for a URL or a token that cannot be one; its text does not show the token
     */
    public function __construct(
        ?string $url = null,
        #[\SensitiveParameter] ?string $token = null,
        public readonly float $timeoutSeconds = 30,
        public readonly float $retrySeconds = 60,
    ) {
        $this->url = Call::gatewayUrl($url ?? (getenv('BABELGATE_URL') ?: self::LOCAL_URL));
        $this->token = $token ?? (getenv('BABELGATE_TOKEN') ?: null);
        if ($this->token !== null) {
            Call::checkToken($this->token);
        }
        $this->http = new Http($this->url, $this->token, $timeoutSeconds);
    }

    /**
     * Publish one message; returns when the broker has stored it. See Message for the options.
     *
     * A failed call is repeated with the same idempotency key, so the message is written once. On a queue that keeps no
     * keys, it is repeated only if nothing was written.
     *
     * @param array<string, mixed>|object $data
     * @param ?array<string, string> $headers
     * @param ?array<string, mixed> $brokerProperties
     * @param ?string $traceparent the W3C trace context of the caller
     * @param ?array<string, mixed> $ext
     */
    public function publish(
        string $queue,
        string $job,
        array|object $data,
        ?string $traceId = null,
        ?float $delaySeconds = null,
        ?string $orderingKey = null,
        ?array $headers = null,
        ?array $brokerProperties = null,
        ?string $idempotencyKey = null,
        ?string $traceparent = null,
        string $lang = Message::LANG,
        ?array $ext = null,
        ?int $deliverAt = null,
        ?float $ttlSeconds = null,
        ?int $priority = null,
    ): Receipt {
        $message = new Message(
            $job,
            $data,
            $traceId,
            $delaySeconds,
            $orderingKey,
            $headers,
            $brokerProperties,
            $idempotencyKey,
            $lang,
            $ext,
            $deliverAt,
            $ttlSeconds,
            $priority,
        );
        $key = $idempotencyKey ?? (isset($this->withoutKeys[$queue]) ? null : Call::newKey());
        try {
            $answer = $this->call(Call::publish($queue, $message, $key, $traceparent));
        } catch (ProblemException $error) {
            if ($idempotencyKey !== null || $error->problemCode !== self::NEEDS_NO_KEY) {
                throw $error;
            }
            $this->withoutKeys[$queue] = true;
            $answer = $this->call(Call::publish($queue, $message, null, $traceparent));
        }
        return self::model($answer, Receipt::class);
    }

    /**
     * Publish messages in order. Only entries that failed are sent again.
     *
     * @param list<Message> $messages
     * @return list<EntryResult> one per message, in order
     */
    public function publishBatch(string $queue, array $messages, ?string $traceparent = null): array
    {
        $batch = new Batch($queue, $messages, !isset($this->withoutKeys[$queue]), $traceparent);
        $attempts = new Attempts(false, $this->retrySeconds);
        while (true) {
            foreach ($batch->calls() as [$part, $call]) {
                $batch->record($part, $this->call($call));
            }
            $failure = $batch->failure();
            if ($batch->keysUnsupported) {
                $this->withoutKeys[$queue] = true;
            }
            try {
                $pause = $failure === null ? null : $attempts->pauseAfter($failure);
            } catch (ProblemException) {
                $pause = null;
            }
            if ($pause === null) {
                return array_map(fn (array $result) => self::model($result, EntryResult::class), $batch->results());
            }
            usleep((int) ($pause * 1e6));
        }
    }

    /**
     * Lease messages; none when there are none within `waitSeconds` (0 to 30).
     *
     * @param int $maxMessages 1 to 100
     * @param ?float $leaseSeconds default: that of the queue
     * @return list<Delivery>
     */
    public function receive(
        string $queue,
        int $maxMessages = 1,
        float $waitSeconds = 0,
        ?float $leaseSeconds = null,
    ): array {
        $answer = $this->call(Call::receive($queue, $maxMessages, $waitSeconds, $leaseSeconds));
        return array_map(fn (array $received) => Delivery::from($queue, $received), $answer['messages']);
    }

    /** Remove messages of one queue. A single delivery whose lease is over throws LeaseLostException. */
    public function ack(Delivery ...$deliveries): SettleOutcome
    {
        return $this->settle('ack', $deliveries);
    }

    /**
     * Deliver messages again.
     *
     * @param Delivery|list<Delivery> $deliveries
     * @param ?float $delaySeconds default: the backoff of the queue
     * @param bool $failed false: they were not attempted, so no attempt is counted
     */
    public function nack(
        Delivery|array $deliveries,
        ?float $delaySeconds = null,
        ?string $error = null,
        ?string $exception = null,
        bool $failed = true,
    ): SettleOutcome {
        $parameters = ['delay_seconds' => $delaySeconds, 'error' => self::failure($error, $exception)];
        return $this->settle('nack', $deliveries, $parameters + ($failed ? [] : ['failed' => false]));
    }

    /**
     * Dead-letter messages.
     *
     * @param Delivery|list<Delivery> $deliveries
     */
    public function reject(Delivery|array $deliveries, ?string $error = null, ?string $exception = null): SettleOutcome
    {
        return $this->settle('reject', $deliveries, ['error' => self::failure($error, $exception)]);
    }

    /**
     * Prolong leases: they end `leaseSeconds` from now.
     *
     * @param Delivery|list<Delivery> $deliveries
     */
    public function extend(Delivery|array $deliveries, float $leaseSeconds): SettleOutcome
    {
        return $this->settle('extend', $deliveries, ['lease_seconds' => $leaseSeconds]);
    }

    /**
     * A consumer of `queue`. It starts with its method `run`.
     *
     * @param callable(Delivery): mixed $handler
     * @param int $concurrency most messages at a time, each in a process of its own; no more are leased
     * @param float $leaseSeconds the lease, which is prolonged for as long as the handler runs
     * @param float $waitSeconds of the long poll, at most 30
     * @param float $graceSeconds how long a stop waits for running handlers
     * @param ?\Closure(string): void $log hears of failed handlers and of a gateway that is away; default: error_log
     * @param bool $stream one open stream delivers the messages, instead of long polls; these follow where the gateway
     *     offers no streams
     */
    public function consumer(
        string $queue,
        callable $handler,
        int $concurrency = 10,
        float $leaseSeconds = 60,
        float $waitSeconds = 20,
        float $graceSeconds = 30,
        ?\Closure $log = null,
        bool $stream = false,
    ): Consumer {
        $log ??= static function (string $text): void {
            error_log($text);
        };
        $handler = $handler(...);
        return new Consumer(
            $this,
            $queue,
            $handler,
            $concurrency,
            $leaseSeconds,
            $waitSeconds,
            $graceSeconds,
            $log,
            $stream,
        );
    }

    /** The dead letters of `queue`: list, show, redrive, delete and purge them. */
    public function deadLetters(string $queue): DeadLetters
    {
        return new DeadLetters($this, $queue);
    }

    /** For the generated classes in Generated\Api, which offer the whole API: `new QueuesApi(config: …)`. */
    public function configuration(): Configuration
    {
        return (new Configuration())->setHost($this->url)->setAccessToken($this->token ?? '');
    }

    /**
     * @internal
     * @return array<string, mixed>
     */
    public function call(Call $call, ?float $retrySeconds = null): array
    {
        $attempts = new Attempts($call->unlessWritten, $retrySeconds ?? $this->retrySeconds);
        while (true) {
            try {
                return $this->http->send($call);
            } catch (BabelgateException $error) {
                usleep((int) ($attempts->pauseAfter($error) * 1e6));
            }
        }
    }

    /**
     * @param Delivery|array<Delivery> $deliveries
     * @param array<string, mixed> $parameters
     */
    private function settle(string $action, Delivery|array $deliveries, array $parameters = []): SettleOutcome
    {
        $deliveries = is_array($deliveries) ? array_values($deliveries) : [$deliveries];
        if ($deliveries === []) {
            throw new \InvalidArgumentException("$action needs a delivery");
        }
        $tokens = array_map(fn (Delivery $delivery): string => $delivery->ackToken, $deliveries);
        $answer = $this->call(Call::settle($deliveries[0]->queue, $action, $tokens, $parameters));
        return self::model($answer, SettleOutcome::class);
    }

    /** @return ?array<string, string> */
    private static function failure(?string $message, ?string $exception): ?array
    {
        $given = ['message' => $message, 'exception' => $exception];
        return array_filter($given, fn (?string $value): bool => $value !== null) ?: null;
    }

    /**
     * @internal
     * @template T of object
     * @param array<string, mixed> $answer
     * @param class-string<T> $class
     * @return T
     */
    public static function model(array $answer, string $class): object
    {
        return ObjectSerializer::deserialize($answer, '\\' . $class);
    }
}
