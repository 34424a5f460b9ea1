<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** Runs a handler for the messages of a queue, several at a time, each in a process of its own, until it is stopped. */
final class Consumer
{
    private const MOST_PER_RECEIVE = 100;
    /** One request prolongs all leases, and takes so many ack tokens. */
    private const MOST_CONCURRENCY = 1_000;
    /** How long to wait for the network while a handler may end. */
    private const BUSY_SECONDS = 0.01;
    /** After a stop, for the answer of a receive that is on its way: else its messages stay leased for nobody. */
    private const ARRIVE_WITHIN_SECONDS = 0.25;
    private const IDLE_SECONDS = 1.0;
    private const MOST_REFUSALS = 8;
    private readonly Http $http;
    private bool $stopping = false;
    private ?BabelgateException $refused = null;
    /** @var array<int, Worker> */
    private array $idle = [];
    /** @var array<int, Held> */
    private array $held = [];
    private ?int $receiving = null;
    private ?MessageStream $stream = null;
    /** How many answers as of a gateway without streams are waited out: none before a stream has worked. */
    private int $refusalsLeft = 0;
    private float $streamEndedAt = -INF;
    private ?int $extending = null;
    private float $receiveAt = 0;
    private float $extendAt = 0;
    private Attempts $attempts;

    /** @internal see Client::consumer */
    public function __construct(
        private readonly Client $client,
        private readonly string $queue,
        private readonly \Closure $handler,
        private readonly int $concurrency,
        private readonly float $leaseSeconds,
        private readonly float $waitSeconds,
        private readonly float $graceSeconds,
        private readonly \Closure $log,
        private bool $streams,
    ) {
        if ($concurrency < 1 || $concurrency > self::MOST_CONCURRENCY) {
            throw new \InvalidArgumentException('concurrency must be from 1 to ' . self::MOST_CONCURRENCY);
        }
        if (!function_exists('pcntl_fork') || !function_exists('posix_kill')) {
            throw new \LogicException('The consumer needs the extensions pcntl and posix. Without them, use receive.');
        }
        $this->http = $client->http;
        $this->attempts = new Attempts(false, INF);
    }

    /**
     * Consume until `stop`, or until one of `signals` arrives, such as SIGTERM.
     *
     * A gateway that is away or overloaded is waited for. What is held is finished or given back at the end.
     *
     * @param list<int> $signals
     * @throws ProblemException when the gateway refuses to receive, such as for an unknown queue or a missing right
     */
    public function run(array $signals = []): void
    {
        pcntl_async_signals(true);
        $before = [];
        foreach ($signals as $signal) {
            $before[$signal] = pcntl_signal_get_handler($signal);
            pcntl_signal($signal, $this->stop(...));
        }
        try {
            while (count($this->idle) < $this->concurrency) {
                $this->startWorker();
            }
            while (!$this->stopping) {
                $this->turn();
            }
            $this->finish();
        } finally {
            $this->stream?->close();
            foreach ($this->held as $held) {
                $held->worker?->end(kill: true);
            }
            foreach ($this->idle as $worker) {
                $worker->end(kill: false);
            }
            [$this->held, $this->idle] = [[], []];
            foreach ($before as $signal => $handler) {
                pcntl_signal($signal, $handler);
            }
        }
        if ($this->refused !== null) {
            throw $this->refused;
        }
    }

    /** Receive no more, and end `run` when the running handlers have ended, or after the grace. */
    public function stop(): void
    {
        $this->stopping = true;
    }

    private function startWorker(): void
    {
        $others = $this->idle;
        foreach ($this->held as $held) {
            $others[] = $held->worker;
        }
        $worker = Worker::start($this->queue, $this->handler, array_filter($others));
        $this->idle[get_resource_id($worker->socket)] = $worker;
    }

