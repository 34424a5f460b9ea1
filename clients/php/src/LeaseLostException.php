<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** The lease is over: the message was settled, or is delivered again. */
class LeaseLostException extends ProblemException
{
}
