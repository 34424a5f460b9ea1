"""Bodies found on a queue: what is handed out, and what no consumer may see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from babelgate.envelope import Limits, Poison, inspect
from tests.unit.envelope.support import FULL, LIMITS, TRACE, changed, compact, without


def refused(body: Any, limits: Limits = LIMITS) -> str:
    with pytest.raises(Poison) as poison:
        inspect(body if isinstance(body, bytes) else compact(body), limits)
    assert poison.value.detail
    return poison.value.code


def test_a_valid_body_is_told() -> None:
    for body in (compact(FULL), json.dumps({"x": 1, **FULL}, indent=2).encode()):
        received = inspect(body, LIMITS)
        assert (received.id, received.trace_id, received.job) == ("m-1", TRACE, FULL["job"])
        assert (received.attempts, received.created_at, received.lang) == (2, 5, "php")
        assert received.warnings == ()


@pytest.mark.parametrize("absent", [("/meta/id",), ("/meta/created_at",), ("/meta/lang",), ("/meta/queue",)])
def test_consumers_need_no_more_of_meta_than_its_version(absent: tuple[str]) -> None:
    received = inspect(compact(without(*absent)), LIMITS)
    assert {"/meta/id": received.id, "/meta/created_at": received.created_at, "/meta/lang": received.lang}.get(
        absent[0]
    ) is None


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/meta/lang", "cobol"),
        ("/meta/id", ""),
        ("/meta/id", None),
        ("/meta/created_at", -1),
        ("/attempts", -1),
        ("/trace_id", "\u00a0"),
        ("/dead_letter", {"reason": "failed", "error": None}),
        ("/dead_letter", None),
        ("/urn", "urn:b"),
        ("/data", {"a": 12345678901234567890123}),
    ],
)
def test_what_consumers_accept_although_producers_do_not_write_it(pointer: str, value: Any) -> None:
    assert inspect(compact(changed(pointer, value)), LIMITS).job == FULL["job"]


def test_a_lone_surrogate_is_accepted_as_the_sdks_accept_it() -> None:
    assert inspect(compact(FULL).replace(b"1042", rb'"\ud800"'), LIMITS).attempts == 2


@pytest.mark.parametrize(
    ("pointer", "values", "code"),
    [
        ("/job", [None, "", " \t\n\v\f\r", 5, {}], "missing_urn"),
        ("/meta", [None, [], "x"], "missing_meta"),
        ("/meta/schema_version", [None, 0, 2, "1", True, 1.0], "unsupported_schema_version"),
        ("/data", [None, [], "x"], "invalid_data"),
        ("/trace_id", [None, "", " \f", 7], "missing_trace_id"),
        ("/attempts", [None, 1.0, "0", True, 2**63, -(2**63) - 1], "invalid_attempts"),
        ("/meta/id", [5, {}], "invalid_id"),
        ("/meta/queue", [5], "invalid_queue"),
        ("/meta/lang", [5], "invalid_lang"),
        ("/meta/created_at", [1.5, "5", 2**63, True], "invalid_created_at"),
        ("/dead_letter", [[], "x", {"failed_at": 1.5}, {"attempts": "3"}, {"error": 5}], "invalid_dead_letter"),
    ],
)
def test_a_wrong_member_is_refused(pointer: str, values: list[Any], code: str) -> None:
    for value in values:
        assert refused(changed(pointer, value)) == code


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 400])
def test_a_number_beyond_a_double_is_refused_inside_data_only(number: bytes) -> None:
    assert refused(compact(FULL).replace(b"1042", number)) == "number_out_of_range"
    assert inspect(b'{"x":' + number + b"," + compact(FULL)[1:], LIMITS)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b'"data":[]', "invalid_data"),
        (b'"data":{"n":1e400}', "number_out_of_range"),
        (b'"attempts":"x"', "invalid_attempts"),
        (b'"trace_id":5', "missing_trace_id"),
        (b'"meta":{"id":5}', "invalid_id"),
        (b'"meta":{"id":5,"id":"x"}', "invalid_id"),
        (b'"\\u0064ata":[]', "invalid_data"),
    ],
)
def test_each_occurrence_of_a_repeated_member_has_to_be_of_its_type(first: bytes, code: str) -> None:
    assert refused(b"{" + first + b"," + compact(FULL)[1:]) == code


def test_of_repeated_members_the_last_counts() -> None:
    assert inspect(b'{"job":5,"data":{},"attempts":9,' + compact(FULL)[1:], LIMITS).attempts == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"not json", b'{"job":NaN}', b'{"a":"\xff"}', b'\xef\xbb\xbf{"job":"x"}', b"{}{}"],
)
def test_what_is_not_one_object_is_refused(body: bytes) -> None:
    assert refused(body) == "invalid_json"


@pytest.mark.parametrize("extra", [b"", b'"x":1,'])
def test_depth_is_what_every_sdk_reads(extra: bytes) -> None:
    def nested(levels: int) -> bytes:
        inner = b"[" * (levels - 2) + b"]" * (levels - 2)
        return b"{" + extra + compact(FULL)[1:].replace(b"1042", inner)

    assert inspect(nested(512), LIMITS)
    assert refused(nested(513)) == "too_deep"
    assert refused(nested(3000)) == "too_deep"
    assert inspect(nested(600), Limits(max_depth=600))


def test_the_first_code_in_the_contracts_order_is_told() -> None:
    body = {"trace_id": 5, "data": [], "attempts": "x", "meta": {"schema_version": 2}}
    assert refused(body) == "missing_urn"
    assert refused({"job": "a", **body}) == "unsupported_schema_version"
    assert refused({"job": "a", "trace_id": 5, "data": [], "attempts": "x"}) == "missing_meta"
    assert refused({**body, "job": "a", "meta": {"schema_version": 1, "id": 5}}) == "invalid_data"
    assert refused({**FULL, "trace_id": 5, "attempts": "x"}) == "missing_trace_id"


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ({"specversion": "1.0", "type": "a", "args": []}, ""),
        ({"specversion": "1.0", "type": "a"}, "/args"),
        ({"type": 5, "args": []}, "/type"),
        ({"type": "a"}, "/args"),
    ],
)
def test_a_job_of_the_open_job_spec_is_called_one(job: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Poison) as poison:
        inspect(compact(job), LIMITS)
    assert (poison.value.code, poison.value.pointer) == ("invalid_job", pointer)
    assert inspect(compact({**FULL, **job}), LIMITS).job == FULL["job"], "an envelope may have these members"


def test_warnings_name_what_a_re_emit_drops() -> None:
    body = {**FULL, "timestamp": 1, "urn": "b", "meta": {**FULL["meta"], "ts": 1, "max_retries": 2, "source": 3}}
    assert inspect(compact(body), LIMITS).warnings == (
        "/timestamp",
        "/meta/max_retries",
        "/meta/source",
        "/meta/ts",
        "/urn",
    )
    assert inspect(compact({**FULL, "job": 5, "urn": "b"}), LIMITS).warnings == ("/job",)
    assert inspect(compact({**FULL, "job": " ", "urn": "b"}), LIMITS).warnings == ()
    assert inspect(compact({**without("/job"), "urn": "b"}), LIMITS).warnings == ()
