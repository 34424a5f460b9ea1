"""Translates the errors of confluent-kafka and the error codes of Kafka: the only place that does.

Codes: https://kafka.apache.org/protocol#protocol_error_codes, and those of librdkafka itself, which begin with ``_``.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from babelgate.brokers.errors import ErrorKind, ErrorMap
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNAVAILABLE = _names(
    "BROKER_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR LEADER_NOT_AVAILABLE "
    "NOT_LEADER_FOR_PARTITION REPLICA_NOT_AVAILABLE NOT_ENOUGH_REPLICAS NOT_CONTROLLER ELIGIBLE_LEADERS_NOT_AVAILABLE "
    "PREFERRED_LEADER_NOT_AVAILABLE OFFSET_NOT_AVAILABLE FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
    "THROTTLING_QUOTA_EXCEEDED UNSTABLE_OFFSET_COMMIT REBOOTSTRAP_REQUIRED STALE_BROKER_EPOCH STALE_CTRL_EPOCH "
    "UNKNOWN_CONTROLLER_ID UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID REASSIGNMENT_IN_PROGRESS OPERATION_NOT_ATTEMPTED "
    "FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH GROUP_MAX_SIZE_REACHED CONCURRENT_TRANSACTIONS "
    "SASL_AUTHENTICATION_FAILED ILLEGAL_SASL_STATE UNSUPPORTED_SASL_MECHANISM SHARE_SESSION_LIMIT_REACHED "
    "MEMBER_ID_REQUIRED UNRELEASED_INSTANCE_ID "
    "_ALL_BROKERS_DOWN _AUTHENTICATION _RESOLVE _SSL _QUEUE_FULL _PURGE_QUEUE _TIMED_OUT_QUEUE _WAIT_COORD "
    "_WAIT_CACHE _NODE_UPDATE _ISR_INSUFF _UNKNOWN_BROKER _PREV_IN_PROGRESS _RETRY _CRIT_SYS_RESOURCE "
    "_DESTROY_BROKER _LOG_TRUNCATION _FS _NOENT INVALID_REPLICATION_FACTOR INVALID_MSG"
)
"""Nothing was written; the client may succeed later, or after the credentials or addresses are right."""

UNKNOWN = _names(
    "UNKNOWN NETWORK_EXCEPTION REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR "
    "LOG_DIR_NOT_FOUND OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID "
    "INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED TRANSACTION_COORDINATOR_FENCED "
    "TRANSACTION_ABORTABLE INVALID_TXN_STATE _TRANSPORT _TIMED_OUT _MSG_TIMED_OUT _PURGE_INFLIGHT _DESTROY _FAIL "
    "_FATAL _GAPLESS_GUARANTEE _BAD_MSG _BAD_COMPRESSION _UNDERFLOW _PARTIAL _INTR _APPLICATION _INCONSISTENT "
    "_IN_PROGRESS"
)
"""The request may have been processed."""

LOST = _names(
    "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH FENCED_INSTANCE_ID "
    "SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH "
    "REBALANCE_IN_PROGRESS INVALID_RECORD_STATE FENCED_STATE_EPOCH _ASSIGNMENT_LOST _FENCED _MAX_POLL_EXCEEDED"
)
"""Answers to a commit: the partition belongs to another member of the group by now. Those of share groups, which are
not used here, are classified, too."""


def _codes() -> dict[int, ErrorKind]:
    kinds: dict[int, ErrorKind] = {}
    for names, kind in ((UNAVAILABLE, BrokerUnavailable), (UNKNOWN, OutcomeUnknown), (LOST, LeaseLost)):
        kinds |= {getattr(KafkaError, name): kind for name in names}
    return kinds


BY_CODE = _codes()
"""The kind of each code; every other one is a refusal."""

MISSING_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""The topic, or the partition, does not exist."""

BY_CLASS: dict[type[BaseException], ErrorKind] = {
    KafkaException: OutcomeUnknown,
    # Raised before anything is sent: a full local queue, an argument, a client that is closed.
    BufferError: BrokerUnavailable,
    RuntimeError: BrokerUnavailable,
    ValueError: BrokerRejected,
    TypeError: BrokerRejected,
    Exception: OutcomeUnknown,
}


def translate(error: BaseException | KafkaError, broker: str, *, written: bool) -> BabelgateError:
    """The error of this project for ``error`` of a call. ``written``: the call writes, and has begun."""
    raised = error if isinstance(error, BaseException) else KafkaException(error)
    return _ERRORS.translate(broker, raised, written=written)


def error_of(error: BaseException) -> KafkaError | None:
    """The error of Kafka in an exception of the client; None for another exception."""
    found = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return found if isinstance(found, KafkaError) else None


def _reason(error: BaseException) -> str:
    found = error_of(error)
    text = str(error) if found is None else found.str()
    for prefix in ("Broker: ", "Local: "):
        text = text.removeprefix(prefix)
    return (text.partition("\n")[0] or type(error).__name__).rstrip(". ")


def _by_content(error: BaseException) -> ErrorKind | None:
    found = error_of(error)
    return None if found is None else BY_CODE.get(found.code(), BrokerRejected)


_ERRORS = ErrorMap(BY_CLASS, _reason, _by_content)
