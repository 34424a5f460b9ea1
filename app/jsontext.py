"""JSON text, read and edited without losing a character.

The standard parser decides what JSON is; this module keeps the text beside the values, so that a member can be replaced
or dropped while every other character, number literal and repeated key stays as it was written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any

import msgspec

WHITESPACE = " \t\n\r"

_skip_whitespace = re.compile(r"[ \t\n\r]*").match
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_PIECE = re.compile(rf"{_STRING.pattern}|[ \t\n\r]+")
_BYTE_STRING = re.compile(_STRING.pattern.encode())
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_MARKS = bytes(code for code in range(256) if code not in _STEPS and code != ord('"'))
_SHAPES = bytes(ord("0") if 48 <= code <= 57 else ord("e") if code == 69 else code for code in range(256))
# The largest double has 309 digits before the point: a shorter run of digits without an exponent is finite.
_LONG_RUN = b"0" * 309
_find_exponent = re.compile(rb"0e").search
_INT_DIGITS = 40
_values = msgspec.json.Decoder()


class JsonSyntaxError(ValueError):
    """The text is not exactly one JSON object. The message says why, as a sentence without its full stop."""


class JsonTooDeep(ValueError):
    """The text is nested deeper than the parser can follow (some 900 levels)."""


def quote(text: str) -> str:
    """``text`` as a canonical JSON string: short escapes, ``\\u00xx`` for other controls, else literal."""
    return encode_basestring(text)


def pointer(*names: str | int) -> str:
    """The RFC 6901 pointer of the path ``names``."""
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in names)


@dataclass(slots=True)
class Member:
    """One member of an object: its decoded ``name`` and ``value``, and its text in five consecutive pieces."""

    name: str
    value: Any
    before: str
    key: str
    colon: str
    raw: str
    after: str

    def __str__(self) -> str:
        return self.before + self.key + self.colon + self.raw + self.after


@dataclass(slots=True)
class ObjectText:
    """A JSON object as text: ``str()`` gives back what was parsed, less the members that were taken out."""

    head: str
    members: list[Member]
    tail: str

    def __str__(self) -> str:
        return self.head + ",".join(map(str, self.members)) + self.tail

    def by_name(self) -> dict[str, Member]:
        """The members by name; of repeated names the last one, as every SDK reads them."""
        return {member.name: member for member in self.members}

    def remove(self, name: str, but: Member | None = None) -> None:
        """Take out the members called ``name``, except ``but``."""
        self.members = [member for member in self.members if member.name != name or member is but]

    def append(self, name: str, raw: str) -> None:
        """Add a member at the end."""
        self.members.append(Member(name, None, "", quote(name), ":", raw, ""))


def parse_object(text: str) -> ObjectText:
    """Split the JSON object ``text``. Raises JsonSyntaxError or JsonTooDeep.

    Numbers of any size, unpaired surrogate escapes and repeated names pass: see :func:`defects`.
    """
    if text.startswith("\ufeff"):
        raise JsonSyntaxError("it starts with a byte order mark")
    try:
        return _parse_object(text)
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise JsonTooDeep from None


def decode_object(body: bytes) -> ObjectText:
    """:func:`parse_object` of UTF-8 bytes."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise JsonSyntaxError(f"it is not valid UTF-8 at byte {error.start}") from None
    return parse_object(text)


def _parse_object(text: str) -> ObjectText:
    at = _after_whitespace(text, 0)
    if text[at : at + 1] != "{":
        raise JsonSyntaxError("it is empty" if at == len(text) else "it is not an object")
    at += 1
    closing = _after_whitespace(text, at)
    members: list[Member] = []
    head_end = at
    if text[closing : closing + 1] == "}":
        head_end, at = closing, closing + 1
    else:
        mark = ","
        while mark == ",":
            member, at = _parse_member(text, at)
            members.append(member)
            mark = text[at : at + 1]
            at += 1
        if mark != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at - 1)
    if _after_whitespace(text, at) != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return ObjectText(text[:head_end], members, text[at - 1 :])


def _parse_member(text: str, start: int) -> tuple[Member, int]:
    key = _after_whitespace(text, start)
    if text[key : key + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, key)
    name, key_end = _parser.raw_decode(text, key)
    colon = _after_whitespace(text, key_end)
    if text[colon : colon + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, colon)
    raw = _after_whitespace(text, colon + 1)
    value, raw_end = _parser.raw_decode(text, raw)
    end = _after_whitespace(text, raw_end)
    pieces = text[start:key], text[key:key_end], text[key_end:raw], text[raw:raw_end], text[raw_end:end]
    return Member(name, value, *pieces), end


