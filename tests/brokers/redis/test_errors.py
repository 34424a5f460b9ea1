"""Every error of redis-py has its place in the map."""

from __future__ import annotations

import inspect

import pytest
from redis import exceptions as vendor

from babelgate.brokers.redis.errors import BY_CLASS, translate
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull

CLASSES = [
    found
    for _, found in inspect.getmembers(vendor, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == vendor.__name__
]


def test_redis_py_has_errors() -> None:
    assert vendor.ConnectionError in CLASSES and len(CLASSES) > 20


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_is_mapped_by_itself(kind: type[Exception]) -> None:
    assert kind in BY_CLASS


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (vendor.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StorageFull),
        (vendor.ResponseError("Error running script: @user_script: 1: -OOM command not allowed"), StorageFull),
        (vendor.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), StorageFull),
        (vendor.ResponseError("MISCONF Redis is configured to save RDB snapshots"), BrokerUnavailable),
        (vendor.ResponseError("BUSY Redis is busy running a script."), BrokerUnavailable),
        (vendor.ResponseError("NOREPLICAS Not enough good replicas to write."), BrokerUnavailable),
        (vendor.ResponseError("UNBLOCKED force unblock from blocking operation"), BrokerUnavailable),
        (vendor.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), BrokerRejected),
        (vendor.ResponseError("ERR unknown command"), BrokerRejected),
        (vendor.ReadOnlyError("You can't write against a read only replica."), BrokerUnavailable),
        (vendor.BusyLoadingError("Redis is loading the dataset in memory"), BrokerUnavailable),
        (vendor.MasterDownError("Link with MASTER is down"), BrokerUnavailable),
        (vendor.NoPermissionError("this user has no permissions"), BrokerRejected),
        (vendor.InvalidResponse("Protocol error"), OutcomeUnknown),
        (OSError(111, "Connection refused"), BrokerUnavailable),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_it_becomes(error: Exception, expected: type[BabelgateError]) -> None:
    translated = translate(error, "cache")
    assert type(translated) is expected
    assert translated.broker == "cache" and translated.reason
    assert ".." not in translated.detail


def test_a_class_of_a_later_version_counts_as_its_ancestor() -> None:
    class NewError(vendor.ReadOnlyError):
        pass

    assert type(translate(NewError("x"), "cache")) is BrokerUnavailable


def test_arguments_that_a_reply_quotes_are_left_out() -> None:
    quoting = vendor.ResponseError("unknown command 'LPUSH', with args beginning with: 'q' '{\"data\": \"hunter2\"}' ")
    assert translate(quoting, "cache").facts["reason"] == "unknown command 'LPUSH'"
