<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * A batch on its way: the bytes of each entry, and its last result.
 *
 * @internal
 */
final class Batch
{
    /** A gateway takes 10,000 entries and 16 MiB by default. Smaller requests are repeated in smaller parts. */
    private const ENTRIES_PER_REQUEST = 1_000;
    private const BYTES_PER_REQUEST = 4_194_304;
    public bool $keysUnsupported = false;
    /** @var list<?string> */
    private array $keys;
    /** @var list<string> */
    private array $drafts;
    /** @var array<int, array<string, mixed>> */
    private array $results = [];
    /** @var list<int> */
    private array $pending;

    /** @param list<Message> $messages */
    public function __construct(
        private readonly string $queue,
        private readonly array $messages,
        bool $keyed,
        private readonly ?string $traceparent,
    ) {
        $own = fn (): ?string => $keyed ? Call::newKey() : null;
        $this->keys = array_map(fn (Message $message): ?string => $message->idempotencyKey ?? $own(), $messages);
        $this->drafts = array_map(fn (Message $message, ?string $key) => $message->draft($key), $messages, $this->keys);
        $this->pending = array_keys($messages);
    }

    /**
     * A call for each part of the entries that are not done, with their positions.
     *
     * @return \Generator<int, array{list<int>, Call}>
     */
    public function calls(): \Generator
    {
        $part = [];
        $size = 0;
        foreach ($this->pending as $index) {
            $bytes = strlen($this->drafts[$index]) + 1;
            $full = count($part) === self::ENTRIES_PER_REQUEST || $size + $bytes > self::BYTES_PER_REQUEST;
            if ($part !== [] && $full) {
                yield [$part, $this->call($part)];
                [$part, $size] = [[], 0];
            }
            $part[] = $index;
            $size += $bytes;
        }
        if ($part !== []) {
            yield [$part, $this->call($part)];
        }
    }

    /** @param list<int> $part */
    private function call(array $part): Call
    {
        $unlessWritten = false;
        $drafts = [];
        foreach ($part as $index) {
            $unlessWritten = $unlessWritten || $this->keys[$index] === null;
            $drafts[] = $this->drafts[$index];
        }
        $headers = Call::traced($this->traceparent);
        $path = Call::path($this->queue, 'messages:batch');
        return new Call($path, '[' . implode(',', $drafts) . ']', $headers, unlessWritten: $unlessWritten);
    }

    /**
     * Note the results of a part.
     *
     * @param list<int> $part
     * @param array<string, mixed> $answer
     */
    public function record(array $part, array $answer): void
    {
        foreach ($answer['results'] as $result) {
            $index = $part[$result['index']];
            $this->results[$index] = ['index' => $index] + $result;
        }
    }

    /** The error for which entries are to be sent again, and prepares that; null when all are done. */
    public function failure(): ?ProblemException
    {
        $this->pending = [];
        $failure = null;
        foreach ($this->results as $index => $result) {
            if ($result['status'] < 300) {
                continue;
            }
            $error = new ProblemException($result['status'], $result);
            $message = $this->messages[$index];
            $own = $message->idempotencyKey === null && $this->keys[$index] !== null;
            if ($own && $error->problemCode === Client::NEEDS_NO_KEY) {
                $this->keysUnsupported = true;
                $this->keys[$index] = null;
                $this->drafts[$index] = $message->draft(null);
            } elseif (!Attempts::repeats($error, $this->keys[$index] === null)) {
                continue;
            }
            $this->pending[] = $index;
            $failure = new ProblemException(503, ['retryable' => true] + $result);
        }
        return $failure;
    }

    /**
     * One result per message, in order.
     *
     * @return list<array<string, mixed>>
     */
    public function results(): array
    {
        ksort($this->results);
        return array_values($this->results);
    }
}
