"""``pulsar.proto``: read as a whole, and the same on the wire as the PulsarApi.proto of the official client for Go."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from babelgate.brokers.pulsar import wire
from tests.harness.ci import missing
from tests.official.programs import _GO, _SOURCES

MODULE = "github.com/apache/pulsar-client-go"
NEWER = {"CommandPartitionedTopicMetadata.metadata_auto_creation_enabled"}
"""Fields that the client for Go does not know yet."""

OTHER_NAMES = {"error_code": "error", "error_message": "message"}
"""Official names of fields, and what they are called in other answers, and here in all."""

VARINT, BYTES = "varint", "bytes"
_KINDS = {FieldDescriptor.TYPE_BYTES: BYTES, FieldDescriptor.TYPE_STRING: BYTES}
_ON_THE_WIRE = dict.fromkeys(("string", "bytes"), BYTES) | dict.fromkeys(
    ("bool", "int32", "int64", "uint32", "uint64"), VARINT
)


def _block(source: str, begin: int) -> str:
    """What is between the brace before ``begin`` and the one that closes it."""
    depth, end = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(source[end], 0)
        end += 1
    return source[begin : end - 1]


def _official() -> dict[str, dict[int, tuple[str, bool, str]]]:
    """The messages of the official protocol: by number, the name of a field here, whether it is repeated, and its type
    on the wire."""
    if not shutil.which("go"):
        missing("go", "install Go")
    command = ["go", "mod", "download", "-json", MODULE]
    found = subprocess.run(command, cwd=_SOURCES / "go", env=_GO, capture_output=True, check=True)
    path = Path(json.loads(found.stdout)["Dir"], "pulsar/internal/pulsar_proto/PulsarApi.proto")
    source = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    messages = {each[1]: _block(source, each.end()) for each in re.finditer(r"message (\w+)\s*\{", source)}
    enums = set(re.findall(r"enum (\w+)", source))
    fields = re.compile(r"(required|optional|repeated)\s+([\w.]+)\s+(\w+)\s*=\s*(\d+)")
    return {
        message: {
            int(number): (
                OTHER_NAMES.get(name, name),
                label == "repeated",
                VARINT if kind.split(".")[-1] in enums else _ON_THE_WIRE.get(kind, kind),
            )
            for label, kind, name, number in fields.findall(block)
        }
        for message, block in messages.items()
    }


@pytest.mark.pulsar
@pytest.mark.slow
def test_the_fields_are_those_of_the_official_protocol() -> None:
    official = _official()
    newer = set()
    for message, made in wire._NAMES.items():
        for field in made.DESCRIPTOR.fields:
            there = official[message].get(field.number)
            if there is None:
                newer.add(f"{message}.{field.name}")
                continue
            kind = field.message_type.name if field.message_type else _KINDS.get(field.type, VARINT)
            if field.name == "encryption_keys":
                there = (*there[:2], BYTES)
            assert (field.name, field.is_repeated, kind) == there, (message, field.number)
    assert newer == NEWER


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("message A { optional int32 a = 1 [default = 1]; }", "optional"),
        ("message A { required int32 a = 1; }", "required"),
        ("message A { optional int32 a = 1; }\nenum B { C = 1; }", "enum"),
        ("message A { optional int32 a = 1;", "message"),
    ],
)
def test_a_source_with_an_unknown_form_is_refused(source: str, form: str) -> None:
    with pytest.raises(ValueError, match=f"unknown form: {form}"):
        wire._classes(source)


def test_comments_and_empty_messages_are_read() -> None:
    found = wire._classes("// message B {}\nmessage A { repeated A more = 2; } // C\nmessage D {}\n")
    assert list(found) == ["A", "D"]


@pytest.mark.parametrize("encoded", [b"\xa3\x06" * 5000 + b"\xa4\x06" * 5000, b"\x0b" * 100_000])
def test_groups_within_groups_are_malformed(encoded: bytes) -> None:
    with pytest.raises(wire.MalformedFrame):
        wire.read(wire.MessageMetadata, encoded)


def test_a_text_that_is_not_utf_8_is_malformed_to_protocol_buffers_in_python() -> None:
    program = """
from babelgate.brokers.pulsar import wire
try:
    wire.read(wire.BaseCommand, bytes.fromhex("ba01040a02fffe"))
except wire.MalformedFrame:
    print("malformed")
"""
    environ = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    assert subprocess.check_output([sys.executable, "-c", program], env=environ) == b"malformed\n"
