"""What a client may publish, what becomes of it, and how it is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from babelgate.errors import EnvelopeError
from tests.unit.envelope.support import FULL, NOW, TRACE, changed, compact, is_uuid4, problems, read, without


class TestFull:
    def test_a_canonical_body_is_returned_as_it_is(self) -> None:
        body = compact(FULL)
        assert read(body).envelope.body is body

    def test_a_canonical_body_with_unknown_keys_keeps_its_bytes(self) -> None:
        body = compact({**FULL, "meta": {**FULL["meta"], "ext": {"acme": [1.10]}}, "x": "é"})
        assert read(body).envelope.body == body

    @pytest.mark.parametrize("given", ["x" * 128, "a b~!", "0d61e907-f3c7-42e2-8deb-25d6fbf5ecb5"])
    @pytest.mark.parametrize("extra", [{}, {"x": 1}])
    def test_an_id_is_printable_ascii(self, given: str, extra: Mapping[str, Any]) -> None:
        assert read({**changed("/meta/id", given), **extra}).envelope.id == given

    def test_its_members_are_told(self) -> None:
        envelope = read(FULL).envelope
        assert (envelope.id, envelope.trace_id, envelope.job) == ("m-1", TRACE, FULL["job"])
        assert (envelope.attempts, envelope.created_at, envelope.lang) == (2, 5, "php")

    @pytest.mark.parametrize("extra", [{}, {"x": 1}])
    def test_order_and_whitespace_become_canonical(self, extra: Mapping[str, Any]) -> None:
        shuffled = {**dict(reversed(FULL.items())), "meta": dict(reversed(FULL["meta"].items())), **extra}
        assert read(json.dumps(shuffled, indent=3)).envelope.body == compact({**FULL, **extra})

    def test_job_and_trace_id_are_not_trimmed(self) -> None:
        body = compact({**FULL, "job": " a\t", "trace_id": " t "})
        assert read(body).envelope.body == body

    def test_the_alias_becomes_the_job(self) -> None:
        body = compact({"urn": "urn:a", **without("/job")})
        assert read(body).envelope.body == compact({**FULL, "job": "urn:a"})

    @pytest.mark.parametrize(
        ("pointer", "values", "code"),
        [
            ("/job", [None, "", " \t\n\v\f\r", 5, {}], "missing_urn"),
            ("/meta", [None, [], "x", 1], "missing_meta"),
            ("/meta/schema_version", [None, 0, 2, "1", True, 1.0], "unsupported_schema_version"),
            ("/data", [None, [], "x", 1], "invalid_data"),
            ("/trace_id", [None, "", " \f", 7], "missing_trace_id"),
            ("/attempts", [None, -1, 1.0, "0", True, 2**63], "invalid_attempts"),
            ("/meta/id", [None, "", " ", 5, "x" * 129, "a\nb", "a\x7f", "é"], "invalid_id"),
            ("/meta/created_at", [None, -1, 1.5, "5", 2**63], "invalid_created_at"),
            ("/meta/queue", [None, "", 5], "invalid_queue"),
            ("/meta/queue", ["other", "Orders"], "queue_mismatch"),
            ("/meta/lang", [None, "cobol", "", 5, ["go"]], "invalid_lang"),
        ],
    )
    def test_a_wrong_member_is_refused_at_its_pointer(self, pointer: str, values: list[Any], code: str) -> None:
        for value in values:
            assert problems(changed(pointer, value)) == [(code, pointer)]

    @pytest.mark.parametrize(
        ("pointer", "code"),
        [
            ("/job", "missing_urn"),
            ("/meta", "missing_meta"),
            ("/meta/schema_version", "unsupported_schema_version"),
            ("/data", "invalid_data"),
            ("/trace_id", "missing_trace_id"),
            ("/attempts", "invalid_attempts"),
            ("/meta/id", "invalid_id"),
            ("/meta/created_at", "invalid_created_at"),
            ("/meta/queue", "invalid_queue"),
            ("/meta/lang", "invalid_lang"),
        ],
    )
    def test_every_member_is_needed(self, pointer: str, code: str) -> None:
        assert problems(without(pointer)) == [(code, pointer)]

    @pytest.mark.parametrize("literal", ["1e0", "0.0", "1E2"])
    def test_an_integer_is_written_as_one(self, literal: str) -> None:
        body = compact(FULL).replace(b'"attempts":2', f'"attempts":{literal}'.encode())
        assert problems(body) == [("invalid_attempts", "/attempts")]

    @pytest.mark.parametrize("literal", ["0", "-0", "9223372036854775807"])
    def test_bounds_of_an_integer(self, literal: str) -> None:
        body = compact(FULL).replace(b'"attempts":2', f'"attempts":{literal}'.encode())
        assert read(body).envelope.attempts == int(literal)
        assert read(body).envelope.body.endswith(f'"attempts":{int(literal)}}}'.encode())

    def test_all_problems_come_at_once_in_the_contracts_order(self) -> None:
        body = {
            "attempts": -1,
            "data": [],
            "trace_id": 1,
            "meta": {"schema_version": 2, "lang": "x", "ts": 1},
            "timestamp": 1,
        }
        assert [code for code, _ in problems(body)] == [
            "missing_urn",
            "unsupported_schema_version",
            "invalid_data",
            "missing_trace_id",
            "invalid_attempts",
            "invalid_id",
            "invalid_created_at",
            "invalid_queue",
            "invalid_lang",
            "forbidden_key",
            "forbidden_key",
        ]

    def test_the_trace_id_comes_with_the_refusal(self) -> None:
        with pytest.raises(EnvelopeError) as refused:
            read(without("/data"))
        assert refused.value.trace_id == TRACE


class TestDraft:
    def test_no_id_is_made_twice(self) -> None:
        """Also not by a process that was forked, which has the memory of its parent."""

        def made() -> list[str]:
            each = [read({"job": "a", "data": {}}).envelope for _ in range(200)]
            return [id_ for one in each for id_ in (one.id, one.trace_id)]

        made()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, "\n".join(made()).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            others = pipe.read().split()
        os.waitpid(child, 0)
        ours = made()
        assert all(map(is_uuid4, [*ours, *others]))
        assert len({*ours, *others}) == 800

    def test_it_is_completed(self) -> None:
        made = read({"data": {"a": 1}, "job": "urn:a"}).envelope
        assert is_uuid4(made.id) and is_uuid4(made.trace_id) and made.id != made.trace_id
        meta = {"id": made.id, "queue": "orders", "lang": "python", "schema_version": 1, "created_at": NOW}
        expected = {"job": "urn:a", "trace_id": made.trace_id, "data": {"a": 1}, "meta": meta, "attempts": 0}
        assert made.body == compact(expected)
        assert (made.job, made.attempts, made.created_at, made.lang) == ("urn:a", 0, NOW, "python")

    @pytest.mark.parametrize("extra", [{}, {"delay_seconds": 1}])
    def test_what_is_given_is_kept(self, extra: Mapping[str, Any]) -> None:
        given = {"job": "urn:a", "trace_id": "t-1", "data": {}, "meta": {"lang": "go", "queue": "orders"}, **extra}
        made = read(given).envelope
        assert (made.trace_id, made.lang) == ("t-1", "go")

    def test_meta_extensions_follow_the_known_members(self) -> None:
        made = read({"meta": {"ext": {"acme": 1.10}}, "job": "a", "data": {}}).envelope
        assert b',"created_at":%d,"ext":{"acme":1.1}},"attempts":0}' % NOW in made.body

    @pytest.mark.parametrize(
        ("extra", "pointer"),
        [
            ({"x": 1}, "/x"),
            ({"delay_second": 60}, "/delay_second"),
            ({"a/b": 1}, "/a~1b"),
            ({"meta": {"language": "go"}}, "/meta/language"),
            ({"meta": {"flag": None}}, "/meta/flag"),
        ],
    )
    def test_an_unknown_member_is_refused_with_the_valid_names(self, extra: Mapping[str, Any], pointer: str) -> None:
        draft = {"job": "a", "data": {}, **extra}
        assert problems(draft) == [("unknown_member", pointer)]
        assert problems({"envelope": draft}) == [("unknown_member", "/envelope" + pointer)]
        with pytest.raises(EnvelopeError) as refused:
            read(draft)
        valid = "lang, queue, ext" if "meta" in extra else "job, urn, trace_id, data, meta, delay_seconds, ordering_key"
        assert valid in refused.value.detail

    @pytest.mark.parametrize("extra", [{}, {"delay_seconds": 1}])
    def test_job_and_trace_id_are_trimmed_with_the_six_characters(self, extra: Mapping[str, Any]) -> None:
        made = read({"job": " \t\n\v\f\r\u00a0a\u2003 ", "trace_id": "\tt ", "data": {}, **extra}).envelope
        assert (made.job, made.trace_id) == ("\u00a0a\u2003", "t")

    def test_a_trace_id_that_is_null_asks_for_a_new_one(self) -> None:
        assert is_uuid4(read({"job": "a", "data": {}, "trace_id": None}).envelope.trace_id)

    @pytest.mark.parametrize("given", ["", " \t"])
    def test_a_blank_trace_id_is_refused(self, given: str) -> None:
        assert problems({"job": "a", "data": {}, "trace_id": given}) == [("missing_trace_id", "/trace_id")]

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"specversion": "1.0", "type": "a", "args": []}, ""),
            ({"type": "a", "args": {}}, "/args"),
            ({"args": []}, "/type"),
            ({"specversion": 2, "type": "a", "args": []}, "/specversion"),
        ],
    )
    def test_a_job_of_the_open_job_spec_is_called_one(self, body: Any, pointer: str) -> None:
        assert problems(body)[0] == ("invalid_job", pointer)

    def test_the_alias_becomes_the_job(self) -> None:
        assert read({"urn": " urn:a ", "data": {}}).envelope.job == "urn:a"
        assert b'urn":' not in read({"urn": "a", "data": {}}).envelope.body

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({}, [("missing_urn", "/job"), ("invalid_data", "/data")]),
            ({"job": " ", "data": {}}, [("missing_urn", "/job")]),
            ({"job": "a", "data": {}, "meta": []}, [("missing_meta", "/meta")]),
            ({"job": "a", "data": {}, "meta": None}, [("missing_meta", "/meta")]),
            ({"job": "a", "data": {}, "trace_id": 5}, [("missing_trace_id", "/trace_id")]),
            ({"job": "a", "data": {}, "meta": {"queue": "b"}}, [("queue_mismatch", "/meta/queue")]),
            ({"job": "a", "data": {}, "meta": {"lang": "cobol"}}, [("invalid_lang", "/meta/lang")]),
            ({"job": "a", "data": {}, "timestamp": 1}, [("forbidden_key", "/timestamp")]),
            ({"job": "a", "data": {}, "meta": {"ts": 1}}, [("forbidden_key", "/meta/ts")]),
            ({"job": "a", "data": {}, "meta": {"source": 1}}, [("forbidden_key", "/meta/source")]),
            ({"job": "a", "data": {}, "meta": {"attempts": 1}}, [("forbidden_key", "/meta/attempts")]),
            ({"job": "a", "data": {}, "meta": {"max_retries": 1}}, [("forbidden_key", "/meta/max_retries")]),
            ({"job": "a", "urn": "a", "data": {}}, [("forbidden_key", "/urn")]),
            ({"job": "a", "data": {}, "dead_letter": {}}, [("reserved_key", "/dead_letter")]),
        ],
    )
    def test_what_is_refused(self, body: Any, expected: list[tuple[str, str]]) -> None:
        assert problems(body) == expected
