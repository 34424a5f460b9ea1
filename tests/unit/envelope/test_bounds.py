"""Payloads, syntax, size and depth of what is published, and the entries that wrap it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from babelgate.envelope import Limits, Publication, options
from babelgate.errors import BodyTooLarge, EnvelopeError, EnvelopeSyntaxError
from tests.unit.envelope.support import FULL, compact, problems, read


class TestData:
    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            ('{"b":1.10,"a":-0,"c":12345678901234567890123}', None),
            ('{"a":1,"a":2}', None),
            ('{ "a" : [ 1 , 2.50 , { } ] }', '{"a":[1,2.50,{}]}'),
            (r'{"a":"\u00e9\/\u2028\ud83d\ude00\u007f"}', '{"a":"é/\u2028😀\x7f"}'),
            (r'{"a":"\u0022\u005c\u000a\u0000\u001F\b\f\n\r\t\"\\"}', r'{"a":"\"\\\n\u0000\u001f\b\f\n\r\t\"\\"}'),
            (r'{"a":"\\u00e9\\/"}', None),
            ('{"a":" x  y "}', None),
            ('{"a":1e300,"b":1E-400,"c":0e999}', None),
            ('{"id":"0d61e907-f3c7-42e2-8deb-25d6fbf5ecb5"}', None),
        ],
    )
    def test_it_is_minified_and_its_literals_stay(self, sent: str, kept: str | None) -> None:
        made = read(f'{{"job":"a","data":{sent}}}').envelope.body.decode()
        assert f'"data":{kept or sent},"meta"' in made

    @pytest.mark.parametrize("number", ["1e400", "-1e400", "1E+309", "9" * 310, "1.8e308", "-" + "9" * 5000])
    def test_a_number_beyond_a_double_is_refused(self, number: str) -> None:
        body = f'{{"job":"a","data":{{"x/y":[{{"~":{number}}}]}}}}'
        assert problems(body) == [("number_out_of_range", "/data/x~1y/0/~0")]

    @pytest.mark.parametrize("number", ["1" + "0" * 308, "9" * 308, "1.7976931348623157e308", "0." + "9" * 400])
    def test_a_long_number_within_a_double_is_kept(self, number: str) -> None:
        assert number.encode() in read(f'{{"job":"a","data":{{"n":{number}}}}}').envelope.body

    @pytest.mark.parametrize(
        ("text", "pointer"),
        [
            (r'"\ud800"', "/data/k"),
            (r'"\udc00"', "/data/k"),
            (r'"\ud800\u0041"', "/data/k"),
            (r'"\udc00\ud800"', "/data/k"),
            (r'"\ud83d\ude00\ud83d"', "/data/k"),
            (r'{"\ud800":1}', "/data/k"),
        ],
    )
    def test_a_lone_surrogate_is_refused(self, text: str, pointer: str) -> None:
        assert problems(f'{{"job":"a","data":{{"k":{text}}}}}') == [("lone_surrogate", pointer)]

    @pytest.mark.parametrize("name", ["job", "trace_id"])
    def test_a_lone_surrogate_in_the_frame_is_refused(self, name: str) -> None:
        body = json.dumps({"job": "a", "data": {}}).replace('"data"', f'"{name}":"x\\ud800","data"')
        assert problems(body) == [("lone_surrogate", f"/{name}")]

    def test_an_unknown_member_is_held_to_the_same(self) -> None:
        body = compact(FULL)[:-1].decode() + ',"x":1e400}'
        assert problems(body) == [("number_out_of_range", "/x")]

    def test_a_member_that_does_not_count_may_hold_anything(self) -> None:
        body = compact(FULL).decode()[1:-1]
        body = r'{"data":{"n":1e400},"x":"\ud800",' + body.replace('"meta":{', '"meta":{"y":1e400,"y":2,') + ',"x":1}'
        assert b'"x":1}' in read(body).envelope.body

    @pytest.mark.parametrize(("place", "pointer"), [("{", ""), ('"meta":{', "/meta")])
    def test_a_name_with_a_lone_surrogate_is_refused(self, place: str, pointer: str) -> None:
        body = compact(FULL).decode().replace(place, place + r'"\ud800":1,', 1)
        assert problems(body) == [("lone_surrogate", pointer)]

    def test_an_answer_tells_at_most_a_hundred_problems(self) -> None:
        assert len(problems('{"data":{"n":[' + "1e400," * 1000 + "1]}}")) == 100

    def test_in_the_frame_the_last_of_a_repeated_key_wins(self) -> None:
        body = '{"job":"x","job":"a","data":{"o":1},"meta":{"ext":1},"data":{"n":2},"meta":{"lang":"go"}}'
        made = json.loads(read(body).envelope.body)
        assert (made["job"], made["data"], made["meta"]["lang"]) == ("a", {"n": 2}, "go")
        assert "ext" not in made["meta"]


class TestSyntax:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"  ",
            b"null",
            b"[]",
            b'"x"',
            b"1",
            b"{",
            b'{"job"}',
            b'{"job":"a",}',
            b'{"job":"a"}{}',
            b'{"job":"a"} x',
            b"{'job':1}",
            b'{"job":"a","data":{"n":NaN}}',
            b'{"job":"a","data":{"n":-Infinity}}',
            b'{"job":"a","data":{"n":01}}',
            b'{"job":"a","data":{"n":"\x01"}}',
            b'{"job":"a","data":{"n":"\\x"}}',
            b'{"job":"a","data":{"n":"\xff"}}',
            b'{"job":"a","data":{"n":"\xed\xa0\x80"}}',
            b'\xef\xbb\xbf{"job":"a","data":{}}',
            '{"job":"a","data":{}}'.encode("utf-16"),
        ],
    )
    def test_what_is_not_one_object_is_a_syntax_error(self, body: bytes) -> None:
        with pytest.raises(EnvelopeSyntaxError) as refused:
            read(body)
        assert [(problem.code, problem.pointer) for problem in refused.value.problems] == [("invalid_json", "")]

    @pytest.mark.parametrize(("levels", "fits"), [(128, True), (129, False), (5000, False)])
    def test_depth_is_bounded(self, levels: int, fits: bool) -> None:
        inner = levels - 2
        body = '{"job":"a","data":{"n":' + "[" * inner + "]" * inner + "}}"
        if fits:
            assert read(body).envelope.body
        else:
            assert problems(body) == [("too_deep", "")]

    def test_width_is_not_depth(self) -> None:
        assert read('{"job":"a","data":{"n":[' + "[],{}," * 500 + '"]]]]"]}}').envelope.body

    def test_brackets_in_strings_are_not_depth(self) -> None:
        assert read({"job": "a", "data": {"n": '\\"' + "[" * 500}}).envelope.body


class TestSize:
    def test_the_body_as_sent_is_bounded(self) -> None:
        body = compact(FULL) + b" "
        with pytest.raises(BodyTooLarge) as refused:
            read(body, Limits(max_message_bytes=len(body) - 1))
        assert (refused.value.actual, refused.value.limit) == (len(body), len(body) - 1)

    def test_a_body_of_the_limit_fits(self) -> None:
        body = compact(FULL)
        assert read(body, Limits(max_message_bytes=len(body))).envelope.body is body

    @pytest.mark.parametrize("extra", [{}, {"trace_id": None}])
    def test_the_canonical_body_is_bounded(self, extra: Mapping[str, Any]) -> None:
        body = compact({"job": "a", "data": {}, **extra})
        size = len(read(body).envelope.body)
        assert read(body, Limits(max_message_bytes=size))
        with pytest.raises(BodyTooLarge) as refused:
            read(body, Limits(max_message_bytes=size - 1))
        assert (refused.value.actual, refused.value.limit) == (size, size - 1)

    def test_the_limits_themselves_are_checked(self) -> None:
        for wrong in ({"max_message_bytes": 0}, {"max_depth": 2}, {"max_depth": 801}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                Limits(**wrong)


OPTIONS: dict[str, Any] = {
    "delay_seconds": 1.5,
    "ordering_key": "c-1",
    "headers": {"a": "b", "c": " "},
    "idempotency_key": "k",
    "broker_properties": {"SessionId": "s", "TimeToLive": 1.5},
    "deliver_at": 1_790_000_000_000,
    "ttl_seconds": 0.5,
    "priority": 9,
}
WRONG: list[tuple[str, Any, tuple[str, str]]] = [
    ("delay_seconds", -1, ("invalid_delay", "/delay_seconds")),
    ("delay_seconds", "1", ("invalid_delay", "/delay_seconds")),
    ("delay_seconds", True, ("invalid_delay", "/delay_seconds")),
    ("deliver_at", -1, ("invalid_deliver_at", "/deliver_at")),
    ("deliver_at", 1.5, ("invalid_deliver_at", "/deliver_at")),
    ("deliver_at", True, ("invalid_deliver_at", "/deliver_at")),
    ("deliver_at", 2**63, ("invalid_deliver_at", "/deliver_at")),
    ("deliver_at", "2026-11-24T10:00:00Z", ("invalid_deliver_at", "/deliver_at")),
    ("ttl_seconds", 0, ("invalid_ttl", "/ttl_seconds")),
    ("ttl_seconds", True, ("invalid_ttl", "/ttl_seconds")),
    ("ttl_seconds", "1", ("invalid_ttl", "/ttl_seconds")),
    ("ttl_seconds", 315_360_001, ("invalid_ttl", "/ttl_seconds")),
    ("ordering_key", "", ("invalid_ordering_key", "/ordering_key")),
    ("ordering_key", " ", ("invalid_ordering_key", "/ordering_key")),
    ("ordering_key", "x" * 1025, ("invalid_ordering_key", "/ordering_key")),
    ("ordering_key", 5, ("invalid_ordering_key", "/ordering_key")),
    ("headers", [], ("invalid_headers", "/headers")),
    ("headers", {"a/b": 1}, ("invalid_headers", "/headers/a~1b")),
    ("headers", {"": "x"}, ("invalid_headers", "/headers")),
    ("headers", {"x": ""}, ("invalid_headers", "/headers/x")),
    ("idempotency_key", "\u00fc", ("invalid_idempotency_key", "/idempotency_key")),
    ("broker_properties", [], ("invalid_broker_properties", "/broker_properties")),
    ("broker_properties", "{}", ("invalid_broker_properties", "/broker_properties")),
    ("priority", -1, ("invalid_priority", "/priority")),
    ("priority", 10, ("invalid_priority", "/priority")),
    ("priority", 1.0, ("invalid_priority", "/priority")),
    ("priority", True, ("invalid_priority", "/priority")),
    ("priority", "high", ("invalid_priority", "/priority")),
    ("prio", 1, ("unknown_member", "/prio")),
]


class TestOptions:
    """The options of a message mean the same beside a draft and in an entry, and are refused in an envelope."""

    @pytest.mark.parametrize("extra", [{}, {"trace_id": None}])
    @pytest.mark.parametrize("options", [OPTIONS, *({name: value} for name, value in OPTIONS.items())])
    def test_beside_a_draft_they_mean_what_they_mean_in_an_entry(
        self, options: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> None:
        draft = {"job": "urn:a", "data": {"n": 1}, "trace_id": "t", **extra}
        beside, entry = read({**options, **draft}), read({"envelope": draft, **options})
        assert {name: getattr(beside, name) for name in options} == options
        assert beside == msgspec.structs.replace(entry, envelope=beside.envelope)
        document = json.loads(beside.envelope.body)
        assert list(document) == ["job", "trace_id", "data", "meta", "attempts"]
        assert list(document["meta"]) == ["id", "queue", "lang", "schema_version", "created_at"]

    def test_every_option_is_a_field_of_a_publication(self) -> None:
        assert tuple(OPTIONS) == tuple(options.OPTIONS) == Publication.__struct_fields__[1:]

    def test_null_is_absent(self) -> None:
        for name in ("job", "urn"):
            made = read({name: "a", "data": {}, **dict.fromkeys(OPTIONS)})
            assert made == Publication(made.envelope)
            assert made.envelope.body.endswith(b'"attempts":0}')

    @pytest.mark.parametrize(("member", "value", "expected"), WRONG)
    def test_a_wrong_one_is_refused_beside_a_draft(self, member: str, value: Any, expected: tuple[str, str]) -> None:
        assert problems({"job": "a", "data": {}, member: value}) == [expected]

    @pytest.mark.parametrize("value", [*OPTIONS.items(), *((name, None) for name in OPTIONS)])
    def test_beside_a_full_envelope_they_are_refused(self, value: tuple[str, Any]) -> None:
        name, given = value
        assert problems({**FULL, name: given}) == [("misplaced_option", f"/{name}")]
        assert problems({"envelope": {**FULL, name: given}}) == [("misplaced_option", f"/envelope/{name}")]

    def test_a_draft_in_an_entry_has_its_options_beside_it(self) -> None:
        entry = {"envelope": {"job": "a", "data": {}, "delay_seconds": 60}}
        with pytest.raises(EnvelopeError) as refused:
            read(entry)
        assert [problem.pointer for problem in refused.value.problems] == ["/envelope/delay_seconds"]
        assert refused.value.detail == (
            "delay_seconds belongs to the message and not to its envelope: "
            'send the entry {"envelope": {…}, "delay_seconds": 60}.'
        )

    def test_the_value_that_is_shown_is_bounded(self) -> None:
        with pytest.raises(EnvelopeError) as refused:
            read({**FULL, "headers": {"a": "x" * 1000}})
        assert refused.value.detail.endswith('{"envelope": {…}, "headers": …}.')

    def test_they_do_not_count_for_the_size_of_the_envelope(self) -> None:
        draft = {"job": "a", "data": {}}
        limits = Limits(max_message_bytes=len(read(draft).envelope.body))
        assert read({**draft, "headers": {"h": "x" * 1000}}, limits).headers == {"h": "x" * 1000}
        with pytest.raises(BodyTooLarge):
            read({**draft, "headers": {"h": "x" * 70_000}}, limits)


class TestEntry:
    def test_it_wraps_an_envelope(self) -> None:
        entry = {"envelope": FULL, "delay_seconds": 1.5, "ordering_key": "c-1", "headers": {"a": "b", "c": " "}}
        read_entry = read(entry)
        assert read_entry.envelope.body == compact(FULL)
        assert (read_entry.delay_seconds, read_entry.ordering_key) == (1.5, "c-1")
        assert read_entry.headers == {"a": "b", "c": " "}

    def test_it_wraps_a_draft(self) -> None:
        read_entry = read({"envelope": {"job": "a", "data": {}}})
        assert read_entry.envelope.job == "a"
        assert (read_entry.delay_seconds, read_entry.ordering_key, read_entry.headers) == (None, None, {})

    def test_null_is_absent(self) -> None:
        entry = {
            "envelope": FULL,
            "delay_seconds": None,
            "ordering_key": None,
            "headers": None,
            "idempotency_key": None,
        }
        assert read(entry) == Publication(msgspec.structs.replace(read(FULL).envelope, at="/envelope"), None, None, {})

    def test_a_body_with_a_job_is_no_entry(self) -> None:
        made = read({**FULL, "envelope": {"x": 1}})
        assert b'"envelope":{"x":1}' in made.envelope.body
        assert problems({"job": "a", "data": {}, "envelope": {}}) == [("unknown_member", "/envelope")]

    @pytest.mark.parametrize(("member", "value", "expected"), WRONG)
    def test_a_wrong_member_is_refused(self, member: str, value: Any, expected: tuple[str, str]) -> None:
        assert problems({"envelope": FULL, member: value}) == [expected]

    @pytest.mark.parametrize("literal", ["1e400", "9" * 400])
    def test_an_endless_delay_is_refused(self, literal: str) -> None:
        body = b'{"delay_seconds":' + literal.encode() + b',"envelope":' + compact(FULL) + b"}"
        assert problems(body) == [("invalid_delay", "/delay_seconds")]

    @pytest.mark.parametrize(
        ("name", "value"), [("ordering_key", r'"\ud800"'), ("headers", r'{"h":"\ud800"}')], ids=["key", "headers"]
    )
    def test_a_lone_surrogate_is_refused(self, name: str, value: str) -> None:
        body = f'{{"{name}":{value},"envelope":{{"job":"a","data":{{}}}}}}'
        assert [code for code, _ in problems(body)] == [f"invalid_{name}"]

    def test_the_problems_of_the_envelope_come_first_below_its_pointer(self) -> None:
        assert problems({"prio": 1, "envelope": {"data": [], "meta": {"ts": 1}}}) == [
            ("missing_urn", "/envelope/job"),
            ("invalid_data", "/envelope/data"),
            ("forbidden_key", "/envelope/meta/ts"),
            ("unknown_member", "/prio"),
        ]

    @pytest.mark.parametrize("wrapped", [None, [], "x"])
    def test_the_envelope_is_an_object(self, wrapped: Any) -> None:
        assert problems({"envelope": wrapped, "x": 1})[0] == ("invalid_entry", "/envelope")

    def test_the_size_limit_is_that_of_the_envelope(self) -> None:
        size = len(compact(FULL))
        entry = b'{"headers":{"h":"' + b"x" * 1000 + b'"},"envelope":' + compact(FULL) + b"}"
        assert read(entry, Limits(max_message_bytes=size)).envelope.body == compact(FULL)
        with pytest.raises(BodyTooLarge) as refused:
            read(entry, Limits(max_message_bytes=size - 1))
        assert refused.value.actual == size

    def test_what_stands_beside_the_envelope_is_bounded(self) -> None:
        entry = {"headers": {"h": "x" * 70_000}, "envelope": FULL}
        with pytest.raises(BodyTooLarge):
            read(entry, Limits(max_message_bytes=1000))

    def test_depth_is_that_of_the_envelope(self) -> None:
        inner = "[" * 126 + "]" * 126
        assert read(f'{{"envelope":{{"job":"a","data":{{"n":{inner}}}}}}}').envelope.body
        assert problems(f'{{"envelope":{{"job":"a","data":{{"n":[{inner}]}}}}}}') == [("too_deep", "/envelope")]
