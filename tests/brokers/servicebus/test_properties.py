"""Broker properties: their types and bounds, and what contradicts what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.servicebus.properties import (
    MAX_KEY,
    MAX_TIME_TO_LIVE,
    PROPERTIES,
    READ_ONLY,
    WRITABLE,
    http_date,
)
from babelgate.errors import Problem

AT = 1_795_514_400_000
TIME = "2026-11-24T10:00:00Z"


def property_problems(given: Any) -> list[Problem]:
    return list(PROPERTIES.problems(given, None, None))


def problems(given: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in property_problems(given)]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TimeToLive", 90, 90.0),
        ("TimeToLive", 0.25, 0.25),
        ("TimeToLive", MAX_TIME_TO_LIVE, float(MAX_TIME_TO_LIVE)),
        ("ReplyTo", "http://example.com/é ", "http://example.com/é "),
        ("To", "x" * 5000, "x" * 5000),
        ("ReplyToSessionId", "s" * MAX_KEY, "s" * MAX_KEY),
        ("PartitionKey", "p", "p"),
        ("SessionId", "{27729E1-B37B}", "{27729E1-B37B}"),
        ("ScheduledEnqueueTimeUtc", "Tue, 24 Nov 2026 10:00:00 GMT", AT),
        ("ScheduledEnqueueTimeUtc", " Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_000),
        ("ScheduledEnqueueTimeUtc", "2026-11-24T10:00:00Z", AT),
        ("ScheduledEnqueueTimeUtc", "2026-11-24T12:00:00.1234567+02:00", AT + 123),
    ],
)
def test_a_value_is_read_as_its_python_type(name: str, value: Any, expected: Any) -> None:
    assert problems({name: value}) == []
    read = PROPERTIES.read({name: value})[name]
    assert (type(read), read) == (type(expected), expected)


KEYS = ["ReplyToSessionId", "PartitionKey", "SessionId"]
WRONG: list[tuple[list[str], list[Any]]] = [
    (["TimeToLive"], [0, -1, MAX_TIME_TO_LIVE + 1, True, "60", [], float("inf"), float("nan")]),
    (["ReplyTo", "To", *KEYS], ["", " \t", 5, {}, "\ud800"]),
    (KEYS, ["x" * (MAX_KEY + 1)]),
    (
        ["ScheduledEnqueueTimeUtc"],
        [
            AT,
            "",
            "tomorrow",
            "2026-11-24T10:00:00",
            "Mon, 24 Nov 2026 10:00:00 GMT",
            "24 Nov 2026 10:00",
            "Tue, 24 Nov 2026 25:00:00 GMT",
            "Tue, 24 Nov 2026 10:00:00 +9999999999",
        ],
    ),
]


@pytest.mark.parametrize(("names", "values"), WRONG)
def test_a_wrong_value_is_refused_with_its_name(names: list[str], values: list[Any]) -> None:
    for name in names:
        for value in values:
            (problem,) = property_problems({name: value})
            assert (problem.code, problem.pointer) == ("invalid_broker_properties", f"/broker_properties/{name}")
            assert problem.detail.startswith(f"{name} must be ")


def test_what_the_contract_or_the_broker_sets_is_read_only() -> None:
    assert problems(dict.fromkeys(READ_ONLY, "x")) == [
        ("read_only_property", f"/broker_properties/{name}") for name in READ_ONLY
    ]
    by_name = {problem.pointer.rpartition("/")[2]: problem.detail for problem in property_problems({"Label": "x"})}
    assert by_name == {"Label": "Label cannot be given: it is set by the job of the envelope."}


def test_another_name_is_refused_with_the_valid_ones() -> None:
    for name, at in (("sessionId", "/sessionId"), ("a/b", "/a~1b"), ("\ud800", "")):
        for value in ("x", None):
            (problem,) = property_problems({name: value})
            assert (problem.code, problem.pointer) == ("unknown_member", f"/broker_properties{at}")
            assert ", ".join(WRITABLE) in problem.detail


def test_the_first_name_that_is_none_gets_a_guess() -> None:
    details = [each.detail for each in property_problems({"sessionid": "a", "timetolive": 5})]
    assert ["Did you mean SessionId?" in details[0], "Did you mean" in details[1]] == [True, False]


def test_null_is_a_property_that_is_not_given() -> None:
    nothing = dict.fromkeys([*WRITABLE, *READ_ONLY])
    assert problems(nothing) == []
    assert PROPERTIES.read(nothing) == {}


def test_a_partition_key_is_that_of_its_session() -> None:
    assert problems({"SessionId": "a", "PartitionKey": "a"}) == []
    assert problems({"SessionId": "a", "PartitionKey": "b"}) == [
        ("broker_properties_mismatch", "/broker_properties/PartitionKey")
    ]


@pytest.mark.parametrize(
    ("properties", "delay", "key", "names"),
    [
        ({"SessionId": "a", "PartitionKey": "a"}, None, "a", []),
        ({"SessionId": "a"}, None, "b", ["SessionId"]),
        ({"PartitionKey": "a"}, 5, "b", ["PartitionKey"]),
        ({"SessionId": "a", "ScheduledEnqueueTimeUtc": TIME}, None, None, []),
        ({"ScheduledEnqueueTimeUtc": TIME}, 0, "b", ["ScheduledEnqueueTimeUtc"]),
        ({"TimeToLive": 5.0}, 60, "b", []),
        ({"SessionId": None, "ScheduledEnqueueTimeUtc": None}, 60, "b", []),
    ],
)
def test_they_agree_with_the_options(
    properties: dict[str, Any], delay: float | None, key: str | None, names: list[str]
) -> None:
    found = [(problem.code, problem.pointer) for problem in PROPERTIES.problems(properties, delay, key)]
    assert found == [("broker_properties_mismatch", f"/broker_properties/{name}") for name in names]


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_a_written_time_is_read_again(seconds: int) -> None:
    text = http_date(seconds * 1000 + 999)
    # A year of two digits would be another one: RFC 5322, section 4.3.
    if seconds >= -30_610_224_000:
        assert PROPERTIES.read({"ScheduledEnqueueTimeUtc": text}) == {"ScheduledEnqueueTimeUtc": seconds * 1000}


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d{1,3}:\d+(:\d+)? ?[-+A-Z0-9]*"))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    given = {"ScheduledEnqueueTimeUtc": text}
    assert problems(given) in ([], [("invalid_broker_properties", "/broker_properties/ScheduledEnqueueTimeUtc")])


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=3))
def test_any_value_is_read_or_refused(value: Any) -> None:
    for name in WRITABLE:
        if not problems({name: value}) and value is not None:
            json.dumps(PROPERTIES.read({name: value}), allow_nan=False).encode()
