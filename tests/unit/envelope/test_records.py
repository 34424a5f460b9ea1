"""Attempts, dead-letter records and redriven bodies: every other byte stays."""

from __future__ import annotations

import json
import random
from base64 import b64decode

import pytest

from babelgate.envelope import (
    DeadSummary,
    Poison,
    dead_letter_block,
    dead_letter_record,
    describe_dead,
    original,
    redriven,
    with_attempts,
    with_data,
)
from babelgate.envelope.editing import describe_any
from babelgate.envelope.fast_path import describe_ordinary
from tests.unit.envelope.support import FULL, TRACE, changed, compact

LOOSE = b' {\n "x" : 1.10 , "attempts" :2,"data":{"n": 1e400, "a":1,"a":2}, "job" : "a" }\n'
FAILED = dead_letter_block("failed", "orders", 3, 1_749_132_727_000, "boom", "ValueError", "go")
POISON = dead_letter_block("poison", "orders", 0, 7, "invalid_json: x")
BLOCK = (
    b'{"reason":"failed","error":"boom","exception":"ValueError","failed_at":1749132727000,'
    b'"original_queue":"orders","attempts":3,"lang":"go"}'
)


class TestAttempts:
    @pytest.mark.parametrize("attempts", [0, 3, 12345])
    def test_only_the_count_changes(self, attempts: int) -> None:
        assert with_attempts(compact(FULL), attempts) == compact({**FULL, "attempts": attempts})

    def test_whatever_the_body_looks_like(self) -> None:
        assert with_attempts(LOOSE, 7) == LOOSE.replace(b":2,", b":7,")

    def test_it_is_added_where_it_is_missing(self) -> None:
        assert with_attempts(b'{"job":"a"}', 1) == b'{"job":"a","attempts":1}'

    @pytest.mark.parametrize(
        "body",
        [
            b'{"a":"x,\\"attempts\\":5}","attempts":1}',
            b'{"attempts":1,"data":{"a":[],"attempts":5}}',
            b'{"data":{"b":1,"attempts":5},"attempts":1}',
            b'{"attempts":1,"z":"\\",\\"attempts\\":5"}',
        ],
    )
    def test_it_is_the_count_of_the_frame(self, body: bytes) -> None:
        assert json.loads(with_attempts(body, 9)) == {**json.loads(body), "attempts": 9}

    def test_of_repeated_counts_one_is_left(self) -> None:
        assert with_attempts(b'{"attempts":1,"job":"a","attempts":2}', 3) == b'{"job":"a","attempts":3}'
        assert with_attempts(b'{"\\u0061ttempts":1,"job":"a","attempts":2}', 3) == b'{"job":"a","attempts":3}'

    def test_forbidden_keys_are_dropped(self) -> None:
        body = b'{"timestamp" : 1, "meta":{"ts":1, "id" : "i","source":{}}, "job":"a" ,"urn":"b","attempts":1}'
        assert with_attempts(body, 1) == b'{ "meta":{ "id" : "i"}, "job":"a" ,"attempts":1}'

    def test_a_name_inside_data_is_not_forbidden(self) -> None:
        body = b'{"job":"a","data":{"urn":1,"timestamp":2,"ts":3},"attempts":1}'
        assert with_attempts(body, 2) == body.replace(b'"attempts":1', b'"attempts":2')

    @pytest.mark.parametrize("job", [b"", b'"job":" ",', b'"job":5,', b'"job":null,'])
    def test_the_alias_becomes_the_job(self, job: bytes) -> None:
        assert with_attempts(b"{" + job + b'"urn":" b","attempts":1}', 2) == b'{"job":" b","attempts":2}'

    def test_without_an_object_there_is_no_count(self) -> None:
        for body in (b"[]", b"", b"\xff", b"[" * 5000):
            with pytest.raises(Poison):
                with_attempts(body, 1)