    /** Do what is due, and wait a moment for what happens next. */
    private function turn(): void
    {
        if ($this->streams) {
            $this->stream();
        } else {
            $this->receive();
        }
        $this->keepLeases();
        foreach ($this->held as $held) {
            $this->settle($held);
        }
        $busy = array_filter($this->held, fn (Held $held): bool => $held->worker !== null);
        $online = $this->http->isBusy();
        if ($online && $this->stream !== null && $busy !== [] && count($busy) >= $this->concurrency) {
            // The stream delivers nothing until a handler ends: that is what to wait for.
            $this->http->poll(0);
            $online = false;
        } elseif ($online) {
            $this->http->poll($this->held === [] && !$this->stopping ? self::IDLE_SECONDS : self::BUSY_SECONDS);
        }
        $sockets = array_map(fn (Held $held) => $held->worker->socket, $busy);
        if ($sockets !== []) {
            $none = [];
            // A signal interrupts this with a warning.
            if (@stream_select($sockets, $none, $none, 0, $online ? 0 : (int) (self::BUSY_SECONDS * 1e6)) > 0) {
                foreach (array_keys($sockets) as $key) {
                    $this->collect($this->held[$key]);
                }
            }
        } elseif (!$online) {
            usleep((int) (self::BUSY_SECONDS * 1e6));
        }
    }

    private function receive(): void
    {
        $free = $this->concurrency - count($this->held);
        if ($this->receiving !== null || $this->stopping || $free < 1 || Attempts::now() < $this->receiveAt) {
            return;
        }
        $most = min($free, self::MOST_PER_RECEIVE);
        $call = Call::receive($this->queue, $most, $this->waitSeconds, $this->leaseSeconds);
        $done = function (array|BabelgateException $answer): void {
            $this->receiving = null;
            if (is_array($answer)) {
                $this->attempts = new Attempts(false, INF);
                foreach ($answer['messages'] as $message) {
                    $this->hand($message);
                }
                return;
            }
            $this->pauseAfter($answer);
        };
        $this->receiving = $this->http->start($call, null, $done);
    }

    /** Keep a stream open, and hand on what it delivers. After a stop it delivers no more, and is open until the end. */
    private function stream(): void
    {
        if ($this->stream === null) {
            if (!$this->stopping && Attempts::now() >= $this->receiveAt) {
                $call = Call::stream($this->queue, $this->concurrency, $this->leaseSeconds);
                $this->stream = new MessageStream($this->http, $call, $this->log(...));
            }
            return;
        }
        $this->stream->check();
        $failure = $this->stream->failure;
        if ($failure === null) {
            while (!$this->stopping && $this->idle !== [] && $this->stream->messages !== []) {
                $this->hand(array_shift($this->stream->messages));
            }
            return;
        }
        if ($this->stream->heard) {
            $this->attempts = new Attempts(false, INF);
            $this->refusalsLeft = self::MOST_REFUSALS;
        }
        if ($this->stream->unavailable && $this->refusalsLeft === 0) {
            $this->streams = false;
            $this->log('The gateway offers no streams: the consumer goes on with long polls.');
        } elseif (!$this->stopping) {
            if ($this->stream->unavailable) {
                // What has worked comes back, such as after an update of the gateway.
                $this->refusalsLeft--;
                $failure = new UnreachableException('No stream was opened: ' . $failure->getMessage(), false);
            }
            $this->pauseAfter($failure);
        }
        $this->stream->close();
        $this->stream = null;
        // The gateway takes back what is not settled, unless it was killed: these leases are to be asked about now.
        $this->streamEndedAt = Attempts::now();
    }

    /** Receive again later, or not at all when the gateway refuses to. */
    private function pauseAfter(BabelgateException $failure): void
    {
        try {
            $pause = $this->attempts->pauseAfter($failure);
        } catch (BabelgateException $refused) {
            $this->refused = $refused;
            $this->stopping = true;
            return;
        }
        $this->receiveAt = Attempts::now() + $pause;
        $this->log(sprintf('receive failed, next in %.1f s: %s', $pause, $failure->getMessage()));
    }

    /**
     * Give a message to an idle worker.
     *
     * @param array<string, mixed> $message
     */
    private function hand(array $message): void
    {
        if ($this->idle === []) {
            $this->startWorker();
        }
        $worker = array_shift($this->idle);
        $id = $message['envelope']['meta']['id'] ?? '';
        $this->held[] = new Held($message['ack_token'], $id, Attempts::now() + $this->leaseSeconds, $worker);
        $worker->hand(Call::json($message));
    }

    /** Take the outcome of a handler. */
    private function collect(Held $held): void
    {
        $worker = $held->worker;
        $held->worker = null;
        $outcome = $worker->outcome();
        if ($outcome === null) {
            $worker->end(kill: true);
            $this->startWorker();
            $text = 'The process of the handler ended.';
            $outcome = ['nack', ['error' => ['message' => $text]], $text];
        } else {
            $this->idle[get_resource_id($worker->socket)] = $worker;
        }
        [$action, $parameters, $log] = $outcome;
        if ($log !== null) {
            $this->log("the handler failed for $held->id: $log");
        }
        $held->settle = Call::settle($this->queue, $action, [$held->ackToken], $parameters);
        $held->attempts = new Attempts(false, INF);
        $held->settleAt = 0;
    }

