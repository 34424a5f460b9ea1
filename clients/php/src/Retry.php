<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** Thrown by a handler: deliver the message again after `delaySeconds`. It counts as a failed attempt. */
class Retry extends \Exception
{
    public function __construct(
        public readonly float $delaySeconds,
        string $message = 'the handler requested another delivery',
    ) {
        parent::__construct($message);
    }
}
