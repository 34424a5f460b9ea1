"""Translates the errors of a Pulsar broker: the only place that does.

Their codes: ServerError of https://github.com/apache/pulsar/blob/master/pulsar-common/src/main/proto/PulsarApi.proto.
"""

from __future__ import annotations

from babelgate.brokers.errors import ErrorKind, ErrorMap
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull

BY_CODE: dict[int, tuple[str, ErrorKind]] = {
    0: ("UnknownError", OutcomeUnknown),
    1: ("MetadataError", OutcomeUnknown),
    2: ("PersistenceError", OutcomeUnknown),
    3: ("AuthenticationError", BrokerUnavailable),
    4: ("AuthorizationError", BrokerRejected),
    5: ("ConsumerBusy", BrokerRejected),
    6: ("ServiceNotReady", BrokerUnavailable),
    7: ("ProducerBlockedQuotaExceededError", StorageFull),
    8: ("ProducerBlockedQuotaExceededException", StorageFull),
    9: ("ChecksumError", BrokerRejected),
    10: ("UnsupportedVersionError", BrokerRejected),
    11: ("TopicNotFound", BrokerRejected),
    12: ("SubscriptionNotFound", BrokerRejected),
    13: ("ConsumerNotFound", BrokerUnavailable),
    14: ("TooManyRequests", BrokerUnavailable),
    15: ("TopicTerminatedError", BrokerRejected),
    16: ("ProducerBusy", BrokerUnavailable),
    17: ("InvalidTopicName", BrokerRejected),
    18: ("IncompatibleSchema", BrokerRejected),
    19: ("ConsumerAssignError", BrokerUnavailable),
    20: ("TransactionCoordinatorNotFound", BrokerUnavailable),
    21: ("InvalidTxnStatus", BrokerRejected),
    22: ("NotAllowedError", BrokerRejected),
    23: ("TransactionConflict", BrokerRejected),
    24: ("TransactionNotFound", BrokerRejected),
    25: ("ProducerFenced", BrokerUnavailable),
}
"""The name and the kind of each code. OutcomeUnknown: a message may have been stored."""

SUBSCRIBED = frozenset({5, 6})
"""Codes for a subscription that has its only consumer, or whose last one is ending."""

NOT_FOUND = frozenset({11, 12})
"""Codes for a topic or a subscription that does not exist."""


class PulsarError(Exception):
    """The broker has answered with an error: its ``code``, and the broker's own ``message``."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)


class ConnectionEnded(Exception):
    """The connection ended before the answer."""


def translate(error: BaseException, broker: str, *, written: bool) -> BabelgateError:
    """The error of this project for ``error``. ``written``: the call writes, and has begun."""
    return _ERRORS.translate(broker, error, written=written)


def error_reason(error: BaseException) -> str:
    """The broker's words, as a part of a sentence."""
    if isinstance(error, PulsarError):
        name = BY_CODE.get(error.code, (f"error {error.code}",))[0]
        reason = error.message.partition("\n")[0].rpartition("Exception: ")[2].strip().rstrip(". ")
        return f"{name}: {reason}" if reason else name
    return (str(error).partition("\n")[0] or type(error).__name__).rstrip(". ")


def _by_content(error: BaseException) -> ErrorKind | None:
    return BY_CODE.get(error.code, ("", None))[1] if isinstance(error, PulsarError) else None


_ERRORS = ErrorMap({}, error_reason, _by_content)
