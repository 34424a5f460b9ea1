<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * A process that runs the handler, one message after the other.
 *
 * @internal
 */
final class Worker
{
    private const MOST_LEVELS = 4096;
    private const MOST_ERROR_BYTES = 10_000;
    private const MOST_NAME_BYTES = 1_000;

    /** @param resource $socket to the process */
    private function __construct(private readonly int $pid, public readonly mixed $socket)
    {
    }

    /**
     * @param \Closure(Delivery): mixed $handler
     * @param iterable<self> $others whose sockets the new process must not keep open
     */
    public static function start(string $queue, \Closure $handler, iterable $others): self
    {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $pid = pcntl_fork();
        if ($pid === -1) {
            throw new \RuntimeException('No process can be started: ' . pcntl_strerror(pcntl_get_last_error()));
        }
        if ($pid !== 0) {
            fclose($theirs);
            return new self($pid, $ours);
        }
        fclose($ours);
        foreach ($others as $other) {
            fclose($other->socket);
        }
        try {
            self::serve($queue, $handler, $theirs);
        } catch (\Throwable $error) {
            error_log((string) $error);
        } finally {
            // An ordinary end would run destructors, and so close connections that are the parent's too.
            posix_kill(posix_getpid(), SIGKILL);
        }
    }

    /** Hand over a delivery, as JSON. */
    public function hand(string $delivery): void
    {
        @fwrite($this->socket, $delivery . "\n");
    }

    /**
     * What the handler ended with, once the socket can be read: the action, its parameters, and what to log. Null: the
     * process has ended.
     *
     * @return ?array{string, array<string, mixed>, ?string}
     */
    public function outcome(): ?array
    {
        $line = @fgets($this->socket);
        return is_string($line) && str_ends_with($line, "\n") ? json_decode($line, true) : null;
    }

    /** Tell the handler that its lease is lost. */
    public function loseLease(): void
    {
        posix_kill($this->pid, SIGUSR1);
    }

    /** End the process. One that is idle ends by itself when the socket is closed. */
    public function end(bool $kill): void
    {
        if ($kill) {
            posix_kill($this->pid, SIGKILL);
        }
        fclose($this->socket);
        while (pcntl_waitpid($this->pid, $status) === -1 && pcntl_get_last_error() === PCNTL_EINTR) {
            continue;
        }
    }

    /** @param resource $socket */
    private static function serve(string $queue, \Closure $handler, mixed $socket): void
    {
        $delivery = null;
        pcntl_async_signals(true);
        // The parent stops this process, also when the terminal or the service manager signals them all.
        pcntl_signal(SIGTERM, SIG_IGN);
        pcntl_signal(SIGINT, SIG_IGN);
        pcntl_signal(SIGUSR1, function () use (&$delivery): void {
            $delivery?->loseLease();
        });
        $line = '';
        while (!feof($socket)) {
            // A read may end early, after the time-out that PHP has for sockets.
            $line .= fgets($socket);
            if (str_ends_with($line, "\n")) {
                $delivery = Delivery::from($queue, json_decode($line, true, self::MOST_LEVELS));
                $outcome = self::handled($handler, $delivery);
                $delivery = null;
                fwrite($socket, json_encode($outcome, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR) . "\n");
                $line = '';
            }
        }
    }

    /** @return array{string, array<string, mixed>, ?string} */
    private static function handled(\Closure $handler, Delivery $delivery): array
    {
        try {
            $handler($delivery);
        } catch (Reject $error) {
            return ['reject', ['error' => self::described($error)], null];
        } catch (Retry $error) {
            return ['nack', ['error' => self::described($error), 'delay_seconds' => $error->delaySeconds], null];
        } catch (\Throwable $error) {
            return ['nack', ['error' => self::described($error)], (string) $error];
        }
        return ['ack', [], null];
    }

    /** @return array<string, string> */
    private static function described(\Throwable $error): array
    {
        return [
            'message' => substr($error->getMessage(), 0, self::MOST_ERROR_BYTES),
            'exception' => substr($error::class, 0, self::MOST_NAME_BYTES),
        ];
    }
}
