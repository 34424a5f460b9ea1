"""The core sections of the official conformance suite, against the envelope codec.

What the suite calls make and encode is a publish; decode is ``inspect``; a re-emit is ``with_attempts`` or a
dead-letter record.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest

from babelgate import envelope
from babelgate.clock import now_ms
from babelgate.envelope import Limits, Poison
from babelgate.errors import EnvelopeError
from babelgate.gateway.routing import Policy
from tests.harness import conformance as suite

Case = Mapping[str, Any]
LIMITS = Limits()
COUNTS = {
    "cases": 8,
    "roundtrip": 9,
    "data_shape": 2,
    "forbidden_keys": 7,
    "extension_write": 5,
    "encode_reject": 13,
    "trim": 35,
    "job_type": 11,
    "identity_verdict": 97,
    "poison_dlq": 43,
    "retry_backoff": 18,
}
NOT_OURS = {
    "idempotency": "the duplicate check belongs to the consumer, which gets meta.id unchanged",
    "payload_schema": "the gateway does not validate payloads against schemas",
    "payload_schema_unicode": "the gateway does not validate payloads against schemas",
}


@pytest.fixture(autouse=True)
def _suite() -> None:
    suite.folder()


def publish(draft: Mapping[str, Any], queue: str = "orders") -> bytes:
    return envelope.read_publication(json.dumps(draft).encode(), queue, LIMITS, now_ms).envelope.body


def draft_of(case: Case) -> dict[str, Any]:
    meta = {**case.get("meta", {}), **case.get("extras_meta", {})}
    made = {"job": case["urn"], "data": case["data"], **case.get("extras_top", {})}
    return {**made, "meta": meta} if meta else made


@pytest.mark.parametrize("section", COUNTS)
def test_every_section_has_its_cases(section: str) -> None:
    assert len(suite.cases(section)) == COUNTS[section]


def test_no_core_section_is_forgotten() -> None:
    core = {name for name, found in suite.section("sections").items() if found["scope"] == "core"}
    for name in NOT_OURS:
        suite.record(name, "all", "not applicable", NOT_OURS[name])
    assert core == {*COUNTS, *NOT_OURS}


@suite.each_case("cases")
def test_cases(case: Case) -> None:
    with suite.judged("cases", case["name"]):
        body = suite.fixture(case)
        if not case["valid"]:
            with pytest.raises(Poison):
                envelope.inspect(body, LIMITS)
            return
        received = envelope.inspect(body, LIMITS)
        expected = case["expect"]
        assert (received.job, received.attempts, received.lang) == (
            expected["urn"],
            expected["attempts"],
            expected["lang"],
        )
        assert received.id and received.trace_id
        document = json.loads(envelope.with_attempts(body, received.attempts))
        suite.assert_holds(document, {"/meta/schema_version": expected["schema_version"]})
        if "data" in expected:
            suite.assert_holds(document, {"/data": expected["data"]})
        for name, value in expected.get("dead_letter", {}).items():
            suite.assert_holds(document, {f"/dead_letter/{name}": value})


@suite.each_case("roundtrip")
def test_roundtrip(case: Case) -> None:
    with suite.judged("roundtrip", case["name"]):
        body = suite.fixture(case)
        received = envelope.inspect(body, LIMITS)
        assert received.warnings == ()
        again = envelope.with_attempts(body, received.attempts + 1)
        if asked := case.get("apply_dead_letter"):
            block = envelope.dead_letter_block(
                asked["reason"], asked["original_queue"], received.attempts + 1, now_ms()
            )
            again = envelope.dead_letter_record(body, block)
        document = json.loads(again)
        suite.assert_holds(document, {"/attempts": case["expect_attempts"], **case["expect_preserved"]})
        suite.assert_absent(document, case.get("expect_absent_after_reencode", ()))
        for name, value in case.get("expect_dead_letter", {}).items():
            suite.assert_holds(document, {f"/dead_letter/{name}": value})


@suite.each_case("data_shape")
def test_data_shape(case: Case) -> None:
    with suite.judged("data_shape", case["name"]):
        if case["mode"] == "encode":
            body = publish({"job": case["urn"], "data": case["data"]}, case["queue"])
            assert f'"data":{case["expect_encoded_data_json"]},"meta"'.encode() in body
        else:
            assert case["valid"] is False
            with pytest.raises(Poison) as refused:
                envelope.inspect(suite.fixture(case), LIMITS)
            assert refused.value.code == "invalid_data"


@suite.each_case("forbidden_keys")
def test_forbidden_keys(case: Case) -> None:
    with suite.judged("forbidden_keys", case["name"]):
        body = suite.fixture(case)
        received = envelope.inspect(body, LIMITS)
        assert case["forbidden_key"] in received.warnings
        document = json.loads(envelope.with_attempts(body, received.attempts))
        suite.assert_absent(document, case["expect_absent_after_reencode"])
        suite.assert_holds(document, case.get("expect_preserved", {}))


@suite.each_case("extension_write")
def test_extension_write(case: Case) -> None:
    with suite.judged("extension_write", case["name"]):
        # A draft takes extensions below meta.ext only; the flat ones of the suite need a full envelope.
        made = json.loads(publish({"job": case["urn"], "data": case["data"]}, case["queue"]))
        body = publish({**made, "meta": made["meta"] | case["meta"]}, case["queue"])
        suite.assert_holds(json.loads(body), case["expect_envelope"])
        assert envelope.inspect(body, LIMITS).warnings == ()
        again = json.loads(envelope.with_attempts(body, 1))
        suite.assert_holds(again, {**case["expect_envelope"], "/attempts": 1})


@suite.each_case("encode_reject")
def test_encode_reject(case: Case) -> None:
    if "meta_entries" in case:
        entries = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in case["meta_entries"])
        body = f'{{"job":"{case["urn"]}","data":{json.dumps(case["data"])},"meta":{{{entries}}}}}'.encode()
        made = envelope.read_publication(body, case["queue"], LIMITS, now_ms).envelope.body
        name, last = case["meta_entries"][-1]
        assert json.loads(made)["meta"][name] == last
        reason = "entries come as one JSON object, where the last of a repeated member wins"
        suite.record("encode_reject", case["name"], "not applicable", reason)
        return
    with suite.judged("encode_reject", case["name"]), pytest.raises(EnvelopeError):
        publish(draft_of(case), case["queue"])


@suite.each_case("trim")
def test_trim(case: Case) -> None:
    with suite.judged("trim", case["name"]):
        {"make": trim_make, "decode": decode, "accepts": trim_accepts, "reemit": trim_reemit}[case["mode"]](case)


def trim_make(case: Case) -> None:
    draft = {"job": case["urn"], "data": {}, **({"trace_id": case["trace_id"]} if "trace_id" in case else {})}
    if case["expect"] == "reject":
        with pytest.raises(EnvelopeError) as refused:
            publish(draft)
        assert refused.value.problem_code == "missing_urn"
    else:
        made = json.loads(publish(draft))
        suite.assert_holds(made, {f"/{name}": value for name, value in case["expect"].items()})


def trim_accepts(case: Case) -> None:
    assert case["expect_decode_ok"] and not case["expect_accepts"]
    with pytest.raises(Poison) as refused:
        envelope.inspect(suite.fixture(case), LIMITS)
    assert refused.value.code == "missing_trace_id"


def trim_reemit(case: Case) -> None:
    body = suite.fixture(case)
    document = json.loads(envelope.with_attempts(body, envelope.inspect(body, LIMITS).attempts + 1))
    suite.assert_holds(document, {"/attempts": case["expect_attempts"], **case["expect_preserved"]})


@suite.each_case("job_type")
def test_job_type(case: Case) -> None:
    with suite.judged("job_type", case["name"]):
        decode(case)


def decode(case: Case) -> None:
    if case["valid"]:
        received = envelope.inspect(suite.fixture(case), LIMITS)
        assert received.job == case["expect"]["urn"]
        assert bool(received.warnings) == case["expect_warning"]
    else:
        with pytest.raises(Poison) as refused:
            envelope.inspect(suite.fixture(case), LIMITS)
        assert refused.value.code == "missing_urn"


@suite.each_case("identity_verdict")
def test_identity_verdict(case: Case) -> None:
    """The verdict knows no rule on absent members, so these are added; the type of each occurrence still counts."""
    with suite.judged("identity_verdict", case["name"]):
        body = completed(case["body"])
        if case["expect"] == "ok":
            assert envelope.inspect(body, LIMITS).job
        else:
            with pytest.raises(Poison):
                envelope.inspect(body, LIMITS)
            with pytest.raises(Poison):
                envelope.inspect(case["body"].encode(), LIMITS)


def completed(text: str) -> bytes:
    """``text`` with what a consumer requires beside an identity, where it is an object that lacks it."""
    try:
        given = json.loads(text)
    except ValueError:
        return text.encode()
    if not isinstance(given, dict):
        return text.encode()
    wanted: dict[str, Any] = {"trace_id": "t", "data": {}, "attempts": 0, "meta": {"schema_version": 1}}
    lacking = {name: value for name, value in wanted.items() if given.get(name) is None or name == "meta"}
    added = json.dumps(lacking)[1:]
    return (text.rstrip()[:-1] + ("," if given else "") + added).encode()


@suite.each_case("poison_dlq")
def test_poison_dlq(case: Case) -> None:
    with suite.judged("poison_dlq", case["name"]):
        body = b64decode(case["body_base64"]) if "body_base64" in case else case["body"].encode()
        block = envelope.dead_letter_block("poison", "orders", 0, now_ms(), "invalid_json: …")
        record = envelope.dead_letter_record(body, block)
        text = record.decode()
        expected = case["expect"]
        document = json.loads(text)
        suite.assert_holds(document, {"/dead_letter": block})
        del document["dead_letter"]
        if expected["shape"] == "wrapper":
            assert suite.same(document, expected["record"])
        elif expected["shape"] == "splice":
            assert suite.same(document, expected["record"])
            assert text.startswith(case["body"].strip(" \t\r\n")[:-1])
        else:
            assert not {"raw", "raw_encoding"} & set(document)
            assert set(document) == set(expected["splice_keys"])
            assert all(literal in text for literal in expected["splice_literals"])
            assert text.startswith(case["body"][:-1])


@suite.each_case("retry_backoff")
def test_retry_backoff(case: Case) -> None:
    base, growth, bound = (case[name] for name in ("retry_backoff", "retry_backoff_multiplier", "retry_backoff_max"))
    if case["retry_jitter"] != "none":
        suite.record("retry_backoff", case["name"], "not applicable", "backoff_seconds are exact: there is no jitter")
        return
    if base and growth > 1 and not bound:
        reason = "backoff_seconds is a list whose last delay repeats: growth without a bound cannot be written"
        suite.record("retry_backoff", case["name"], "not applicable", reason)
        return
    with suite.judged("retry_backoff", case["name"]):
        steps = [base] if base else []
        while steps and growth > 1 and steps[-1] < bound:
            steps.append(min(bound, steps[-1] * growth))
        assert Policy(backoff_seconds=tuple(steps)).backoff(case["n"]) == case["expect_delay_seconds"]


BROKEN = {
    "/job": (None, "", 5),
    "/trace_id": (None, 5, []),
    "/data": (None, [], "x"),
    "/meta": (None, [], "x"),
    "/meta/id": (None, 5),
    "/meta/queue": (None, "", 5),
    "/meta/lang": (None, "cobol", 5),
    "/meta/schema_version": (None, 2, "1", True, 1.5),
    "/meta/created_at": (None, -1, 1.5, "1"),
    "/attempts": (None, -1, 1.5, "0", True),
}


def test_the_producer_schema_accepts_what_is_published() -> None:
    with suite.judged("schema", "published"):
        schema = json.loads((suite.folder() / "schema" / "message-envelope.schema.json").read_text("utf-8"))
        validator = jsonschema_rs.Draft7Validator(schema)
        for draft in ({"job": "urn:a", "data": {}}, {"urn": "urn:a", "data": {"a": [1]}, "meta": {"lang": "go"}}):
            document = json.loads(publish(draft))
            assert validator.is_valid(document)
            again = json.loads(envelope.with_attempts(json.dumps(document).encode(), 3))
            assert validator.is_valid(again)
        block = envelope.dead_letter_block("failed", "orders", 3, now_ms(), "boom", "ValueError")
        assert validator.is_valid(json.loads(envelope.dead_letter_record(publish({"job": "a", "data": {}}), block)))


@pytest.mark.parametrize(("pointer", "value"), [(at, value) for at, values in BROKEN.items() for value in values])
def test_publish_refuses_what_the_producer_schema_refuses(pointer: str, value: Any) -> None:
    with suite.judged("schema", f"{pointer} {json.dumps(value)}"):
        schema = json.loads((suite.folder() / "schema" / "message-envelope.schema.json").read_text("utf-8"))
        document = json.loads(publish({"job": "urn:a", "data": {}}))
        *path, name = pointer.split("/")[1:]
        (document[path[0]] if path else document)[name] = value
        assert not jsonschema_rs.Draft7Validator(schema).is_valid(document)
        with pytest.raises(EnvelopeError) as refused:
            publish(document)
        assert pointer in {problem.pointer for problem in refused.value.problems}