def _after_whitespace(text: str, start: int) -> int:
    found = _skip_whitespace(text, start)
    return found.end() if found else start


def _integer(literal: str) -> int | float:
    # A float stands for what is beyond any int64: long digits are slow to convert, and refused past 4300.
    return int(literal) if len(literal) <= _INT_DIGITS else float(literal)


def _refuse_constant(name: str) -> Any:
    raise JsonSyntaxError(f"{name} is not JSON")


_parser = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse_constant)
_pairs_parser = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse_constant, object_pairs_hook=tuple)


def compact(raw: str) -> str:
    """``raw``, valid JSON without :func:`defects`, less its whitespace and with canonical escapes.

    Key order, repeated keys and number literals are kept.
    """
    text = msgspec.json.format(raw, indent=-1)
    if "\\u" in text or "\\/" in text:
        text = _STRING.sub(_canonical_string, text)
    return text


def compact_any(raw: str) -> str:
    """:func:`compact` of any valid JSON; strings with lone surrogates keep their escapes: UTF-8 has none for them."""
    return _PIECE.sub(_canonical_piece, raw) if has_lone_surrogate(raw) else compact(raw)


def _canonical_piece(piece: re.Match[str]) -> str:
    if piece[0][0] != '"':
        return ""
    made = _canonical_string(piece)
    return made if is_encodable(made) else piece[0]


def _canonical_string(string: re.Match[str]) -> str:
    text = string[0]
    return quote(_parser.raw_decode(text)[0]) if "\\" in text else text


def exceeds_depth(body: bytes, limit: int) -> bool:
    """Whether the valid JSON text ``body`` has more than ``limit`` levels of nesting; the outermost is the first."""
    if len(body) < 2 * limit or body.count(b"{") + body.count(b"[") <= limit:
        return False
    # A string without brackets leaves two quotes side by side; one with brackets, or escapes, needs a closer look.
    marks = body.translate(None, _NO_MARKS).replace(b'""', b"")
    if b'"' in marks or b"\\" in body:
        marks = _BYTE_STRING.sub(b"", body).translate(None, _NO_MARKS)
    return max(accumulate(map(_STEPS.__getitem__, marks)), default=0) > limit


def surely_finite(raw: bytes) -> bool:
    """Whether it is certain, at little cost, that each number of the valid JSON text ``raw`` is a finite double."""
    shapes = raw.translate(_SHAPES)
    if len(raw) > len(_LONG_RUN) and _LONG_RUN in shapes:
        return False
    if _find_exponent(shapes):
        try:
            _values.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
    return True


def has_lone_surrogate(raw: str) -> bool:
    """Whether the valid JSON text ``raw`` holds an unpaired surrogate escape."""
    if "\\u" not in raw:
        return False
    strings = (string[0] for string in _STRING.finditer(raw))
    return not all(is_encodable(_parser.raw_decode(text)[0]) for text in strings if "\\u" in text)


def is_plain(raw: str) -> bool:
    """Whether :func:`defects` of the valid JSON text ``raw`` is certainly empty."""
    return surely_finite(raw.encode()) and not has_lone_surrogate(raw)


def defects(raw: str) -> Iterator[tuple[str, str]]:
    """What the valid JSON text ``raw`` holds that cannot be carried to every language: pairs of pointer and code.

    ``number_out_of_range``: not a finite double. ``lone_surrogate``: not encodable as UTF-8; for a key, the pointer is
    that of its object.
    """
    todo: list[tuple[str, Any]] = [("", _pairs_parser.decode(raw))]
    while todo:
        at, value = todo.pop()
        if isinstance(value, float) and math.isinf(value):
            yield at, "number_out_of_range"
        elif isinstance(value, str) and not is_encodable(value):
            yield at, "lone_surrogate"
        elif isinstance(value, list):
            todo.extend(reversed([(f"{at}/{index}", item) for index, item in enumerate(value)]))
        elif isinstance(value, tuple):
            if not all(is_encodable(name) for name, _ in value):
                yield at, "lone_surrogate"
            todo.extend(reversed([(at + pointer(name), item) for name, item in value if is_encodable(name)]))


def is_encodable(text: str) -> bool:
    """Whether ``text`` holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
