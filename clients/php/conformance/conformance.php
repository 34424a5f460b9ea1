<?php

// Produces, consumes and checks with the client. Prints one JSON object per line.
// Usage: conformance.php produce QUEUE PRODUCER COUNT | consume QUEUE LEASE_SECONDS CONCURRENCY [stream] | checks QUEUE
//        | properties QUEUE REFUSING | options QUEUE JSON | letters QUEUE | redrive QUEUE | refusals JSON

declare(strict_types=1);

require __DIR__ . '/autoload.php';

use Babelgate\Client\Client;
use Babelgate\Client\Delivery;
use Babelgate\Client\Generated\Api\QueuesApi;
use Babelgate\Client\LeaseLostException;
use Babelgate\Client\Message;
use Babelgate\Client\ProblemException;
use Babelgate\Client\Reject;
use Babelgate\Client\UnreachableException;

const JOB = 'urn:babel:conformance:made';
const TRACE_ID = '0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10';
const TRACEPARENT = '00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01';

// A warning is a defect.
set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    if (error_reporting() & $level) {
        throw new ErrorException($text, 0, $level, $file, $line);
    }
    return true;
});

function say(array $facts): void
{
    fwrite(STDOUT, json_encode($facts, JSON_THROW_ON_ERROR) . "\n");
}

function produce(string $queue, string $producer, int $count): void
{
    $client = new Client();
    for ($n = 0; $n < $count; $n += 2) {
        $receipt = $client->publish($queue, JOB, ['producer' => $producer, 'n' => $n]);
        say(['id' => $receipt->getId(), 'producer' => $producer, 'n' => $n]);
    }
    foreach (array_chunk(range(1, $count - 1, 2), 10) as $part) {
        $messages = array_map(fn (int $n) => new Message(JOB, ['producer' => $producer, 'n' => $n]), $part);
        foreach ($client->publishBatch($queue, $messages) as $index => $result) {
            if ($result->getStatus() !== 201) {
                throw new LogicException((string) $result);
            }
            say(['id' => $result->getId(), 'producer' => $producer, 'n' => $part[$index]]);
        }
    }
}

function consume(string $queue, float $leaseSeconds, int $concurrency, bool $stream): void
{
    $handle = static function (Delivery $delivery): void {
        $data = $delivery->data();
        usleep((int) (($data['sleep_seconds'] ?? 0) * 1e6));
        if ($delivery->leaseLost()) {
            return;
        }
        if ($data['reject'] ?? false) {
            throw new Reject('as the message says');
        }
        if ($delivery->attempts < ($data['fail_times'] ?? 0)) {
            throw new RuntimeException('as the message says');
        }
        $facts = ['producer' => $data['producer'], 'n' => $data['n'], 'attempts' => $delivery->attempts];
        say(['event' => 'handled', 'id' => $delivery->id()] + $facts);
    };
    $client = new Client();
    $options = ['concurrency' => $concurrency, 'leaseSeconds' => $leaseSeconds, 'graceSeconds' => 5, 'stream' => $stream];
    $consumer = $client->consumer($queue, $handle, ...$options);
    $consumer->run(signals: [SIGTERM]);
    say(['event' => 'stopped']);
}

/**
 * @template E of Throwable
 * @param class-string<E> $kind
 * @return E
 */
function caught(Closure $call, string $kind): Throwable
{
    try {
        $call();
    } catch (Throwable $error) {
        return $error instanceof $kind ? $error : throw $error;
    }
    throw new LogicException("no $kind");
}

