"""The journal's line: its members in their order, what its schema says of them, and how files are called."""

from __future__ import annotations

import sys
from base64 import b64decode
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from babelgate import jsontext
from babelgate.observe.journal import record as journal
from babelgate.observe.journal.record import (
    EVENTS,
    SCHEMA,
    JournalEvent,
    Record,
    Segment,
    decode,
    embedded,
    encode,
    encode_into,
    new_epoch,
    parse_segment,
)
from tests.architecture.sources import imports

EPOCH = "018bcfe568001a2b3c4d"
FULL = Record(
    1, "a", EPOCH, 7, "delivered", 1700000000123, "orders", "main", "urn:a", "id", "trace", 2, 17, 60.0, 120, "go", None
)
LINE = (
    b'{"v":1,"node":"a","epoch":"018bcfe568001a2b3c4d","seq":7,"event":"delivered","at":1700000000123,"queue":"orders",'
    b'"broker":"main","job":"urn:a","message_id":"id","trace_id":"trace","attempts":2,"created_at":17,'
    b'"lease_seconds":60.0,"bytes":120,"lang":"go","outcome":null}'
)


def test_the_line_is_written_as_it_always_was() -> None:
    assert encode(FULL) == LINE
    assert decode(LINE) == decode(LINE + b"\n") == FULL
    buffer = bytearray(b"before\n")
    encode_into(FULL, buffer)
    assert buffer == b"before\n" + LINE + b"\n"


def test_the_schema_is_the_record() -> None:
    hints = get_type_hints(Record)
    assert [column.name for column in SCHEMA] == list(Record.__struct_fields__)
    types = {int: {"int", "long"}, float: {"double"}, msgspec.Raw: {"json"}, dict[str, str]: {"json"}}
    for column in SCHEMA:
        kinds = {kind for kind in get_args(hints[column.name]) or (hints[column.name],)}
        assert column.nullable == (type(None) in kinds), column.name
        assert column.optional == (UnsetType in kinds), column.name
        (kind,) = kinds - {type(None), UnsetType} if column.name != "event" else {str}
        assert column.type in types.get(kind, {"string"}), column.name
    assert tuple(EVENTS) == get_args(JournalEvent)


def test_a_reader_needs_nothing_but_msgspec() -> None:
    imported = {name for module in (journal, jsontext) for name in imports(Path(str(module.__file__)))}
    imported.remove(jsontext.__name__)
    assert {name.split(".")[0] for name in imported} - sys.stdlib_module_names == {"msgspec"}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0" * 40,
        LINE[:-20],
        b"[" * 10_000,
        LINE.replace(b"delivered", b"vanished"),
        LINE.replace(b'"seq":7', b'"seq":9223372036854775808'),
        LINE.replace(b"main", b"\xff"),
        LINE.replace(b'"node":"a",', b""),
    ],
)
def test_a_bad_line_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_a_member_that_is_new_is_passed_over() -> None:
    assert decode(LINE[:-1] + b',"later":{"x":1}}') == FULL


def test_nothing_is_left_of_a_line_that_cannot_be_written() -> None:
    buffer = bytearray(b"before\n")
    with pytest.raises(ValueError):
        encode_into(msgspec.structs.replace(FULL, trace_id="\ud800"), buffer)
    assert buffer == b"before\n"


@given(st.one_of(st.binary(), st.recursive(st.none() | st.text(), st.lists).map(msgspec.json.encode)))
def test_a_body_comes_back_byte_for_byte(body: bytes) -> None:
    envelope, other = embedded(body)
    line = encode(msgspec.structs.replace(FULL, envelope=envelope, envelope_base64=other))
    assert b"\n" not in line and b"\r" not in line
    found = decode(line)
    assert (found.envelope is UNSET) != (found.envelope_base64 is UNSET)
    assert body == (b64decode(str(found.envelope_base64)) if found.envelope is UNSET else bytes(found.envelope))


@pytest.mark.parametrize(
    ("body", "is_json"),
    [
        (b'{"a":1.10}', True),
        (b'{"a":\n1}', False),
        (b'{"a":\r1}', False),
        (b'{"a":1} ', False),
        (b'{"a":1}x', False),
        (b'{"a":"\xff"}', False),
        (b"[" * 900 + b"]" * 900, True),
        (b"[" * 901 + b"]" * 901, False),
        (b"[" * 5_000 + b"]" * 5_000, False),
        (b"", False),
    ],
)
def test_only_json_on_one_line_is_embedded(body: bytes, is_json: bool) -> None:
    assert (embedded(body)[0] is not UNSET) == is_json
    assert embedded(None) == (UNSET, UNSET)


def test_epochs_sort_by_their_start() -> None:
    earlier, later = new_epoch(1_699_999_999_999, b"\xff" * 4), new_epoch(1_700_000_000_000, b"\0" * 4)
    assert earlier < later and len(earlier) == len(later) == 20
    assert Segment("a", later, 1).started_at == 1_700_000_000_000


@pytest.mark.parametrize("node", ["a", "host-1.example", "x" * 64])
@pytest.mark.parametrize("ending", ["", ".open", ".gz", ".zst"])
def test_names_are_read_back(node: str, ending: str) -> None:
    segment = Segment(node, EPOCH, 12)
    assert segment.file_name == f"{node}-{EPOCH}-000012.ndjson"
    assert parse_segment(segment.file_name + ending) == segment


@pytest.mark.parametrize(
    "name", ["", "token.key", f"a-{EPOCH}.lock", f"a-{EPOCH}-000001.ndjson.gz.part", f".a-{EPOCH}-000001.ndjson"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert parse_segment(name) is None


def test_it_lands_in_the_hour_of_its_first_record() -> None:
    at: Any = 1_700_002_799_999  # 2023-11-14T22:59:59.999Z
    assert Segment("a", EPOCH, 1).landed(at) == f"date=2023-11-14/hour=22/a-{EPOCH}-000001.ndjson"
    assert Segment("a", EPOCH, 1).landed(at + 1).startswith("date=2023-11-14/hour=23/")
