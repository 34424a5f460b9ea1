"""The trace that a trace_id gives, and W3C contexts as they travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from babelqueue import otel as sdk
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span

from babelgate.observe.tracing.context import (
    Context,
    context_of,
    handed_out,
    of_message,
    of_trace_id,
    parent_id_of,
    parse,
    state_of,
    trace_headers,
    trace_id_of,
    uuid_of,
    with_context,
)
from babelgate.observe.tracing.trace import of_request
from tests.harness import conformance as suite

TRACE, SPAN = "7b3f9c2ae41d4f889b2a1c0d5e6f7a8b", "980c512d6f4a8fba"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

VECTORS = [
    ("7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b", TRACE, SPAN),
    ("not-a-uuid", "2184a32a3bae6ad756d745ec8678ad6a", "8649efbf89835216"),
    ("00000000-0000-0000-0000-000000000000", "12b9377cbe7e5c94e8a70d9d23929523", "e47eabb353476bde"),
]


@pytest.mark.parametrize(("trace_id", "trace", "span"), VECTORS)
def test_the_vectors_of_the_contract(trace_id: str, trace: str, span: str) -> None:
    assert f"{trace_id_of(trace_id):032x}" == trace
    assert f"{parent_id_of(trace_id):016x}" == span
    assert of_trace_id(trace_id) == context_of(trace, span, None)


# Where the Python SDK alone reads bytes between blanks as hexadecimal, the contract and the others do not.
TRACE_IDS = st.one_of(
    st.uuids().map(str),
    st.uuids().map(lambda uuid: str(uuid).upper()),
    st.text("0123456789abcdefABCDEF-", min_size=30, max_size=37),
    st.text(min_size=1).filter(lambda text: not any(character.isspace() for character in text)),
)


@given(TRACE_IDS)
def test_the_formula_is_the_sdks(trace_id: str) -> None:
    expected = get_current_span(sdk._parent_context(trace_id)).get_span_context()
    assert (trace_id_of(trace_id), parent_id_of(trace_id)) == (expected.trace_id, expected.span_id)
    assert trace_id_of(trace_id) == sdk.trace_id_of(trace_id)
    assert of_trace_id(trace_id) == context_of(f"{expected.trace_id:032x}", f"{expected.span_id:016x}", None)


def test_half_a_character_has_a_trace_too() -> None:
    assert trace_id_of("\ud800") > 0 and parent_id_of("\ud800") > 0


@given(st.integers(1, 2**128 - 1))
def test_a_trace_as_a_uuid_is_that_trace(trace_id: int) -> None:
    made = uuid_of(f"{trace_id:032x}")
    assert made == sdk.uuid_of(trace_id)
    assert trace_id_of(made) == trace_id


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 3))
def test_what_is_written_is_read(trace_id: int, span_id: int, flags: int) -> None:
    context = context_of(f"{trace_id:032x}", f"{span_id:016x}", flags)
    assert parse(context.traceparent) == context


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        PARENT.upper(),
        PARENT + "-more",
        PARENT + "\n",
        PARENT[:-1],
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00{TRACE}{SPAN}01",
        "é" * 55,
    ],
)
def test_what_is_malformed_is_ignored(text: str | None) -> None:
    assert parse(text) is None
    assert of_message(text, "not-a-uuid") == of_trace_id("not-a-uuid")
    assert of_message(text, None) is None


def test_a_later_version_is_read_as_this_one() -> None:
    found = parse(f"cc-{TRACE}-{SPAN}-ff-whatever it means")
    assert found is not None and found.traceparent == f"00-{TRACE}-{SPAN}-03"


def test_what_a_formula_gives_counts_as_sampled_for_others() -> None:
    found = of_trace_id(VECTORS[0][0])
    assert found is not None and found.sampled is None and found.traceparent == PARENT


LONGEST_STATE = f"a={'x' * 253},b={'x' * 254}"


@pytest.mark.parametrize(
    ("headers", "context", "baggage"),
    [
        ([], None, ""),
        ([("traceparent", PARENT)], parse(PARENT), ""),
        ([("traceparent", f" {PARENT} ")], parse(PARENT), ""),
        ([("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")], parse(PARENT, "a=1,b=2"), ""),
        ([("traceparent", PARENT), ("traceparent", OTHER), ("tracestate", "a=1")], None, ""),
        ([("tracestate", "a=1")], None, ""),
        ([("traceparent", "x"), ("baggage", "a=1"), ("baggage", "b=2")], None, "a=1,b=2"),
        ([("traceparent", PARENT), ("tracestate", LONGEST_STATE)], parse(PARENT, LONGEST_STATE), ""),
        ([("traceparent", PARENT), ("tracestate", LONGEST_STATE + ",")], parse(PARENT), ""),
        ([("traceparent", PARENT), ("tracestate", "a=\x01")], parse(PARENT), ""),
        ([("baggage", "a=" + "x" * 8190)], None, "a=" + "x" * 8190),
        ([("baggage", "a=" + "x" * 8191)], None, ""),
        ([("baggage", "a=é")], None, ""),
    ],
)
def test_what_a_request_brings(headers: list[tuple[str, str]], context: Context | None, baggage: str) -> None:
    lines = [(b"host", b"x"), *((name.encode(), value.encode()) for name, value in headers)]
    assert of_request(dict(lines), lines) == (context, baggage)


def test_what_a_message_carries() -> None:
    context = parse(PARENT, "a=1")
    assert with_context({}, None, "") == {}
    assert with_context({}, context, "") == {"traceparent": PARENT, "tracestate": "a=1"}
    assert with_context({}, None, "k=v") == {"baggage": "k=v"}
    assert with_context({"x": "1"}, context, "k=v") == {
        "x": "1",
        "traceparent": PARENT,
        "tracestate": "a=1",
        "baggage": "k=v",
    }


def test_what_a_message_has_of_its_own_wins() -> None:
    own = {"traceparent": OTHER, "baggage": "own=1"}
    assert with_context(own, parse(PARENT, "a=1"), "k=v") == own
    assert with_context({"traceparent": "what a client gave"}, parse(PARENT, "a=1"), "") == {
        "traceparent": "what a client gave"
    }


def test_what_a_consumer_goes_on_with() -> None:
    travelled = {"traceparent": OTHER, "tracestate": "a=1", "baggage": "k=v", "x": "1"}
    assert trace_headers(travelled, "not-a-uuid") == {
        "traceparent": OTHER,
        "tracestate": "a=1",
        "baggage": "k=v",
    }
    by_formula = {"traceparent": "00-2184a32a3bae6ad756d745ec8678ad6a-8649efbf89835216-01"}
    assert trace_headers({"traceparent": "x", "tracestate": "a=1"}, "not-a-uuid") == by_formula
    assert trace_headers({"traceparent": OTHER, "tracestate": "\n", "baggage": "é"}, None) == {"traceparent": OTHER}
    assert trace_headers({}, None) == {}


_ALL = "".join(map(chr, range(0x20, 0x7F))).replace(",", "").replace("=", "")
_KEY = "abcdefghijklmnopqrstuvwxyz0123456789_-*/"


@pytest.mark.parametrize(
    "state",
    [
        "foo=1",
        "foo=1,bar=2",
        "foo= 1",
        f"{_KEY}={_ALL}",
        f"{_KEY}@a-z0-9_-*/={_ALL}",
        "0tenant@v=1",
        ",".join(f"bar{n:02}={n:02}" for n in range(32)),
        f"foo=1,{'z' * 256}=1",
        f"foo=1,{'t' * 241}@{'v' * 14}=1",
        f"foo={'x' * 256}",
    ],
)
def test_a_legal_state_stays_as_it_is(state: str) -> None:
    assert len(state) <= 512 and state_of(state) == state


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("foo=1 \t , \t bar=2, \t baz=3", "foo=1,bar=2,baz=3"),
        ("\t foo=1 \t", "foo=1"),
        ("foo=1,", "foo=1"),
        (",foo=1,,bar=2", "foo=1,bar=2"),
        ("", ""),
        (" , ,", ""),
    ],
)
def test_blanks_and_empty_members_of_a_state_are_left_out(state: str, kept: str) -> None:
    assert state_of(state) == kept


@pytest.mark.parametrize(
    "state",
    [
        "foo",
        "foo=1,foo=1",
        "foo=1,foo=2",
        "foo =1",
        "FOO=1",
        "foo.bar=1",
        "0foo=1",
        "foo@=1,bar=2",
        "@foo=1,bar=2",
        "foo@@bar=1,bar=2",
        "foo@bar@baz=1,bar=2",
        ",".join(f"bar{n:02}={n:02}" for n in range(33)),
        f"foo=1,{'z' * 257}=1",
        f"foo=1,{'t' * 242}@v=1",
        f"foo=1,t@{'v' * 15}=1",
        "foo=bar=baz",
        "foo=,bar=3",
        f"foo={'x' * 257}",
        "foo=a\tb",
        "foo=é",
        "foo=1\n",
        "foo=\x7f",
    ],
)
def test_an_illegal_state_is_dropped_as_a_whole(state: str) -> None:
    """What W3C's own suite tests strictly is among it: keys and values, their lengths, members and double keys."""
    assert state_of(state) == ""
    lines = [(b"traceparent", PARENT.encode()), (b"tracestate", state.encode("latin-1"))]
    assert of_request(dict(lines), lines) == (parse(PARENT), "")
    assert trace_headers({"traceparent": PARENT, "tracestate": state}, None) == {"traceparent": PARENT}
    assert handed_out({"traceparent": PARENT, "tracestate": state, "x": "1"}, None) == {"traceparent": PARENT, "x": "1"}