class TestDeadLetterRecord:
    def test_the_block_is_spliced_in_last(self) -> None:
        assert dead_letter_record(LOOSE, FAILED) == LOOSE.replace(b":2,", b":3,").replace(
            b'"a" }', b'"a" ,"dead_letter":' + BLOCK + b"}"
        )

    def test_an_earlier_block_is_replaced(self) -> None:
        body = compact({"dead_letter": {"reason": "failed"}, **FULL})
        record = compact({**FULL, "attempts": 3})[:-1] + b',"dead_letter":' + BLOCK + b"}"
        assert dead_letter_record(body, FAILED) == record

    def test_absent_texts_are_null(self) -> None:
        block = dead_letter_block("unknown_urn", "q", 1, 2)
        record = json.loads(dead_letter_record(b'{"job":"a"}', block))
        assert record["dead_letter"] == {
            "reason": "unknown_urn",
            "error": None,
            "exception": None,
            "failed_at": 2,
            "original_queue": "q",
            "attempts": 1,
            "lang": "python",
        }

    def test_a_poison_object_keeps_every_byte(self) -> None:
        record = dead_letter_record(LOOSE, POISON)
        assert record.startswith(LOOSE.strip()[:-1] + b',"dead_letter":{"reason":"poison"')
        assert record.endswith(b"}}")

    def test_forbidden_keys_of_a_poison_object_stay(self) -> None:
        assert dead_letter_record(b'{"urn":5,"timestamp":1}', POISON).startswith(b'{"urn":5,"timestamp":1,"dead')

    @pytest.mark.parametrize("body", [b"{}", b" { } "])
    def test_an_empty_object_has_no_comma(self, body: bytes) -> None:
        assert json.loads(dead_letter_record(body, POISON)) == {"dead_letter": POISON}

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b'text \xe2\x82\xac "q" \\ \x01',
            b"[]",
            b'{"dead_letter":1}',
            rb'{"a":"\ud800"}',
            b'{"a":NaN}',
            b"[" * 5000,
        ],
    )
    def test_what_cannot_be_spliced_is_kept_as_text(self, body: bytes) -> None:
        assert json.loads(dead_letter_record(body, POISON)) == {"raw": body.decode(), "dead_letter": POISON}

    @pytest.mark.parametrize("block", [POISON, FAILED])
    def test_what_is_not_utf_8_is_kept_as_base64(self, block: dict[str, object]) -> None:
        record = json.loads(dead_letter_record(b'{"a":"\xff"}', block))
        assert b64decode(record.pop("raw")) == b'{"a":"\xff"}'
        assert record == {"raw_encoding": "base64", "dead_letter": block}


class TestDescription:
    def test_a_record_is_told(self) -> None:
        assert describe_dead(dead_letter_record(compact(FULL), FAILED)) == DeadSummary(
            "m-1", FULL["job"], TRACE, "failed", "boom", 1_749_132_727_000, 3
        )

    def test_a_wrapped_body_has_no_identity(self) -> None:
        summary = describe_dead(dead_letter_record(b"\xff", POISON))
        assert summary == DeadSummary(reason="poison", error="invalid_json: x", failed_at=7, attempts=0)

    @pytest.mark.parametrize("record", [b"", b"\xff", b"[]", b"5", b"{", b"[" * 5000, b'{"meta":5,"dead_letter":[]}'])
    def test_any_bytes_can_be_asked(self, record: bytes) -> None:
        assert describe_dead(record) == DeadSummary()

    def test_wrong_types_are_left_out(self) -> None:
        record = b'{"job":5,"urn":"u","trace_id":{},"meta":{"id":[]},"dead_letter":{"failed_at":1e3,"attempts":true}}'
        assert describe_dead(record) == DeadSummary(job="u")

    def test_a_lone_surrogate_is_told_as_its_escape(self) -> None:
        assert describe_dead(rb'{"job":"a\ud800"}').job == r"a\ud800"

    def test_a_foreign_record_without_a_block_tells_its_own_count(self) -> None:
        assert describe_dead(compact(FULL)) == DeadSummary("m-1", FULL["job"], TRACE, attempts=2)