function checks(string $queue): void
{
    $client = new Client();
    $published = $client->publish($queue, JOB, ['n' => 1], traceId: TRACE_ID, traceparent: TRACEPARENT);
    $once = fn () => $client->publish($queue, JOB, ['n' => 2], idempotencyKey: 'once-' . $published->getId())->getId();
    $replayed = $once() === $once();
    $batch = [new Message(JOB, []), new Message('', ['n' => 4]), new Message(JOB, ['n' => 5])];
    $statuses = array_map(fn ($result) => $result->getStatus(), $client->publishBatch($queue, $batch));
    [$first, $second, $empty, $last] = $client->receive($queue, maxMessages: 10, waitSeconds: 10, leaseSeconds: 30);
    if ($empty->data() !== []) {
        throw new LogicException('An empty array is no empty object.');
    }
    $extended = $client->extend($first, 300)->getResults()[0]->getLeaseExpiresAt();
    $client->nack($first, delaySeconds: 0, error: 'no', exception: 'NoError');
    [$again] = $client->receive($queue, waitSeconds: 10, leaseSeconds: 30);
    $settled = $client->ack($again, $second, $empty, $last)->getSettled();
    $nonsense = new Delivery($queue, 'nonsense', 0, 0, false, [], []);
    $problem = caught(fn () => $client->ack($nonsense), ProblemException::class);
    $client->publish($queue, JOB, ['n' => 6]);
    [$late] = $client->receive($queue, waitSeconds: 10, leaseSeconds: 1);
    usleep(1_200_000);
    [$taken] = $client->receive($queue, waitSeconds: 20, leaseSeconds: 30);
    $lost = caught(fn () => $client->ack($late), LeaseLostException::class);
    $client->ack($taken);
    $stats = (new QueuesApi(config: $client->configuration()))->getQueue($queue)->getStats();
    if ($stats->getDepth() !== 0) {
        throw new LogicException('The generated client finds messages: ' . $stats);
    }
    $closed = new Client('http://127.0.0.1:9', retrySeconds: 0);
    $unreachable = caught(fn () => $closed->publish($queue, JOB, []), UnreachableException::class);
    say([
        'published' => [
            'id' => $published->getId(),
            'queue' => $published->getQueue(),
            'trace_id' => $published->getTraceId(),
        ],
        'replayed' => $replayed,
        'batch' => $statuses,
        'received' => [
            'id' => $first->id(),
            'job' => $first->job(),
            'trace_id' => $first->traceId(),
            'data' => $first->data(),
            'attempts' => $first->attempts,
            'redelivered' => $first->redelivered,
            'traceparent' => $first->traceparent(),
        ],
        'extended' => $extended > $first->leaseExpiresAt,
        'nacked_attempts' => $again->attempts,
        'acked' => $settled,
        'problem' => [
            'status' => $problem->status,
            'code' => $problem->problemCode,
            'retryable' => $problem->retryable,
        ],
        'lease_lost' => $lost->problemCode,
        'not_found_or_unreachable' => $unreachable->outcomeUnknown ? 'unknown' : $unreachable::class,
    ]);
}

/** `queue` takes broker properties, and `refusing` takes none. */
function properties(string $queue, string $refusing): void
{
    $client = new Client();
    $received = static function (string $name) use ($client): object {
        [$delivery] = $client->receive($name, waitSeconds: 20, leaseSeconds: 30);
        $client->ack($delivery);
        return (object) $delivery->brokerProperties;
    };
    $single = ['TimeToLive' => 3600, 'ReplyTo' => 'replies'];
    $batch = [new Message(JOB, ['n' => 2], brokerProperties: ['TimeToLive' => 86400.5, 'To' => 'warehouse'])];
    $client->publish($queue, JOB, ['n' => 1], brokerProperties: $single);
    $facts = ['published' => $received($queue)];
    [$accepted] = $client->publishBatch($queue, $batch);
    if ($accepted->getStatus() !== 201) {
        throw new LogicException((string) $accepted);
    }
    $facts['batch'] = $received($queue);
    $refused = fn () => $client->publish($refusing, JOB, ['n' => 3], brokerProperties: $single);
    $problem = caught($refused, ProblemException::class);
    $facts['refused'] = ['status' => $problem->status, 'code' => $problem->problemCode];
    [$result] = $client->publishBatch($refusing, $batch);
    $facts['refused_in_batch'] = ['status' => $result->getStatus(), 'code' => $result->getCode()];
    $client->publish($refusing, JOB, ['n' => 5]);
    say($facts + ['without' => $received($refusing)]);
}