def test_a_consumer_gets_no_context_that_is_malformed() -> None:
    derived = of_trace_id("t")
    assert derived is not None
    for malformed in ("x", "", PARENT.upper(), f"{PARENT}-extra", f"00-{'0' * 32}-{SPAN}-01"):
        headers = {"traceparent": malformed, "tracestate": "a=1", "x": "1"}
        assert handed_out(headers, "t") == {"traceparent": derived.traceparent, "x": "1"}
        assert handed_out(headers, None) == {"x": "1"}
    assert handed_out({"tracestate": "a=1"}, "t") == {"traceparent": derived.traceparent}
    later = {"traceparent": f"cc-{TRACE}-{SPAN}-01-more", "tracestate": "a=1"}
    assert handed_out(later, "t") == later


@suite.each_case("traceparent")
def test_the_official_cases(case: Mapping[str, Any]) -> None:
    """What a consumer extracts, and what it is handed out to extract it from."""
    suite.folder()
    with suite.judged("traceparent", case["name"]):
        expected = case["expect"]
        headers = {} if case["traceparent"] is None else {"traceparent": case["traceparent"]}
        found = of_message(case["traceparent"], case["trace_id"])
        assert found is not None and found.trace_id == expected["trace_id_hex"]
        travelled = expected["source"] == "traceparent"
        if travelled:
            assert (found.span_id, f"{found.flags:02x}") == (expected["parent_span_id"], expected["flags"])
        else:
            assert found == of_trace_id(case["trace_id"])
        assert handed_out(headers, case["trace_id"]) == {"traceparent": found.traceparent}
        assert trace_headers(headers, case["trace_id"]) == {"traceparent": found.traceparent}
        assert (found.traceparent == case["traceparent"]) is travelled
