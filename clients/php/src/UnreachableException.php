<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** No gateway answered. `outcomeUnknown`: the request may have been carried out all the same. */
class UnreachableException extends BabelgateException
{
    public function __construct(string $reason, public readonly bool $outcomeUnknown)
    {
        parent::__construct($reason . ($outcomeUnknown ? ' The request may have been carried out.' : ''));
    }
}