    /** Send the settle that is due. While the lease lives, the message is delivered to nobody else. */
    private function settle(Held $held): void
    {
        if ($held->over && $held->worker === null) {
            $this->forget($held);
            return;
        }
        if ($held->settleAt === null || Attempts::now() < $held->settleAt) {
            return;
        }
        $held->settleAt = null;
        $this->http->start($held->settle, null, function (array|BabelgateException $answer) use ($held): void {
            if (is_array($answer)) {
                $this->forget($held);
                return;
            }
            try {
                $held->settleAt = Attempts::now() + $held->attempts->pauseAfter($answer);
            } catch (BabelgateException $error) {
                $this->log("$held->id was not settled: " . $error->getMessage());
                $this->forget($held);
            }
        });
    }

    /** Prolong each lease of which a third is over, or that began before the end of a stream. */
    private function keepLeases(): void
    {
        $now = Attempts::now();
        $dueBefore = max($now - $this->leaseSeconds / 3, $this->streamEndedAt);
        $due = [];
        foreach ($this->held as $held) {
            if (!$held->over && $held->deadline <= $now) {
                // A gateway refuses to settle after the end of a lease.
                $this->lose($held);
            } elseif (!$held->over && $held->deadline - $this->leaseSeconds < $dueBefore) {
                $due[] = $held;
            }
        }
        if ($due === [] || $this->extending !== null || $now < $this->extendAt) {
            return;
        }
        $this->extendAt = $now + $this->leaseSeconds / 12;
        $tokens = array_map(fn (Held $held): string => $held->ackToken, $due);
        $call = Call::settle($this->queue, 'extend', $tokens, ['lease_seconds' => $this->leaseSeconds]);
        $done = function (array|BabelgateException $answer) use ($due, $now): void {
            $this->extending = null;
            if ($answer instanceof LeaseLostException) {
                $this->lose($due[0]);
            } elseif ($answer instanceof BabelgateException) {
                $this->log(count($due) . ' leases were not prolonged: ' . $answer->getMessage());
            } else {
                foreach ($answer['results'] as $result) {
                    $held = $due[$result['index']];
                    if (($result['code'] ?? null) === 'lease_lost') {
                        $this->lose($held);
                    } elseif (!isset($result['code'])) {
                        $held->deadline = $now + $this->leaseSeconds;
                    }
                }
            }
        };
        // An answer that comes too late must not hinder the next attempt.
        $this->extending = $this->http->start($call, max($this->leaseSeconds / 3, 1), $done);
    }

    private function lose(Held $held): void
    {
        $held->over = true;
        if ($held->worker !== null) {
            $this->log("the lease of $held->id is lost");
            $held->worker->loseLease();
        }
    }

    private function forget(Held $held): void
    {
        $key = array_search($held, $this->held, true);
        if ($key !== false) {
            unset($this->held[$key]);
        }
    }

    /** Wait for what runs, then give back what does not end. */
    private function finish(): void
    {
        $late = Attempts::now() + self::ARRIVE_WITHIN_SECONDS;
        while ($this->receiving !== null && Attempts::now() < $late) {
            $this->turn();
        }
        if ($this->receiving !== null) {
            $this->http->cancel($this->receiving);
        }
        $end = Attempts::now() + $this->graceSeconds;
        while ($this->held !== [] && Attempts::now() < $end) {
            $this->turn();
        }
        $tokens = [];
        foreach ($this->held as $held) {
            if ($held->worker !== null && !$held->over) {
                $held->worker->end(kill: true);
                $held->worker = null;
                $tokens[] = $held->ackToken;
            }
        }
        if ($tokens === []) {
            return;
        }
        try {
            $this->client->call(Call::settle($this->queue, 'nack', $tokens, ['failed' => false]), 5);
        } catch (BabelgateException $error) {
            $this->log(count($tokens) . ' messages were not given back; their leases end: ' . $error->getMessage());
        }
    }

    private function log(string $text): void
    {
        ($this->log)("babelgate: $this->queue: $text");
    }
}
