"""Maps AMQP's error conditions, and the ends of links and connections, to errors of :mod:`babelgate.errors`."""

from __future__ import annotations

import re
import struct

from babelgate.brokers.errors import ErrorKind, ErrorMap
from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    BrokerRejected,
    BrokerUnavailable,
    OutcomeUnknown,
    StorageFull,
)


class Refused(Exception):
    """The broker refused a link or a message: AMQP's ``condition`` and the broker's ``description``."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description or condition)
        self.condition = condition


class ConnectionLost(Exception):
    """The link or connection has ended. Its text is the reason; ``condition``: AMQP's, if the broker gave one."""

    def __init__(self, reason: str, condition: str = "") -> None:
        super().__init__(reason)
        self.condition = condition


class NotSent(Exception):
    """The message was not sent: its text is the reason."""


BY_CLASS: dict[type[BaseException], ErrorKind] = {
    Refused: BrokerRejected,
    ConnectionLost: OutcomeUnknown,
    NotSent: BrokerUnavailable,
    # A failed connect, a lost socket, an invalid certificate.
    OSError: OutcomeUnknown,
    # A message that AMQP cannot carry, refused before anything was written.
    ValueError: BrokerRejected,
    struct.error: BrokerRejected,
}

BY_CONDITION: dict[str, ErrorKind] = {
    "amqp:internal-error": OutcomeUnknown,
    "amqp:not-found": BrokerRejected,
    "amqp:unauthorized-access": BrokerRejected,
    "amqp:decode-error": BrokerRejected,
    # An address at its limit with the policy FAIL, and a disk that is full.
    "amqp:resource-limit-exceeded": StorageFull,
    "amqp:not-allowed": BrokerRejected,
    "amqp:invalid-field": BrokerRejected,
    "amqp:not-implemented": BrokerRejected,
    "amqp:resource-locked": BrokerUnavailable,
    "amqp:precondition-failed": BrokerRejected,
    "amqp:resource-deleted": BrokerUnavailable,
    # Also an address that has no anycast queues.
    "amqp:illegal-state": BrokerRejected,
    "amqp:frame-size-too-small": BrokerRejected,
    "amqp:connection:forced": OutcomeUnknown,
    "amqp:connection:framing-error": OutcomeUnknown,
    "amqp:connection:redirect": OutcomeUnknown,
    "amqp:session:window-violation": OutcomeUnknown,
    "amqp:session:errant-link": OutcomeUnknown,
    "amqp:session:handle-in-use": OutcomeUnknown,
    "amqp:session:unattached-handle": OutcomeUnknown,
    "amqp:link:detach-forced": OutcomeUnknown,
    "amqp:link:transfer-limit-exceeded": OutcomeUnknown,
    "amqp:link:message-size-exceeded": BrokerRejected,
    "amqp:link:redirect": OutcomeUnknown,
    "amqp:link:stolen": OutcomeUnknown,
    # A message that the broker gave back.
    "released": BrokerUnavailable,
}
"""The conditions of sections 2.8.15 to 2.8.18 of the specification:
https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html"""

_NO_PERMISSION = "AMQ229032"
"""The code of Artemis for a missing right. Where that is to create a queue, the condition is amqp:internal-error:
https://github.com/apache/activemq-artemis/blob/main/artemis-core-client/src/main/java/org/apache/activemq/artemis/core/client/ActiveMQClientMessageBundle.java"""

_RECORD_TOO_LARGE = re.compile(r"AMQ149005: Message of (\d+) bytes is bigger than the max record size of (\d+) bytes")
"""The answer of Artemis where the headers, with the body of a small message, do not fit into a record of its journal
(``journal-buffer-size``):
https://github.com/apache/activemq-artemis/blob/main/artemis-journal/src/main/java/org/apache/activemq/artemis/journal/ActiveMQJournalBundle.java"""

_MISSING = "{reason}. Create the queue as anycast, or let auto-create-queues and auto-create-addresses be true for it"
_REFUSED_LOGIN = "the login was refused: {reason}"


def translate(error: BaseException, broker: str, *, written: bool) -> BabelgateError:
    """See :meth:`babelgate.brokers.errors.ErrorMap.translate`. BodyTooLarge for a record that is too large, although it
    may be the headers."""
    if isinstance(error, Refused) and (found := _RECORD_TOO_LARGE.match(str(error))) is not None:
        return BodyTooLarge(actual=int(found[1]), limit=int(found[2]))
    return _ERRORS.translate(broker, error, written=written)


def _by_condition(error: BaseException) -> ErrorKind | None:
    if isinstance(error, ConnectionLost) and error.condition == "amqp:unauthorized-access":
        return BrokerUnavailable
    if isinstance(error, Refused) and str(error).startswith(_NO_PERMISSION):
        return BrokerRejected
    return BY_CONDITION.get(error.condition) if isinstance(error, Refused) else None


def _reason_of(error: BaseException) -> str:
    # ``args`` may also have an errno.
    text = " ".join(str(part) for part in error.args if part is not None and not isinstance(part, int))
    text = text.strip().rstrip(".") or type(error).__name__
    if isinstance(error, Refused) and error.condition == "amqp:not-found":
        return _MISSING.format(reason=text)
    if isinstance(error, ConnectionLost) and error.condition == "amqp:unauthorized-access":
        return _REFUSED_LOGIN.format(reason=text)
    return text


_ERRORS = ErrorMap(BY_CLASS, _reason_of, _by_condition)
