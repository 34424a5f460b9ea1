"""Large bodies are read in another way than small ones, and to the same end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from babelgate.envelope import Limits, Poison, canonical, describe_dead, inspect
from babelgate.errors import EnvelopeError
from babelgate.jsontext import MAX_POINTER, decode_object, pointer
from tests.unit.envelope.support import compact, read

PAD = "x" * 40_000
META = '{"id":"i","queue":"orders","lang":"go","schema_version":1,"created_at":5}'

VALUES = [
    "1",
    "1.10",
    "-0",
    "1e400",
    "9" * 400,
    "[[],{}]",
    r'"\ud800"',
    r'{"\ud800":1}',
    r'"\ud83d\ude80 \u00e9 \/"',
    "NaN",
    "[1,]",
    '{"a":1,"a":2}',
    '"',
    "[" * 200 + "]" * 200,
    "[" * 600 + "]" * 600,
]
FRAMES = [
    '{{"job":"a","data":{{{pad}"v":{value}}}}}',
    '{{"job":"a","data":[{{{pad}"v":{value}}}]}}',
    '{{"job":"a","data":1,"data":{{{pad}"v":{value}}}}}',
    '{{"job":"a","data":{{{pad}"v":{value}}},"data":{{}}}}',
    '{{"job":"a","data":{{{pad}"v":{value}}},"data":{{{pad}"v":{value}}}}}',
    '{{"job":"a","d\\u0061ta":{{{pad}"v":{value}}}}}',
    '{{"job":"a", "data" : {{{pad}"v":{value}}} , "other":{{"n":1}} }}',
    '{{"job":"a","trace_id":"t","data":{{{pad}"v":{value}}},"meta":'
    + META.replace("{", "{{").replace("}", "}}")
    + ',"attempts":0}}',
    '{{"envelope":{{"job":"a","data":{{{pad}"v":{value}}}}},"headers":{{"h":"1"}}}}',
    '{{"envelope":{{"job":"a","data":{{{pad}"v":{value}}}}},"envelope":{{"job":"b","data":{{}}}}}}',
    '{{"job":"a","data":{{{pad}"v":{value}}}}}}}',
    '{{"job":"a","data":{{{pad}"v":{value}}},}}',
]


def outcome(body: bytes) -> Any:
    """What a publish of ``body`` comes to, without what is new each time and without the padding."""
    try:
        made = read(body)
    except EnvelopeError as refused:
        return [(problem.code, problem.pointer) for problem in refused.problems]
    document = made.envelope.body.replace(f'"pad":"{PAD}",'.encode(), b"")
    document = document.replace(made.envelope.id.encode(), b"ID").replace(made.envelope.trace_id.encode(), b"TRACE")
    return document, made.headers, made.envelope.job


@pytest.mark.parametrize("frame", FRAMES)
def test_padding_changes_nothing(frame: str) -> None:
    for value in VALUES:
        small = frame.format(pad="", value=value).encode()
        large = frame.format(pad=f'"pad":"{PAD}",', value=value).encode()
        assert outcome(large) == outcome(small), value
        assert found(large) == found(small), value
        assert describe_dead(large) == describe_dead(small), value


def found(body: bytes) -> Any:
    """What a consumer would read of ``body``."""
    try:
        return inspect(body, Limits()), canonical(body).replace(f'"pad":"{PAD}",'.encode(), b"")
    except Poison as poison:
        return poison.code, poison.pointer


def test_only_the_text_of_an_opaque_member_is_kept() -> None:
    data = {"pad": PAD, "n": [1, 2]}
    body = compact({"data": data, "meta": data, "list": [PAD]})
    members = decode_object(body, ("data", "list")).by_name()
    assert (members["data"].value, members["meta"].value, members["list"].value) == ({}, data, [PAD])
    assert str(decode_object(body, ("data",))).encode() == body
    assert json.loads(members["data"].raw) == data


def test_a_pointer_is_short() -> None:
    long = "k" * MAX_POINTER
    assert pointer("a", long, 0) == "/a"
    assert pointer("a", long[:-3], 0) == f"/a/{long[:-3]}"
    assert pointer(long[:-1], 1) == f"/{long[:-1]}"
    assert pointer("~" * 400) == ""


def test_a_long_name_does_not_make_the_problems_long() -> None:
    body = {"job": "a", "data": {"k" * 100_000: ["N"] * 1_000}}
    with pytest.raises(EnvelopeError) as refused:
        read(compact(body).replace(b'"N"', b"1e999"))
    assert {problem.pointer for problem in refused.value.problems} == {"/data"}
