"""The codec against itself and against the SDK's codec, on generated bodies.

Where this codec and the SDK's differ on purpose, a test of its own says how.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from babelqueue import BabelQueueError, EnvelopeCodec
from babelqueue._poison_record import build_poison_record
from hypothesis import assume, example, given
from hypothesis import strategies as st

from babelgate.envelope import (
    Envelope,
    Limits,
    Poison,
    Received,
    dead_letter_block,
    dead_letter_record,
    describe_dead,
    inspect,
    original,
    read_publication,
    redriven,
    with_attempts,
)
from babelgate.envelope.fast_path import inspect_ordinary, read_ordinary, read_with_options
from babelgate.envelope.publication import read_any
from babelgate.envelope.reception import inspect_any
from babelgate.errors import BodyTooLarge, EnvelopeError
from babelgate.jsontext import exceeds_depth
from tests.unit.envelope.strategies import OBJECTS, VALUES, bodies, exact, frames, near_ordinary
from tests.unit.envelope.support import FULL, compact

LIMITS = Limits()
POISON = dead_letter_block("poison", "orders", 0, 7, "x")
FAILED = dead_letter_block("failed", "orders", 3, 7, "boom")


def publish(body: bytes) -> Envelope | None:
    try:
        return read_publication(body, "orders", LIMITS, lambda: 5).envelope
    except (EnvelopeError, BodyTooLarge):
        return None


def receive(body: bytes) -> Received | None:
    try:
        return inspect(body, LIMITS)
    except Poison:
        return None


def sdk_accepts(body: bytes) -> bool:
    """Whether the SDK neither calls the body poison nor refuses it by its consumer rules."""
    text = body.decode(errors="surrogateescape")
    return EnvelopeCodec.poison_cause(text) is None and EnvelopeCodec.accepts(EnvelopeCodec.decode(text))


def with_ids_of(envelope: Envelope, other: Envelope) -> Envelope:
    """``envelope`` with the ids of ``other``, which are random where a draft has none."""
    body = envelope.body.replace(json.dumps(envelope.id).encode(), json.dumps(other.id).encode())
    body = body.replace(json.dumps(envelope.trace_id).encode(), json.dumps(other.trace_id).encode())
    return msgspec.structs.replace(envelope, body=body, id=other.id, trace_id=other.trace_id)


@given(st.one_of(near_ordinary(), bodies()))
def test_the_short_way_to_publish_agrees_with_the_complete_one(body: bytes) -> None:
    short = read_ordinary(body, "orders", LIMITS, lambda: 5)
    if short is not None:
        complete = read_any(body, "orders", LIMITS, lambda: 5).envelope
        assert complete == short or with_ids_of(complete, short) == short


@given(st.one_of(near_ordinary(), bodies()))
@example(b'{"job":"a","data":{"n":1e400},"delay_seconds":1}')
@example(b'{"job":"a","data":{},"delay_seconds":1e400}')
def test_the_short_way_of_drafts_with_options_agrees_with_the_complete_one(body: bytes) -> None:
    short = read_with_options(body, "orders", LIMITS, lambda: 5)
    if short is not None:
        complete = read_any(body, "orders", LIMITS, lambda: 5)
        envelope = with_ids_of(complete.envelope, short.envelope)
        assert msgspec.structs.replace(complete, envelope=envelope) == short


@pytest.mark.parametrize(
    "option",
    [
        '"delay_seconds":60',
        '"headers":{"a":"é"}',
        '"idempotency_key":"k"',
        '"broker_properties":{"SessionId":"é"}',
    ],
)
def test_a_draft_with_options_takes_the_short_way(option: str) -> None:
    body = f'{{"job":"a",{option},"data":{{"n":[1.5]}},"ordering_key":null,"meta":{{"lang":"go"}}}}'.encode()
    assert read_with_options(body, "orders", LIMITS, lambda: 5) is not None


@given(st.one_of(near_ordinary(), bodies()))
@example(compact(FULL).replace(b'"data":{', b'"data":[],"data":{'))
@example(compact(FULL).replace(b"1042", b"1e400"))
@example(compact(FULL).replace(b"1042", b'"\xff"'))
@example(compact(FULL).replace(b"1042", b"[" * 511 + b"]" * 511))
def test_the_short_way_to_receive_agrees_with_the_complete_one(body: bytes) -> None:
    short = inspect_ordinary(body, LIMITS)
    if short is not None:
        assert inspect_any(body, LIMITS) == short


@pytest.mark.parametrize(
    "body",
    [
        compact(FULL),
        json.dumps(FULL, indent=1).encode(),
        compact({**FULL, "meta": {**FULL["meta"], "ext": {"acme": [1]}}}),
        json.dumps({"job": "a\n", "data": {"é/": 'x\u2028"'}, "trace_id": "\U0001f600"}).replace("/", "\\/").encode(),
        compact({**FULL, "data": {"id": FULL["trace_id"], "text": 'é "x"\n, 1e9'}}),
        b'{"job": "a", "data": {"n": [1.5, true]}, "trace_id": "t", "meta": {"lang": "go"}}',
    ],
)
def test_ordinary_bodies_take_the_short_way(body: bytes) -> None:
    made = read_ordinary(body, "orders", LIMITS, lambda: 5)
    assert made is not None
    assert inspect_ordinary(made.body, LIMITS) is not None


@given(bodies())
def test_a_published_body_is_canonical_and_valid_everywhere(body: bytes) -> None:
    made = publish(body)
    if made is None:
        return
    again = publish(made.body)
    assert again == made
    assert sdk_accepts(made.body)
    received = inspect(made.body, LIMITS)
    assert received.warnings == ()
    assert (received.id, received.trace_id, received.job) == (made.id, made.trace_id, made.job)
    assert (received.attempts, received.created_at, received.lang) == (made.attempts, made.created_at, made.lang)


@given(VALUES, st.integers(0, 4))
@example('["[","]"]', 1)
@example('{"{":["[\\"[[",[]]}', 3)
def test_depth_is_counted_outside_of_strings(text: str, limit: int) -> None:
    body = text.encode(errors="surrogatepass")
    assert exceeds_depth(body, limit) == (_levels(exact(text)) > limit)


def _levels(value: Any) -> int:
    """Levels of what ``exact`` made: arrays are lists, objects tuples of pairs."""
    if isinstance(value, list):
        return 1 + max(map(_levels, value), default=0)
    if isinstance(value, tuple):
        return 1 + max((_levels(inner) for _, inner in value), default=0)
    return 0


@given(OBJECTS)
def test_data_keeps_its_keys_in_order_and_its_literals(data: str) -> None:
    made = publish(f'{{"job":"a","data":{data}}}'.encode(errors="surrogatepass"))
    if made is not None:
        assert dict(exact(made.body.decode()))["data"] == exact(data)


@given(bodies())
def test_a_consumer_is_given_what_the_sdk_accepts(body: bytes) -> None:
    received = receive(body)
    assert (received is not None) == sdk_accepts(body)
    if received is not None:
        theirs = EnvelopeCodec.decode(body.decode())
        assert (received.job, received.trace_id) == (EnvelopeCodec.urn(theirs), theirs["trace_id"])
        assert (received.attempts, received.id) == (theirs["attempts"], theirs["meta"].get("id"))


@given(frames())
def test_a_full_envelope_means_what_the_sdk_reads(text: str) -> None:
    body = text.encode(errors="surrogatepass")
    made = publish(body)
    if made is not None and sdk_accepts(body):
        theirs = EnvelopeCodec.decode(text)
        ours = json.loads(made.body)
        assert ours == theirs
        assert sorted(ours) == sorted(theirs)


@given(frames(clean=True))
def test_canonical_bytes_are_the_sdks_where_their_number_formats_agree(text: str) -> None:
    made = publish(text.encode())
    assume(made is not None)
    assert made is not None
    parsed = json.loads(text, object_pairs_hook=_unique)
    assume(_agreed(parsed))
    assert made.body == EnvelopeCodec.encode(parsed).encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assume(len({name for name, _ in pairs}) == len(pairs))
    return dict(pairs)


def _agreed(value: Any) -> bool:
    """The documented subset: no float, because literals are kept where the SDK prints them anew; -0 likewise."""
    if isinstance(value, dict):
        return all(map(_agreed, value.values()))
    if isinstance(value, list):
        return all(map(_agreed, value))
    return not isinstance(value, float) and (value != 0 or value is False)


@given(bodies())
def test_a_re_emit_means_what_the_sdk_writes(body: bytes) -> None:
    if receive(body) is None:
        return
    theirs = EnvelopeCodec.decode(body.decode())
    ours = json.loads(with_attempts(body, 7))
    assert ours == {**theirs, "attempts": 7}
    assert receive(with_attempts(body, 7)) is not None
    record = dead_letter_record(body, FAILED)
    assert json.loads(record) == {**theirs, "attempts": 3, "dead_letter": FAILED}
    assert json.loads(redriven(record)) == _without_block({**theirs, "attempts": 0})


def _without_block(envelope: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in envelope.items() if name != "dead_letter"}


@given(bodies())
@example(b'{"a":"\\udc00"}')
@example(b' {"dead_letter":1}')
def test_a_poison_record_is_the_sdks_and_holds_the_body(body: bytes) -> None:
    # The SDK takes a high and a low surrogate for a pair although text stands between them.
    assume(not re.search(rb"\\u[dD][89abAB]..[^\\]+\\u[dD][c-fC-F]", body))
    record = dead_letter_record(body, POISON)
    assert record.decode() == build_poison_record(body.decode(errors="surrogateescape"), POISON)
    assert json.loads(record)["dead_letter"] == POISON
    assert describe_dead(record).reason == "poison"
    wrapped = json.loads(record).keys() <= {"raw", "raw_encoding", "dead_letter"}
    assert wrapped or original(record) == body.strip(b" \t\r\n")


@given(st.binary())
def test_any_bytes_come_back_from_their_poison_record(body: bytes) -> None:
    found = original(dead_letter_record(body, POISON))
    assert found in (body, body.strip(b" \t\r\n"))


@given(bodies())
def test_anything_can_be_described(body: bytes) -> None:
    json.dumps(msgspec.to_builtins(describe_dead(body)), ensure_ascii=False).encode()


class TestIntendedDifferences:
    """What the SDK's codec accepts on encode, or writes otherwise."""

    def test_literals_stay_where_the_sdk_prints_numbers_anew(self) -> None:
        text = compact(FULL).decode().replace("1042", "[1.10,1E2,-0]")
        made = publish(text.encode())
        assert made is not None and b"[1.10,1E2,-0]" in made.body
        assert "[1.1,100.0,0]" in EnvelopeCodec.encode(EnvelopeCodec.decode(text))

    def test_repeated_keys_inside_data_stay(self) -> None:
        text = compact(FULL).decode().replace('"order_id":1042', '"a":1,"a":2')
        made = publish(text.encode())
        assert made is not None and b'{"a":1,"a":2}' in made.body
        assert '"data":{"a":2}' in EnvelopeCodec.encode(EnvelopeCodec.decode(text))

    def test_the_frame_is_put_in_order(self) -> None:
        text = json.dumps(dict(reversed(FULL.items())))
        made = publish(text.encode())
        assert made is not None and made.body == compact(FULL)
        assert EnvelopeCodec.encode(EnvelopeCodec.decode(text)).startswith('{"attempts"')

    def test_a_folded_alias_takes_the_place_of_the_job(self) -> None:
        text = '{"urn":"a",' + compact(FULL).decode().split(",", 1)[1]
        made = publish(text.encode())
        assert made is not None and made.body.startswith(b'{"job":"a",')
        assert with_attempts(text.encode(), 1).startswith(b'{"job":"a",')
        assert EnvelopeCodec.encode(EnvelopeCodec.decode(text)).endswith('"job":"a"}')

    @pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400"])
    def test_numbers_that_are_not_json_are_refused(self, value: str) -> None:
        text = compact(FULL).decode().replace("1042", value)
        assert publish(text.encode()) is None and receive(text.encode()) is None
        assert EnvelopeCodec.accepts(EnvelopeCodec.decode(text))

    def test_a_lone_surrogate_is_refused_on_publish_only(self) -> None:
        text = compact(FULL).decode().replace("1042", r'"\ud800"')
        assert publish(text.encode()) is None and receive(text.encode()) is not None
        with pytest.raises(UnicodeEncodeError):
            EnvelopeCodec.encode(EnvelopeCodec.decode(text)).encode()

    def test_surrogates_apart_are_not_a_pair(self) -> None:
        body = rb'{"a":"\ud800 \udc00"}'
        assert json.loads(dead_letter_record(body, POISON))["raw"] == body.decode()
        assert "raw" not in json.loads(build_poison_record(body.decode(), POISON))

    @pytest.mark.parametrize("version", ["true", "1.0"])
    def test_the_version_is_the_integer_one(self, version: str) -> None:
        text = compact(FULL).decode().replace('"schema_version":1', f'"schema_version":{version}')
        assert publish(text.encode()) is None and receive(text.encode()) is None
        assert EnvelopeCodec.accepts(EnvelopeCodec.decode(text))

    def test_attempts_fit_int64(self) -> None:
        text = compact({**FULL, "attempts": 2**63}).decode()
        assert publish(text.encode()) is None and receive(text.encode()) is None
        assert EnvelopeCodec.accepts(EnvelopeCodec.decode(text))

    def test_negative_attempts_are_received_and_not_published(self) -> None:
        body = compact({**FULL, "attempts": -1})
        assert publish(body) is None and receive(body) is not None

    @pytest.mark.parametrize("extra", [{"timestamp": 1}, {"urn": "b"}, {"dead_letter": {"reason": "failed"}}])
    def test_keys_that_the_sdk_drops_or_keeps_are_refused_on_publish(self, extra: dict[str, Any]) -> None:
        body = compact({**FULL, **extra})
        assert publish(body) is None and receive(body) is not None
        assert EnvelopeCodec.accepts(EnvelopeCodec.decode(body.decode()))

    @pytest.mark.parametrize("name", ["id", "queue", "lang", "created_at"])
    def test_a_producer_writes_the_whole_of_meta(self, name: str) -> None:
        body = compact({**FULL, "meta": {key: value for key, value in FULL["meta"].items() if key != name}})
        assert publish(body) is None and receive(body) is not None
        assert EnvelopeCodec.accepts(EnvelopeCodec.decode(body.decode()))

    def test_an_envelope_without_identity_is_refused_and_not_raised_at_the_reader(self) -> None:
        body = compact({**FULL, "job": " "})
        assert publish(body) is None and receive(body) is None
        with pytest.raises(BabelQueueError):
            EnvelopeCodec.decode(body.decode())

    def test_depth_is_bounded(self) -> None:
        body = compact(FULL).replace(b"1042", b"[" * 600 + b"]" * 600)
        assert publish(body) is None and receive(body) is None
        assert sdk_accepts(body)
