<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * One open stream of messages. What it delivers waits in `messages` until a worker is idle.
 *
 * @internal
 */
final class MessageStream
{
    /** Three keep-alives of a gateway. */
    private const MOST_SILENCE_SECONDS = 45.0;
    private const MOST_LEVELS = 4096;
    /** How gateways without streams, and proxies that do not pass them on, answer; with 200 it is another page. */
    private const UNAVAILABLE = [200, 404, 405, 406, 501];
    /** An escape of half a surrogate pair. Escaped backslashes and whole pairs are passed over. */
    private const HALF_PAIR = '/\\\\(?:[^u]|ud[89ab][\da-f]{2}\\\\ud[c-f][\da-f]{2})(*SKIP)(*FAIL)|\\\\ud[89a-f][\da-f]{2}/i';
    /** @var list<array<string, mixed>> */
    public array $messages = [];
    /** Why the stream has ended; null while it is open. */
    public ?BabelgateException $failure = null;
    /** Whether it has ended as where there are no streams. */
    public bool $unavailable = false;
    /** Whether the gateway has sent anything, be it a keep-alive. */
    public bool $heard = false;
    private float $heardAt;
    private string $rest = '';
    private ?int $call;

    /** @param \Closure(string): void $log */
    public function __construct(private readonly Http $http, Call $call, private readonly \Closure $log)
    {
        $this->heardAt = Attempts::now();
        $this->call = $http->start($call, null, $this->ended(...), $this->received(...));
    }

    /** See whether the stream has been silent for too long. */
    public function check(): void
    {
        if ($this->failure === null && Attempts::now() - $this->heardAt > self::MOST_SILENCE_SECONDS) {
            // Something keeps back what the gateway sends.
            $this->unavailable = !$this->heard;
            $this->failure = new UnreachableException('The stream is silent.', false);
        }
    }

    /** The gateway takes back what is not settled. */
    public function close(): void
    {
        if ($this->call !== null) {
            $this->http->cancel($this->call);
            $this->call = null;
        }
    }

    private function received(string $part): void
    {
        $this->heard = true;
        $this->heardAt = Attempts::now();
        $lines = explode("\n", $part);
        $lines[0] = $this->rest . $lines[0];
        $this->rest = array_pop($lines);
        foreach ($lines as $line) {
            $event = self::decoded($line);
            if ($event === null) {
                $this->failure ??= new ProblemException(200, ['detail' => 'A line of the stream is no JSON object.']);
                return;
            }
            $data = $event['data'] ?? [];
            match ($event['event'] ?? null) {
                'message' => $this->messages[] = $data,
                'problem' => $this->failed(new ProblemException($data['status'] ?? 0, $data)),
                // Keep-alives; a drain, which the end follows; and what later gateways send.
                default => null,
            };
        }
    }

    /**
     * The JSON object; null if it is none. Half a surrogate pair, which PHP refuses, becomes U+FFFD.
     *
     * @return ?array<string, mixed>
     */
    private static function decoded(string $line): ?array
    {
        $event = json_decode($line, true, self::MOST_LEVELS)
            ?? json_decode(preg_replace(self::HALF_PAIR, '\ufffd', $line) ?? '', true, self::MOST_LEVELS);
        return is_array($event) ? $event : null;
    }

    private function failed(ProblemException $problem): void
    {
        if ($problem->retryable) {
            ($this->log)('the gateway cannot receive, and tries again: ' . $problem->getMessage());
        } else {
            $this->failure ??= $problem;
        }
    }

    /** @param array<string, mixed>|BabelgateException $answer */
    private function ended(array|BabelgateException $answer): void
    {
        $this->call = null;
        if ($answer instanceof ProblemException) {
            // A proxy gives up on a stream that it keeps back.
            $offersNone = in_array($answer->status, self::UNAVAILABLE, true) || $answer->problemCode === 'http_504';
            $this->unavailable = $offersNone && $answer->problemCode !== 'queue_not_found';
        } elseif (is_array($answer)) {
            $this->unavailable = $answer !== [];
            $answer = new UnreachableException('The stream has ended.', false);
        }
        $this->failure ??= $answer;
    }
}
