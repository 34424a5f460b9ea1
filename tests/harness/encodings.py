"""Broken encodings of JSON: what a client sends that takes other bytes for UTF-8, or breaks off."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

IN_STRINGS = {
    "a byte that is never": b"\xff",
    "a continuation alone": b"\x80",
    "C1 as bytes": b"\x85\x9f",
    "C1 as characters": "\x85\x9f".encode(),
    "latin-1": "é".encode("latin-1"),
    "overlong": b"\xc0\xaf",
    "overlong in three": b"\xe0\x80\xaf",
    "a NUL in two": b"\xc0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "a surrogate": b"\xed\xa0\x80",
    "a pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80",
    "an escaped surrogate": b"\\ud800",
    "escaped surrogates in the wrong order": b"\\udc00\\ud800",
    "a NUL": b"\x00",
    "an escaped NUL": b"\\u0000",
    "a control": b"\x1b",
    "an unknown escape": b"\\x41",
    "no hexadecimal": b"\\uzzzz",
    "an emoji": "😀".encode(),
    "a mark within": "\ufeff".encode(),
}
"""What is inserted into a name or a text."""


class Body(NamedTuple):
    """A body, and the fields of its head."""

    data: bytes
    fields: Mapping[str, str] = MappingProxyType({})

    @property
    def is_text(self) -> bool:
        """Whether it is UTF-8 without NUL, or has a coding."""
        try:
            return "\0" not in self.data.decode() or "Content-Encoding" in self.fields
        except UnicodeDecodeError:
            return "Content-Encoding" in self.fields


EMPTY = Body(b"")


def whole(text: bytes) -> dict[str, Body]:
    """Broken encodings of a whole body."""
    read = text.decode()
    gz = gzip.compress(text, mtime=0)
    found = {
        "a mark before it": b"\xef\xbb\xbf" + text,
        "marks before it": b"\xef\xbb\xbf" * 2 + text,
        "NUL behind it": text + b"\x00",
        "NUL before it": b"\x00" + text,
        "0xff behind it": text + b"\xff",
        "0xff before it": b"\xff" + text,
        "its half": text[: len(text) // 2],
        "a character cut at its end": text[:-1] + b"\xe2\x82",
        "nothing": b"",
        "null": b"null",
        "spaces": b" \t\r\n",
        "another space": "\u00a0".encode() + text,
        "only a mark": b"\xef\xbb\xbf",
        **{
            kind: read.encode(kind) for kind in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
        },
    }
    made = {name: Body(data) for name, data in found.items()}
    for name, coding, data in (
        ("no gzip", "gzip", text),
        ("half of gzip", "gzip", gz[: len(gz) // 2]),
        ("gzip without its sum", "gzip", gz[:-8]),
        ("gzip with a wrong sum", "gzip", gz[:-8] + bytes(8)),
        ("gzip and garbage", "gzip", gz + b"garbage"),
        ("nothing as gzip", "gzip", b""),
        ("a broken text in gzip", "gzip", gzip.compress(text.replace(b'"', b'"\xff', 1), mtime=0)),
        ("deflate as gzip", "gzip", zlib.compress(text)),
        ("deflate", "deflate", zlib.compress(text)),
        ("unknown", "br", text),
        ("two codings", "gzip, gzip", gzip.compress(gz)),
        ("a coding of other bytes", "\xff\xfe", text),
    ):
        made[name] = Body(data, {"Content-Encoding": coding})
    for charset in ("utf-16", "latin-1", "\xff", '"', "utf-8; charset=utf-16"):
        made[f"charset {charset}"] = Body(text, {"charset": charset})
    return made


def broken(texts: Sequence[bytes]) -> Iterator[tuple[str, Body]]:
    """JSON texts in each broken encoding, with a name for each. A string is broken once, wherever it stands alike, and
    only the first two texts are broken as a whole."""
    seen = set()
    for text in texts:
        for found in _STRING.finditer(text):
            around = found[0], text[max(found.start() - 20, 0) : found.end() + 1]
            if around in seen:
                continue
            seen.add(around)
            at = found.start() + 1
            for name, inserted in IN_STRINGS.items():
                yield f"{name} at {at} of {text!r}", Body(text[:at] + inserted + text[at:])
    for text in texts[:2]:
        for name, body in whole(text).items():
            yield f"{name} of {text!r}", body
