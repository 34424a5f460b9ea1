<?php

declare(strict_types=1);

namespace Babelgate\Client;

/**
 * The gateway answered with a problem (RFC 9457).
 *
 * `problemCode` is stable: use it, and not the text, to tell problems apart. `retryable`: the same request may succeed
 * later, after `retryAfterSeconds` if that is given.
 */
class ProblemException extends BabelgateException
{
    public readonly string $problemCode;
    public readonly string $title;
    public readonly string $detail;
    public readonly bool $retryable;
    public readonly ?string $traceId;
    /** @var list<array{pointer: string, code: string, detail: string}> */
    public readonly array $errors;
    /** Whether a gateway said this, and not a proxy in front of it. */
    public readonly bool $fromGateway;

    /** @param array<string, mixed> $problem */
    public function __construct(
        public readonly int $status,
        array $problem,
        public readonly ?int $retryAfterSeconds = null,
    ) {
        $this->problemCode = $problem['code'] ?? "http_$status";
        $this->title = $problem['title'] ?? '';
        $this->detail = $problem['detail'] ?? 'the answer has no details';
        $this->retryable = $problem['retryable'] ?? false;
        $this->traceId = $problem['trace_id'] ?? null;
        $this->errors = $problem['errors'] ?? [];
        $this->fromGateway = isset($problem['code']);
        parent::__construct("$this->problemCode: $this->detail", $status);
    }
}
