<?php

declare(strict_types=1);

namespace Babelgate\Client;

use Babelgate\Client\Generated\Model\DeadLetter;
use Babelgate\Client\Generated\Model\DeadLetterPage;
use Babelgate\Client\Generated\Model\PurgeResult;
use Babelgate\Client\Generated\Model\RedriveResult;
use Babelgate\Client\Generated\Model\RedrivenLetter;
use Babelgate\Client\Generated\Model\Removal;

/**
 * The dead letters of one queue. Methods throw ProblemException and UnreachableException.
 *
 * A redrive, a deletion and a purge are repeated only if they changed nothing. Where a method takes conditions, it means
 * the dead letters that meet all of them; `before` and `after` are the time of dead-lettering in Unix milliseconds, and
 * `reason` is failed, unknown_urn or poison.
 */
final class DeadLetters
{
    /** How long a gateway may redrive before it answers. */
    private const REDRIVE_SECONDS = 60;

    /** @internal */
    public function __construct(private readonly Client $client, private readonly string $queue)
    {
    }

    /**
     * A page of dead letters, oldest first.
     *
     * @param ?int $limit 1 to 1,000
     * @param ?string $cursor `nextCursor` of the page before
     */
    public function list(
        ?string $job = null,
        ?string $reason = null,
        ?int $before = null,
        ?int $after = null,
        ?string $traceId = null,
        ?int $limit = null,
        ?string $cursor = null,
    ): DeadLetterPage {
        $conditions = self::conditions($job, $reason, $before, $after, $traceId);
        $query = self::query($conditions + ['limit' => $limit, 'cursor' => $cursor]);
        return $this->send("dead-letters$query", null, DeadLetterPage::class);
    }

    /** One dead letter. `cursor`: where the search begins; default: at the oldest. */
    public function show(string $letterId, ?string $cursor = null): DeadLetter
    {
        $query = self::query(['cursor' => $cursor]);
        return $this->send('dead-letters/' . rawurlencode($letterId) . $query, null, DeadLetter::class);
    }

    /**
     * Send dead letters back: each is published, and removed when the broker has stored the message.
     *
     * @param ?list<string> $ids the `letterId` of 1 to 1,000, instead of conditions
     * @param ?int $limit default: 1,000
     * @param ?string $toQueue default: their own queue
     * @param bool $dryRun only count
     * @param bool $force also records without a valid envelope, to another queue
     * @param ?float $perSecond the highest rate, at which `limit` letters take at most 60 s
     */
    public function redrive(
        ?array $ids = null,
        ?string $job = null,
        ?string $reason = null,
        ?int $before = null,
        ?int $after = null,
        ?string $traceId = null,
        ?int $limit = null,
        ?string $toQueue = null,
        bool $dryRun = false,
        bool $force = false,
        ?float $perSecond = null,
    ): RedriveResult {
        $order = [
            'ids' => $ids,
            'filter' => self::conditions($job, $reason, $before, $after, $traceId) ?: null,
            'limit' => $limit,
            'to_queue' => $toQueue,
            'dry_run' => $dryRun,
            'force' => $force,
            'per_second' => $perSecond,
        ];
        return $this->send('dead-letters:redrive', $order, RedriveResult::class, self::REDRIVE_SECONDS);
    }

    /**
     * Send one dead letter back, edited or unchanged.
     *
     * @param null|array<string, mixed>|object $data the new payload
     * @param null|array<string, mixed>|object $body the whole new message, instead
     * @param ?string $toQueue default: its own queue
     * @param bool $force also a record without a valid envelope, to another queue
     * @param ?string $cursor where the search begins; default: at the oldest
     */
    public function redriveOne(
        string $letterId,
        null|array|object $data = null,
        null|array|object $body = null,
        ?string $toQueue = null,
        bool $force = false,
        ?string $cursor = null,
    ): RedrivenLetter {
        // An empty array would be a JSON array.
        $edit = array_map(fn (array|object $each) => (object) $each, self::given(['data' => $data, 'body' => $body]));
        $order = ['edit' => $edit ?: null, 'to_queue' => $toQueue, 'force' => $force];
        $path = 'dead-letters/' . rawurlencode($letterId) . ':redrive' . self::query(['cursor' => $cursor]);
        return $this->send($path, $order, RedrivenLetter::class);
    }

    /** Remove 1 to 1,000 dead letters; one result for each. */
    public function delete(string ...$letterIds): Removal
    {
        return $this->send('dead-letters:delete', ['ids' => array_values($letterIds)], Removal::class);
    }

    /** Remove all dead letters. `dryRun`: only count them. */
    public function purge(bool $dryRun = false): PurgeResult
    {
        return $this->send('dead-letters:purge', ['dry_run' => $dryRun], PurgeResult::class);
    }

    /**
     * @template T of object
     * @param ?array<string, mixed> $order null: a GET
     * @param class-string<T> $class
     * @return T
     */
    private function send(string $action, ?array $order, string $class, float $waitSeconds = 0): object
    {
        $body = $order === null ? null : Call::json((object) self::given($order));
        $path = Call::path($this->queue, $action);
        $answer = $this->client->call(new Call($path, $body, [], $waitSeconds, unlessWritten: $order !== null));
        return Client::model($answer, $class);
    }

    /** @return array<string, mixed> */
    private static function conditions(?string $job, ?string $reason, ?int $before, ?int $after, ?string $traceId): array
    {
        $given = ['job' => $job, 'reason' => $reason, 'before' => $before, 'after' => $after, 'trace_id' => $traceId];
        return self::given($given);
    }

    /** @param array<string, mixed> $parameters */
    private static function query(array $parameters): string
    {
        $text = http_build_query(self::given($parameters), encoding_type: PHP_QUERY_RFC3986);
        return $text === '' ? '' : "?$text";
    }

    /**
     * @param array<string, mixed> $members
     * @return array<string, mixed>
     */
    private static function given(array $members): array
    {
        return array_filter($members, fn (mixed $value): bool => $value !== null);
    }
}
