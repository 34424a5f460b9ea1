"""The errors of operations on pushes."""

from __future__ import annotations

from babelgate.errors import BabelgateError


class PushNotFound(BabelgateError):
    """The queue {queue} has no push."""

    code = "push_not_found"


class PushConfigured(BabelgateError):
    """The push of the queue {queue} is in the configuration of the gateway. Change it there."""

    code = "push_configured"


class TooManyPushes(BabelgateError):
    """This gateway keeps {limit} pushes already. Remove one of them first."""

    code = "too_many_pushes"
