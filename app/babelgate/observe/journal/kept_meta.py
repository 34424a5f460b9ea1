"""The members of ``meta`` that records keep, so that messages are found by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

MAX_NAMES = 8
NAME = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
"""The path of a member below ``meta``, such as ``ext.shop.tenant``."""
MAX_NAME = 120
MAX_VALUE = 200
"""Characters of a value: it is an id or a name, and no text for people."""
_MAX_ESCAPED = 2 + 12 * MAX_VALUE
"""Bytes of such a value in JSON: a character beyond U+FFFF may be written as two escapes."""
MAX_META_BYTES = 65_536
"""A larger ``meta`` is not read: this one takes the event loop 0.1 ms."""


class _Body(Struct, gc=False):
    meta: Raw = Raw()


class _Level(Struct, gc=False):
    """The members below one of ``meta``. ``name``: the whole path, if the member itself is kept."""

    below: dict[str, _Level]
    name: str | None = None


_bodies = msgspec.json.Decoder(_Body)
_members = msgspec.json.Decoder(dict[str, Raw])


class KeptMeta:
    """Reads the members with ``names`` from bodies."""

    def __init__(self, names: Sequence[str]) -> None:
        self._root = _Level({})
        for name in names:
            level = self._root
            for part in name.split("."):
                level = level.below.setdefault(part, _Level({}))
            level.name = name

    def read(self, body: bytes) -> dict[str, str] | UnsetType:
        """The values in ``body`` by name, UNSET if there are none. Never raises.

        Numbers and booleans are given as in the JSON. Left out are objects, lists, null, an empty text, and all that is
        longer than MAX_VALUE. A body with an unpaired surrogate, which JSON can spell and Unicode lacks, has none.
        """
        found: dict[str, str] = {}
        try:
            meta = _bodies.decode(body).meta
            if len(memoryview(meta)) <= MAX_META_BYTES:
                _read(meta, self._root, found)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        return found or UNSET


def split(wanted: str) -> tuple[str, str]:
    """The name and the value of ``NAME=VALUE``, the form in which a member is searched and indexed."""
    name, _, value = wanted.partition("=")
    return name, value


def joined(kept: Mapping[str, str]) -> list[str]:
    """Each member as ``NAME=VALUE``."""
    return [f"{name}={value}" for name, value in kept.items()]


def _read(members: Raw, level: _Level, found: dict[str, str]) -> None:
    values = _members.decode(members)
    for part, below in level.below.items():
        value = values.get(part)
        if value is None:
            continue
        text = bytes(value)
        if text[:1] == b"{":
            if below.below:
                _read(value, below, found)
        elif below.name is not None and (kept := _kept(text)):
            found[below.name] = kept


def _kept(value: bytes) -> str:
    """The text that stands for a JSON value; an empty one if the value is not kept."""
    if len(value) > _MAX_ESCAPED or value[:1] in (b"[", b"n"):
        return ""
    text = msgspec.json.decode(value, type=str) if value[:1] == b'"' else value.decode()
    return text if len(text) <= MAX_VALUE else ""