class TestOrdinaryDescription:
    """Counting ten thousand letters must not take a complete reading of each."""

    RECORD = dead_letter_record(
        rb'{"job":"a:b","trace_id":"t","data":{"a":[1,{"b":"\u00e9"}]},"meta":{"id":"m-1","queue":"q","lang":"go",'
        rb'"schema_version":1,"created_at":5,"ext":{"x":1}},"attempts":2}',
        FAILED,
    )
    PIECES = (
        *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"1.0", b"1e3", b"-0", b"null", b"true"),
        *(b"\xff", b"\xc3\xa9", rb"\ud800", rb"\u0000", b"9" * 20, b"NaN", b"1e999", b"[" * 700, b"]" * 700),
        *(
            b'"job":" ",',
            b'"job":5,',
            b'"urn":"u",',
            b'"dead_letter":{},',
            b'"meta":{},',
            b'"attempts":7,',
            b'"id":null,',
        ),
    )

    def test_the_record_of_an_envelope_is_ordinary(self) -> None:
        assert describe_ordinary(self.RECORD) == describe_any(self.RECORD) == describe_dead(self.RECORD)

    def test_what_is_ordinary_is_described_as_any_other(self) -> None:
        chance, ordinary = random.Random(5), 0
        for _ in range(5_000):
            record = bytearray(self.RECORD)
            for _ in range(chance.choice([1, 1, 2])):
                at = chance.randrange(len(record) + 1)
                record[at : at + chance.choice([0, 0, 1, 3])] = chance.choice(self.PIECES)
            described = describe_ordinary(bytes(record))
            ordinary += described is not None
            assert described in (None, describe_any(bytes(record))), bytes(record)
        assert ordinary > 100


class TestRedriven:
    def test_the_block_goes_and_the_count_restarts(self) -> None:
        record = dead_letter_record(compact(FULL), FAILED)
        assert redriven(record) == compact({**FULL, "attempts": 0})

    def test_the_rest_keeps_its_bytes(self) -> None:
        record = b' {"dead_letter":{} , "x": 1.10, ' + compact(FULL)[1:]
        assert redriven(record) == b' { "x": 1.10, ' + compact({**FULL, "attempts": 0})[1:]

    def test_forbidden_keys_are_dropped(self) -> None:
        assert redriven(compact({**FULL, "timestamp": 1})) == compact({**FULL, "attempts": 0})

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"\xff", "missing_urn"),
            (b"text", "missing_urn"),
            (b'{"x":1}', "missing_urn"),
            (compact(changed("/data", [])), "invalid_data"),
        ],
    )
    def test_a_record_without_a_valid_envelope_stays(self, body: bytes, code: str) -> None:
        with pytest.raises(Poison) as refused:
            redriven(dead_letter_record(body, POISON))
        assert refused.value.code == code

    def test_bytes_that_are_no_record_stay(self) -> None:
        with pytest.raises(Poison, match="invalid_json"):
            redriven(b"text")


class TestOriginals:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"poison",
            b"[1]",
            b"\xff",
            b'"a text"',
            b"{}",
            b'{"a":1.10,"a":2}',
            b'{"a":"\\udc00"}',
            b'{"dead_letter":1}',
            b'{"raw":1}',
            b'{"raw":"{}"}',
            b'{"raw":"%%%","raw_encoding":"base64"}',
            b'{"raw":"YQ==","raw_encoding":"base64","more":1}',
        ],
    )
    def test_a_poison_record_gives_its_body_back(self, body: bytes) -> None:
        assert original(dead_letter_record(body, POISON)) == body

    @pytest.mark.parametrize("record", [b"", b"[]", b'{"job":"a"}'])
    def test_bytes_without_a_block_are_the_body(self, record: bytes) -> None:
        assert original(record) == record


class TestOtherData:
    def test_only_the_data_change(self) -> None:
        record = dead_letter_record(compact(FULL), FAILED)
        assert with_data(record, b'{"n":1.10}') == compact({**FULL, "attempts": 0, "data": 0}).replace(
            b'"data":0', b'"data":{"n":1.10}'
        )

    def test_they_are_added_and_repeated_ones_replaced(self) -> None:
        assert with_data(b'{"job":"a","attempts":3}', b"{}") == b'{"job":"a","attempts":0,"data":{}}'
        assert with_data(b'{"data":1,"data":2,"job":"a","attempts":1}', b"{}") == b'{"data":{},"job":"a","attempts":0}'

    def test_a_wrapped_object_is_unwrapped(self) -> None:
        record = dead_letter_record(b'{"job":"a","attempts":0,"x":"\\udc00"}', POISON)
        assert with_data(record, b"{}") == b'{"job":"a","attempts":0,"x":"\\udc00","data":{}}'

    def test_without_an_object_there_is_no_place_for_them(self) -> None:
        with pytest.raises(Poison):
            with_data(dead_letter_record(b"poison", POISON), b"{}")