/** Publish without options, then with all that are `given`, alone and in a batch. */
function options(string $queue, array $given): void
{
    $client = new Client();
    $client->publish($queue, JOB, ['n' => 0]);
    $options = [];
    foreach ($given as $name => $value) {
        $options[lcfirst(str_replace('_', '', ucwords($name, '_')))] = $value;
    }
    $client->publish($queue, JOB, ['n' => 1], ...$options);
    $traceparent = $options['traceparent'];
    unset($options['traceparent']);
    $options['idempotencyKey'] .= '-batch';
    $results = $client->publishBatch($queue, [new Message(JOB, ['n' => 2], ...$options)], $traceparent);
    say(['batch' => array_map(fn ($result) => $result->getStatus(), $results)]);
}

/** `queue` has five dead letters. */
function letters(string $queue): void
{
    $dead = (new Client())->deadLetters($queue);
    $page = $dead->list(limit: 2);
    $rest = $dead->list(limit: 10, cursor: $page->getNextCursor());
    $ofJob = fn (string $job) => count($dead->list(job: $job, reason: 'failed')->getDeadLetters());
    $letters = [...$page->getDeadLetters(), ...$rest->getDeadLetters()];
    $ids = array_map(fn ($letter) => $letter->getLetterId(), $letters);
    $facts = [
        'pages' => [count($page->getDeadLetters()), count($rest->getDeadLetters()), $rest->getNextCursor()],
        'of_job' => [$ofJob(JOB), $ofJob('urn:another')],
    ];
    $shown = $dead->show($ids[0]);
    $facts['shown'] = ['letter_id' => $shown->getLetterId() === $ids[0], 'error' => $shown->getError()];
    $dry = $dead->redrive(job: JOB, limit: 4, dryRun: true);
    $facts['dry'] = [$dry->getMatched(), $dry->getRedriven()];
    $facts['redriven'] = $dead->redrive(ids: [$ids[0]])->getRedriven();
    $one = $dead->redriveOne($ids[1], data: ['n' => 100]);
    $facts['one'] = ['to_queue' => $one->getToQueue() === $queue, 'edited' => $one->getEdited()];
    $removal = $dead->delete($ids[2], 'nonsense');
    $facts['deleted'] = [$removal->getRemoved(), $removal->getFailed()];
    $counted = $dead->purge(dryRun: true);
    $facts['counted'] = [$counted->getMatched(), $counted->getRemoved()];
    $facts['purged'] = $dead->purge()->getRemoved();
    $facts['gone'] = caught(fn () => $dead->show($ids[0]), ProblemException::class)->problemCode;
    say($facts);
}

/** The gateway breaks the connection. */
function redrive(string $queue): void
{
    $error = caught(fn () => (new Client())->deadLetters($queue)->redrive(), UnreachableException::class);
    say(['outcome_unknown' => $error->outcomeUnknown]);
}

/** What is said of each URL, token and traceparent that is `given`; null if nothing is. */
function refusals(array $given): void
{
    $said = static function (Closure $attempt): ?string {
        try {
            $attempt();
            return null;
        } catch (InvalidArgumentException $error) {
            return $error->getMessage();
        }
    };
    $client = new Client();
    $traced = fn (string $each) => $said(fn () => $client->publish('q', JOB, [], traceparent: $each));
    say([
        'urls' => array_map(fn (string $url) => $said(fn () => new Client($url)), $given['urls']),
        'tokens' => array_map(fn (string $token) => $said(fn () => new Client(token: $token)), $given['tokens']),
        'traceparents' => array_map($traced, $given['traceparents']),
    ]);
}

function decoded(string $text): array
{
    return json_decode($text, true, flags: JSON_THROW_ON_ERROR);
}

[, $command, $queue] = $argv;
match ($command) {
    'produce' => produce($queue, $argv[3], (int) $argv[4]),
    'consume' => consume($queue, (float) $argv[3], (int) $argv[4], isset($argv[5])),
    'checks' => checks($queue),
    'properties' => properties($queue, $argv[3]),
    'options' => options($queue, decoded($argv[3])),
    'letters' => letters($queue),
    'redrive' => redrive($queue),
    'refusals' => refusals(decoded($queue)),
};
