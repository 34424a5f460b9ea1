<?php

declare(strict_types=1);

namespace Babelgate\Client;

/** Thrown by a handler: dead-letter the message now. */
class Reject extends \Exception
{
}
