"""What gateways say to each other arrives as it was said."""

from __future__ import annotations

import json

import msgspec
import pytest

from babelgate import errors
from babelgate.cluster.peers import bodies
from babelgate.cluster.wire import (
    MAX_CALL_BYTES,
    SettleCall,
    decode_answers,
    decode_calls,
    decode_rates,
    encode_answers,
    encode_call,
)
from babelgate.errors import BabelgateError, BrokerError, InvalidAckToken
from babelgate.gateway.model import Extend, Nack, Reject, Settlement, SettleResult
from babelgate.observe.rates import COUNTS, LANES, QueueSum, RatesReport

ERRORS = [
    errors.LeaseLost(),
    errors.InvalidAckToken(),
    errors.QueueNotFound(queue="q"),
    errors.InvalidParameter(name="delay_seconds", reason="must be 0 or more"),
    errors.UnsupportedByBroker("delay_too_long", "/delay_seconds", "too long", maximum=5.0),
    errors.BodyTooLarge(actual=3, limit=2),
    errors.Overloaded(reason="full"),
    errors.Draining(),
    errors.BrokerUnavailable("rabbit", "it is down"),
    errors.OutcomeUnknown("rabbit", "no answer"),
    errors.BrokerRejected("rabbit", "no"),
    errors.StorageFull("rabbit", "full"),
    errors.StorageReadOnly("rabbit", "read-only"),
]


def told(error: BabelgateError) -> tuple[object, ...]:
    """All that a client sees of an error."""
    return type(error), error.problem_code, error.detail, error.retryable, error.facts.get("maximum")


def test_a_settlement() -> None:
    asked = Settlement(["a"], [Nack(["b"], 0.5, "é", "E"), Nack(["c"])], [Reject(["d"], "x")], [Extend(["e"], 60)])
    assert decode_calls(b"[%b]" % encode_call("q", asked)) == [SettleCall("q", asked)]


def test_results() -> None:
    last = SettleResult(0, "nack", dead_lettered=True)
    answered = [[SettleResult(0, "ack"), last, SettleResult(0, "extend", None, 1_700_000_000_000)], []]
    assert decode_answers(encode_answers(answered)) == answered


def test_the_results_of_an_earlier_version() -> None:
    """It does not say which nack was the last one."""
    assert decode_answers(b'[[[0,"nack",null,null]]]') == [[SettleResult(0, "nack")]]


def test_a_refused_token_of_an_earlier_version() -> None:
    """Its error has no reason."""
    (error,) = decode_answers(b'[{"kind":"InvalidAckToken","detail":"It is malformed.","facts":{}}]')
    assert isinstance(error, InvalidAckToken)
    assert error.detail == "The ack token was not issued by this gateway for this queue."


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_one_token_and_of_all(error: BabelgateError) -> None:
    one, whole = decode_answers(encode_answers([[SettleResult(3, "nack", error)], error]))
    assert isinstance(one, list)
    assert isinstance(whole, BabelgateError)
    assert one[0].error is not None
    assert told(one[0].error) == told(whole) == told(error)


def test_an_error_of_a_later_version_keeps_its_sentence() -> None:
    body = json.dumps([{"kind": "New", "detail": "It is raining.", "facts": {"broker": "rabbit", "depth": 3}}])
    (error,) = decode_answers(body.encode())
    assert type(error) is BrokerError
    assert error.detail == "The broker rabbit failed: It is raining."


def test_no_other_class_is_made_of_what_a_peer_says() -> None:
    (error,) = decode_answers(b'[{"kind": "ConfigError.__class__", "detail": "x", "facts": {}}]')
    assert type(error) is BrokerError


def test_what_is_too_much_for_one_call_is_several() -> None:
    entries = [b"x" * (MAX_CALL_BYTES // 2 - 10), b"y", b"z" * (MAX_CALL_BYTES // 2 + 10), b"w"]
    made = list(bodies(entries))
    assert [count for _, count in made] == [2, 2]
    assert all(len(body) <= MAX_CALL_BYTES for body, _ in made)
    assert b",".join(body[1:-1] for body, _ in made) == b",".join(entries)


def test_an_entry_that_fills_a_call() -> None:
    entries = [b"x", b"y" * (MAX_CALL_BYTES - 2), b"z"]
    assert [(len(body), count) for body, count in bodies(entries)] == [(3, 1), (MAX_CALL_BYTES, 1), (3, 1)]


def test_rates() -> None:
    lanes = list(range(LANES))
    report = RatesReport(
        1_700_000_000_000, 1_700_000_000_001, {28_333_333: lanes}, [QueueSum("q", lanes, [0.5] * len(COUNTS))]
    )
    assert decode_rates(msgspec.json.encode(report)) == report


@pytest.mark.parametrize(
    ("lanes", "recent"), [(LANES - 1, len(COUNTS)), (LANES + 1, len(COUNTS)), (LANES, len(COUNTS) - 1)]
)
def test_rates_of_a_version_that_counts_something_else_are_refused(lanes: int, recent: int) -> None:
    report = RatesReport(1, 1, {}, [QueueSum("q", [0] * lanes, [0.0] * recent)])
    with pytest.raises(msgspec.ValidationError):
        decode_rates(msgspec.json.encode(report))
