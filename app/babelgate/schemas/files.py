"""Reads a directory of schemas: one JSON file for each job, whose ``$id`` is the job."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from babelgate.envelope.contract import is_text
from babelgate.jsontext import decoded, exceeds_depth, is_encodable

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SUFFIX = ".json"
MAX_FILES = 2_000
MAX_FILE_BYTES = 1_048_576
MAX_BYTES = 16_777_216
"""Most bytes of all files together."""
MAX_DEPTH = 64
"""Most levels of nesting of a schema's JSON."""

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """The schema of a job. ``path``: within the directory; ``text``: the bytes of the file."""

    job: str
    path: str
    text: bytes
    schema: Schema

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes, in hexadecimal."""
        return hashlib.sha256(self.text).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """What is wrong in a file: ``path`` within the directory, RFC 6901 ``pointer``, and the reason."""

    path: str
    pointer: str
    reason: str

    def __str__(self) -> str:
        at = f" at {self.pointer}" if self.pointer else ""
        return f"{self.path}{at}: {self.reason}" if self.path else self.reason


class _Refused(Exception):
    pass


class _Bundle(msgspec.Struct):
    files: dict[str, msgspec.Raw]


_BUNDLE = msgspec.json.Decoder(_Bundle)


def read_files(directory: Path) -> tuple[dict[str, SchemaFile], list[SchemaFault]]:
    """The schemas below ``directory`` by their jobs, and what is wrong with the other files.

    Files that do not end in ``.json``, and all below a name that begins with a dot, are no schemas. Reads at most
    MAX_BYTES and blocks for the disk.
    """
    if not directory.is_dir():
        return {}, [SchemaFault("", "", f"{directory} is not a directory")]
    return _read((path.relative_to(directory).as_posix(), partial(_text, path)) for path in _paths(directory))


def read_bundle(bundle: bytes) -> tuple[dict[str, SchemaFile], list[SchemaFault]]:
    """The schemas of a bundle, which :func:`bundled` has made or another program, and what is wrong with the others."""
    try:
        files = decoded(_BUNDLE, bundle).files
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return {}, [SchemaFault("", "", f'is no bundle, which is {{"files": {{"NAME.json": SCHEMA, …}}}}: {error}')]
    return _read((name, partial(bytes, text)) for name, text in files.items())


def bundled(files: Iterable[SchemaFile]) -> bytes:
    """A bundle of ``files``: one JSON object with each schema as its file has it, by the path of the file."""
    each = (json.dumps(file.path).encode() + b": " + file.text.strip() for file in sorted(files, key=_path_of))
    return b'{"files": {\n' + b",\n".join(each) + b"\n}}\n"


def _path_of(file: SchemaFile) -> str:
    return file.path


def _read(found: Iterable[tuple[str, Callable[[], bytes]]]) -> tuple[dict[str, SchemaFile], list[SchemaFault]]:
    files: dict[str, SchemaFile] = {}
    faults: list[SchemaFault] = []
    size = count = 0
    for name, read in found:
        count += 1
        try:
            text = read()
            size += len(text)
            if count > MAX_FILES or size > MAX_BYTES:
                reason = f"there are more than {MAX_FILES} files, or more than {MAX_BYTES} bytes"
                return files, [*faults, SchemaFault("", "", reason)]
            file = _file(name, text)
        except _Refused as refused:
            faults.append(SchemaFault(name, "", str(refused)))
            continue
        if file.job in files:
            faults.append(SchemaFault(name, "/$id", f"{files[file.job].path} has the same $id"))
        else:
            files[file.job] = file
    return files, faults


def _paths(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUFFIX) and name[0] != ".")


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _Refused(f"cannot be read: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise _Refused(f"has more than {MAX_FILE_BYTES} bytes")
    return text


def _file(name: str, text: bytes) -> SchemaFile:
    if exceeds_depth(text, MAX_DEPTH):
        raise _Refused(f"has more than {MAX_DEPTH} levels of nesting")
    try:
        schema = json.loads(text.decode(), object_pairs_hook=_members, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise _Refused("is not UTF-8") from None
    except ValueError as error:
        raise _Refused(f"is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise _Refused("must be an object: a JSON Schema")
    job = schema.get("$id")
    if not isinstance(job, str) or not is_text(job) or not is_encodable(job) or "#" in job:
        raise _Refused("needs the member $id, the job whose data it describes, such as urn:babel:shop:order.placed")
    dialect = schema.get("$schema", DIALECT)
    if dialect not in (DIALECT, DIALECT + "#"):
        raise _Refused(f"$schema must be {DIALECT}, the only dialect that is supported")
    return SchemaFile(job, name, text, schema)


def _members(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Refused(f"has the member {next(name for name in names if names.count(name) > 1)!r} twice in one object")
    return members


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"is not JSON: {name} is no number of JSON")
