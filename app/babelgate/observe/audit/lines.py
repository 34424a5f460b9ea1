"""The form of the trail: names of its files, and lines that are chained by SHA-256 and sealed by HMAC.

A line is one JSON object. ``seq`` counts the lines of a chain from 1, ``prev`` is the SHA-256 of the former line
without its line end, ``key`` names the key, and ``mac``, the last member, is the HMAC-SHA-256 of the line without
``mac``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

FIRST = "0" * 64
"""The ``prev`` of the first line of a chain."""
_CONTEXT = b"babelgate audit 1"
"""Makes the key of the trail another one than that of ack tokens."""
_FILE = re.compile(r"(?P<chain>[A-Za-z0-9._-]+-\d+)\.(?P<number>\d{8})\.jsonl")
_HEAD = ".head"
_MAC = b',"mac":"'
_encode = msgspec.json.Encoder().encode


class AuditKey(Struct, frozen=True):
    """A key of the trail. ``secret`` is derived from that of a token key."""

    id: str
    secret: bytes

    @classmethod
    def of(cls, id: str, secret: bytes) -> AuditKey:
        """The key of the trail that belongs to a token key."""
        return cls(id, hmac.digest(secret, _CONTEXT, "sha256"))

    def digest(self, content: bytes) -> str:
        """A digest of ``content`` that cannot be guessed or compared with without the key."""
        return hmac.digest(self.secret, content, "sha256").hex()


class Head(Struct, frozen=True):
    """The end of a chain: its last ``seq``, and the SHA-256 of that line."""

    seq: int = 0
    hash: str = FIRST


def sealed(members: Mapping[str, Any], key: AuditKey) -> bytes:
    """The line of ``members`` with its ``mac``, without line end."""
    body = _encode({**members, "key": key.id})
    return b'%b%b%b"}' % (body[:-1], _MAC, key.digest(body).encode())


def seal_of(line: bytes) -> tuple[bytes, bytes]:
    """What the ``mac`` of a line covers, and the ``mac``; the latter is empty if the line has none."""
    body, found, mac = line.rpartition(_MAC)
    return (body + b"}", mac.removesuffix(b'"}')) if found else (line, b"")


def is_sealed(line: bytes, keys: Sequence[AuditKey], key_id: object) -> bool | None:
    """Whether the ``mac`` of a line is right; None if its key is not among ``keys``."""
    key = next((each for each in keys if each.id == key_id), None)
    if key is None:
        return None
    body, mac = seal_of(line)
    return hmac.compare_digest(key.digest(body).encode(), mac)


def hash_of(line: bytes) -> str:
    """The SHA-256 of a line without its line end."""
    return hashlib.sha256(line).hexdigest()


def members_of(line: bytes) -> dict[str, Any] | None:
    """The members of a line; None if it is not one JSON object with a number ``seq``."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and type(found.get("seq")) is int else None


def file_name(chain: str, number: int) -> str:
    """The name of the file ``number`` of a chain."""
    return f"{chain}.{number:08d}.jsonl"


def head_path(directory: Path, chain: str) -> Path:
    """The file that names the end of a chain."""
    return directory / f"{chain}{_HEAD}"


def files_of(directory: Path) -> dict[str, list[tuple[int, Path]]]:
    """The files of each chain in a directory, with their numbers, in order. Raises OSError."""
    chains: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(directory.iterdir()):
        if match := _FILE.fullmatch(path.name):
            chains.setdefault(match["chain"], []).append((int(match["number"]), path))
    return chains


def heads_of(directory: Path, keys: Sequence[AuditKey]) -> dict[str, Head | None]:
    """The end of each chain that has a file of it; None for one that is damaged, or was not sealed with ``keys``.
    Without keys no seal is checked. Raises OSError."""
    found = {}
    for path in sorted(directory.glob(f"*{_HEAD}")):
        found[path.name.removesuffix(_HEAD)] = read_head(path, keys)
    return found


def read_head(path: Path, keys: Sequence[AuditKey]) -> Head | None:
    """The end of the chain in ``path``; None for a damaged or forged one. Raises OSError."""
    line = path.read_bytes().rstrip()
    members = members_of(line)
    if members is None or (keys and not is_sealed(line, keys, members.get("key"))):
        return None
    if members.get("chain") != path.name.removesuffix(_HEAD):
        return None  # the head of another chain
    try:
        return msgspec.convert(members, Head)
    except msgspec.ValidationError:
        return None
