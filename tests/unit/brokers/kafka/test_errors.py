"""Every error code of Kafka and of librdkafka has a kind, which depends on what may have been written."""

from __future__ import annotations

from itertools import combinations

import pytest
from confluent_kafka import KafkaError, KafkaException

from babelgate.brokers.kafka.errors import (
    BY_CODE,
    LOST,
    MISSING_TOPIC,
    UNAVAILABLE,
    UNKNOWN,
    error_of,
    translate,
)
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown

_REFUSALS = """
CLUSTER_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED
DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DUPLICATE_RESOURCE DUPLICATE_VOTER ELECTION_NOT_NEEDED
FEATURE_UPDATE_FAILED GROUP_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND GROUP_SUBSCRIBED_TO_TOPIC
INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_VOTER_SET INVALID_COMMIT_OFFSET_SIZE INVALID_CONFIG INVALID_GROUP_ID
INVALID_MSG_SIZE INVALID_PARTITIONS INVALID_PRINCIPAL_TYPE INVALID_RECORD INVALID_REGISTRATION
INVALID_REGULAR_EXPRESSION INVALID_REPLICA_ASSIGNMENT INVALID_REQUEST INVALID_REQUIRED_ACKS
INVALID_SESSION_TIMEOUT INVALID_TIMESTAMP INVALID_TRANSACTION_TIMEOUT INVALID_UPDATE_VERSION INVALID_VOTER_KEY
LISTENER_NOT_FOUND MISMATCHED_ENDPOINT_TYPE MSG_SIZE_TOO_LARGE NON_EMPTY_GROUP NO_ERROR
NO_REASSIGNMENT_IN_PROGRESS OFFSET_METADATA_TOO_LARGE OFFSET_OUT_OF_RANGE POLICY_VIOLATION
PRINCIPAL_DESERIALIZATION_FAILURE RECORD_LIST_TOO_LARGE RESOURCE_NOT_FOUND SECURITY_DISABLED
STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED TELEMETRY_TOO_LARGE
TOPIC_ALREADY_EXISTS TOPIC_AUTHORIZATION_FAILED TOPIC_DELETION_DISABLED TOPIC_EXCEPTION
TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNACCEPTABLE_CREDENTIAL UNKNOWN_SUBSCRIPTION_ID UNKNOWN_TOPIC_OR_PART
UNSUPPORTED_ASSIGNOR UNSUPPORTED_COMPRESSION_TYPE UNSUPPORTED_ENDPOINT_TYPE UNSUPPORTED_FOR_MESSAGE_FORMAT
UNSUPPORTED_VERSION VOTER_NOT_FOUND _ASSIGN_PARTITIONS _AUTO_OFFSET_RESET _CONFLICT _EXISTING_SUBSCRIPTION
_INVALID_ARG _INVALID_DIFFERENT_RECORD _INVALID_TYPE _KEY_DESERIALIZATION _KEY_SERIALIZATION _NOOP
_NOT_CONFIGURED _NOT_IMPLEMENTED _NO_OFFSET _OUTDATED _PARTITION_EOF _READ_ONLY _REVOKE_PARTITIONS _STATE
_UNKNOWN_GROUP _UNKNOWN_PARTITION _UNKNOWN_PROTOCOL _UNKNOWN_TOPIC _UNSUPPORTED_FEATURE _VALUE_DESERIALIZATION
_VALUE_SERIALIZATION
"""
REFUSALS = frozenset(_REFUSALS.split())
"""What is no success however often it is repeated."""

KINDS: tuple[tuple[frozenset[str], type[BabelgateError]], ...] = (
    (UNAVAILABLE, BrokerUnavailable),
    (UNKNOWN, OutcomeUnknown),
    (LOST, LeaseLost),
    (REFUSALS, BrokerRejected),
)


def codes() -> dict[str, int]:
    """All codes that the client knows, by name."""
    found = {name: getattr(KafkaError, name) for name in dir(KafkaError) if name.isupper()}
    return {name: code for name, code in found.items() if type(code) is int}


def test_every_code_has_one_kind() -> None:
    """A new client has new codes: each is looked at once, and put into a list."""
    assert codes().keys() == frozenset().union(*(names for names, _ in KINDS))
    for (some, _), (others, _) in combinations(KINDS, 2):
        assert some.isdisjoint(others)


@pytest.mark.parametrize(("names", "kind"), KINDS, ids=[kind.__name__ for _, kind in KINDS])
def test_what_a_code_becomes(names: frozenset[str], kind: type[BabelgateError]) -> None:
    known = codes()
    for name in names:
        error = KafkaError(known[name], "why")
        for given in (error, KafkaException(error)):
            written = translate(given, "main", written=True)
            assert type(written) is kind, name
            if kind is not LeaseLost:
                assert (written.facts["broker"], written.facts["reason"]) == ("main", "why"), name
            unwritten = translate(given, "main", written=False)
            assert type(unwritten) is (BrokerUnavailable if kind is OutcomeUnknown else kind), name


@pytest.mark.parametrize(
    ("error", "written", "unwritten"),
    [
        (BufferError("Local: Queue full"), BrokerUnavailable, BrokerUnavailable),
        (RuntimeError("Producer has been closed"), BrokerUnavailable, BrokerUnavailable),
        (ValueError("embedded null byte"), BrokerRejected, BrokerRejected),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), BrokerRejected, BrokerRejected),
        (TypeError("a bytes-like object is required"), BrokerRejected, BrokerRejected),
        (OSError(9, "Bad file descriptor"), OutcomeUnknown, BrokerUnavailable),
        (KafkaException(), OutcomeUnknown, BrokerUnavailable),
        (KafkaException("a text"), OutcomeUnknown, BrokerUnavailable),
    ],
    ids=repr,
)
def test_what_an_exception_becomes(
    error: Exception, written: type[BabelgateError], unwritten: type[BabelgateError]
) -> None:
    """Those that are raised before anything is sent have a known outcome, also of a call that writes."""
    assert type(translate(error, "main", written=True)) is written
    assert type(translate(error, "main", written=False)) is unwritten
    assert error_of(error) is None


def test_an_error_of_this_project_stays() -> None:
    error = LeaseLost()
    assert translate(error, "main", written=True) is error


def test_a_missing_topic_is_a_refusal() -> None:
    assert MISSING_TOPIC.isdisjoint(BY_CODE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Broker: Message size too large.", "Message size too large"),
        ("Local: Timed out", "Timed out"),
        ("one\nand a stack trace", "one"),
        ("", "KafkaException"),
    ],
)
def test_a_reason_is_one_part_of_a_sentence(text: str, reason: str) -> None:
    error = KafkaError(KafkaError._TIMED_OUT, text) if text else KafkaException("")
    assert translate(error, "main", written=False).facts["reason"] == reason
