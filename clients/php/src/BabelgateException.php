<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** Base of all exceptions of this package, but for those that a handler throws to end its delivery. */
abstract class BabelgateException extends \RuntimeException
{
}
