<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * Sends calls to a gateway, one at a time or several at once.
 *
 * @internal
 */
final class Http
{
    private const CONNECT_SECONDS = 10;
    private const MOST_LEVELS = 4096;
    private \CurlMultiHandle $multi;
    private int $owner;
    /** @var array<int, array{\CurlHandle, \Closure}> */
    private array $running = [];
    /** @var list<mixed> */
    private array $ofParent = [];

    public function __construct(
        public readonly string $url,
        private readonly ?string $token,
        private readonly float $timeoutSeconds,
    ) {
        $this->open();
    }

    /**
     * The JSON of the answer.
     *
     * @return array<string, mixed>
     * @throws BabelgateException
     */
    public function send(Call $call): array
    {
        $answered = null;
        $this->start($call, $this->timeoutSeconds, function (array|BabelgateException $answer) use (&$answered): void {
            $answered = $answer;
        });
        while ($answered === null) {
            $this->poll(1);
        }
        if ($answered instanceof BabelgateException) {
            throw $answered;
        }
        return $answered;
    }

    /**
     * Send `call`; `poll` hands its answer to `done`, and that of a stream in parts to `received`, without a time-out.
     *
     * @param \Closure(array<string, mixed>|BabelgateException): void $done
     * @param ?\Closure(string): void $received
     * @return int for `cancel`
     */
    public function start(Call $call, ?float $timeoutSeconds, \Closure $done, ?\Closure $received = null): int
    {
        if ($this->owner !== getmypid()) {
            // Two processes must not write to one connection. Closing it here would end it for the other.
            $this->ofParent[] = [$this->multi, $this->running];
            $this->open();
        }
        $handle = curl_init($this->url . $call->path);
        $headers = $call->headers + ($call->body === null ? [] : ['Content-Type' => 'application/json']) + [
            'User-Agent' => 'babelgate-php/' . Call::VERSION,
            // curl would wait for "100 Continue" before it sends a large body.
            'Expect' => '',
        ];
        if ($this->token !== null) {
            $headers['Authorization'] = "Bearer $this->token";
        }
        $seconds = $timeoutSeconds ?? $this->timeoutSeconds;
        // A POST if there is a body, or else a GET.
        curl_setopt_array($handle, ($call->body === null ? [] : [CURLOPT_POSTFIELDS => $call->body]) + [
            CURLOPT_HTTPHEADER => array_map(fn ($name, $value) => "$name: $value", array_keys($headers), $headers),
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_CONNECTTIMEOUT_MS => (int) (min($seconds, self::CONNECT_SECONDS) * 1000),
            CURLOPT_TIMEOUT_MS => (int) (($seconds + $call->waitSeconds) * 1000),
            // Where a kept connection was closed meanwhile, curl sends the request again on its own.
            CURLOPT_FRESH_CONNECT => $call->unlessWritten,
        ]);
        $body = null;
        if ($received !== null) {
            $body = '';
            curl_setopt($handle, CURLOPT_TIMEOUT_MS, 0);
            // A kept connection may be open in workers too, and so outlive its end here.
            curl_setopt($handle, CURLOPT_FRESH_CONNECT, true);
            curl_setopt($handle, CURLOPT_FORBID_REUSE, true);
            $write = static function (\CurlHandle $handle, string $part) use (&$body, $received): int {
                if (self::streams($handle)) {
                    $received($part);
                } else {
                    $body .= $part;
                }
                return strlen($part);
            };
            curl_setopt($handle, CURLOPT_WRITEFUNCTION, $write);
        }
        curl_multi_add_handle($this->multi, $handle);
        $id = spl_object_id($handle);
        $this->running[$id] = [$handle, function () use ($handle, $done, &$body): void {
            $done(self::read($handle, $body ?? curl_multi_getcontent($handle) ?? ''));
        }];
        return $id;
    }

    /** Forget a call; its connection is closed. */
    public function cancel(int $id): void
    {
        [$handle] = $this->running[$id];
        unset($this->running[$id]);
        curl_multi_remove_handle($this->multi, $handle);
    }

    /** Whether calls are on their way. */
    public function isBusy(): bool
    {
        return $this->running !== [];
    }

    /** Wait up to `seconds` for the network, and report what was answered. */
    public function poll(float $seconds): void
    {
        curl_multi_exec($this->multi, $active);
        if ($active && curl_multi_select($this->multi, $seconds) === -1) {
            usleep(1000);
        }
        curl_multi_exec($this->multi, $active);
        while (($message = curl_multi_info_read($this->multi)) !== false) {
            $id = spl_object_id($message['handle']);
            [$handle, $done] = $this->running[$id];
            unset($this->running[$id]);
            curl_multi_remove_handle($this->multi, $handle);
            $done();
        }
    }

    private function open(): void
    {
        $this->multi = curl_multi_init();
        $this->owner = getmypid();
        $this->running = [];
    }

    /** Whether what comes is a stream, and not another answer. */
    private static function streams(\CurlHandle $handle): bool
    {
        $type = (string) curl_getinfo($handle, CURLINFO_CONTENT_TYPE);
        return curl_getinfo($handle, CURLINFO_RESPONSE_CODE) === 200 && str_starts_with($type, 'application/x-ndjson');
    }

    /** @return array<string, mixed>|BabelgateException */
    private static function read(\CurlHandle $handle, string $body): array|BabelgateException
    {
        if (curl_errno($handle) !== 0) {
            $sent = curl_getinfo($handle, CURLINFO_REQUEST_SIZE) > 0;
            return new UnreachableException('No gateway answered: ' . curl_error($handle) . '.', $sent);
        }
        if (self::streams($handle)) {
            return [];
        }
        $status = curl_getinfo($handle, CURLINFO_RESPONSE_CODE);
        $read = json_decode($body, true, self::MOST_LEVELS);
        if ($status >= 200 && $status < 300 && is_array($read)) {
            return $read;
        }
        $problem = is_array($read) ? $read : [];
        $after = curl_getinfo($handle, CURLINFO_RETRY_AFTER) ?: null;
        $kind = ($problem['code'] ?? null) === 'lease_lost' ? LeaseLostException::class : ProblemException::class;
        return new $kind($status, $problem, $after);
    }
}
