"""Every error of a broker has a meaning here, and its reason says what an operator needs."""

from __future__ import annotations

import pulsar
import pytest

from babelgate.brokers.pulsar.errors import BY_CODE, ConnectionEnded, PulsarError, translate
from babelgate.brokers.pulsar.wire import MalformedFrame
from babelgate.errors import BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull

# Results of the client, which are none of the server's errors.
_OF_THE_CLIENT = {
    *("Ok", "InvalidConfiguration", "Timeout", "LookupError", "ConnectError", "ReadError", "AuthenticationError"),
    *("AuthorizationError", "ErrorGettingAuthenticationData", "BrokerMetadataError", "BrokerPersistenceError"),
    *("ConsumerNotInitialized", "ProducerNotInitialized", "ProducerQueueIsFull", "MemoryBufferIsFull", "CryptoError"),
    *("InvalidMessage", "InvalidUrl", "NotConnected", "AlreadyClosed", "MessageTooBig", "OperationNotSupported"),
    *("Interrupted", "Disconnected", "CumulativeAcknowledgementNotAllowedError", "UnknownError", "Retryable"),
}

_RENAMED = {
    "InvalidTxnStatusError": "InvalidTxnStatus",
    "TopicTerminated": "TopicTerminatedError",
    "TooManyLookupRequestException": "TooManyRequests",
    "ServiceUnitNotReady": "ServiceNotReady",
    "TransactionCoordinatorNotFoundError": "TransactionCoordinatorNotFound",
}


def test_every_error_of_a_server_has_a_kind() -> None:
    """Pulsar's own client has a result for each."""
    known = {name for name, _ in BY_CODE.values()}
    results = {_RENAMED.get(name, name) for name in pulsar.Result.__members__}
    assert results - _OF_THE_CLIENT - known == set()
    assert sorted(BY_CODE) == list(range(len(BY_CODE)))


@pytest.mark.parametrize(
    ("error", "written", "kind"),
    [
        (PulsarError(2, "x"), True, OutcomeUnknown),
        (PulsarError(2, "x"), False, BrokerUnavailable),
        (PulsarError(3, "x"), False, BrokerUnavailable),
        (PulsarError(4, "x"), True, BrokerRejected),
        (PulsarError(7, "x"), True, StorageFull),
        (PulsarError(15, "x"), True, BrokerRejected),
        (PulsarError(99, "x"), True, OutcomeUnknown),
        (ConnectionEnded("gone"), True, OutcomeUnknown),
        (ConnectionEnded("gone"), False, BrokerUnavailable),
        (MalformedFrame("what"), True, OutcomeUnknown),
        (ConnectionRefusedError(111, "refused"), False, BrokerUnavailable),
    ],
)
def test_kinds(error: Exception, written: bool, kind: type[Exception]) -> None:
    assert type(translate(error, "main", written=written)) is kind


def test_a_reason_is_the_broker_s_own() -> None:
    message = "org.apache.pulsar.broker.service.BrokerServiceException$TopicNotFoundException: No such topic.\n\tat x"
    translated = translate(PulsarError(11, message), "main", written=False)
    assert "TopicNotFound: No such topic" in str(translated)
    assert "\tat" not in str(translated)
