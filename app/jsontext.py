"""JSON text, read and edited without losing a character.

The standard parser decides what JSON is; this module keeps the text beside the values, so that a member can be replaced
or dropped while every other character, number literal and repeated key stays as it was written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any

import msgspec

WHITESPACE = " \t\n\r"

_skip_whitespace = re.compile(r"[ \t\n\r]*").match
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_PIECE = re.compile(rf"{_STRING.pattern}|[ \t\n\r]+")
_TOKEN = re.compile(rf"{_STRING.pattern}|[\[\]{{}},]|-?[0-9][0-9.eE+-]*")
"""What tells where a value stands, and which it is; white space, colons and true, false, null do not."""
_BYTE_STRING = re.compile(_STRING.pattern.encode())
_MARKS_AT_ONCE = 65_536
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_MARKS = bytes(code for code in range(256) if code not in _STEPS and code != ord('"'))
_SHAPES = bytes(ord("0") if 48 <= code <= 57 else ord("e") if code == 69 else code for code in range(256))
# The largest double has 309 digits before the point: a shorter run of digits without an exponent is finite.
_LONG_RUN = b"0" * 309
_find_exponent = re.compile(rb"0e").search
_INT_DIGITS = 40
_LARGE = 32_768
_values = msgspec.json.Decoder()


class JsonSyntaxError(ValueError):
    """The text is not exactly one JSON object. The message says why, as a sentence without its full stop."""


class JsonTooDeep(ValueError):
    """The text is nested deeper than the parser can follow (some 900 levels)."""


def quote(text: str) -> str:
    """``text`` as a canonical JSON string: short escapes, ``\\u00xx`` for other controls, else literal."""
    return encode_basestring(text)


MAX_POINTER = 512
"""Characters of a pointer: a name may have a million, and an answer may hold a hundred pointers."""


def pointer(*names: str | int) -> str:
    """The RFC 6901 pointer of the path ``names``; where it is longer than MAX_POINTER, that of the nearest ancestor
    whose pointer is not."""
    made = ""
    for name in names:
        # A longer one does not fit in any case.
        longer = f"{made}/{str(name)[:MAX_POINTER].replace('~', '~0').replace('/', '~1')}"
        if len(longer) > MAX_POINTER:
            break
        made = longer
    return made


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


def parse_object(text: str, opaque: Collection[str] = ()) -> ObjectText:
    """Split the JSON object ``text``. Raises JsonSyntaxError or JsonTooDeep.

    Numbers of any size, unpaired surrogate escapes and repeated names pass: see :func:`defects`. ``opaque``: members
    of which only the text is wanted; where they are large objects, their values may be ``{}``.
    """
    if text.startswith("\ufeff"):
        raise JsonSyntaxError("it starts with a byte order mark")
    try:
        return _parse_object(text, _object_texts(text, opaque))
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise JsonTooDeep from None


def decode_object(body: bytes, opaque: Collection[str] = ()) -> ObjectText:
    """:func:`parse_object` of UTF-8 bytes."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise JsonSyntaxError(f"it is not valid UTF-8 at byte {error.start}") from None
    return parse_object(text, opaque)


def _object_texts(text: str, names: Collection[str]) -> Mapping[str, str]:
    """The texts of those members ``names`` of a large ``text`` that are objects, found without their values: Python
    would make an object for each number and string in them."""
    if not names or len(text) <= _LARGE:
        return {}
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        return {}
    texts = {name: bytes(members[name]).decode() for name in names if name in members}
    return {name: found for name, found in texts.items() if found.startswith("{")}


def _parse_object(text: str, opaque: Mapping[str, str]) -> ObjectText:
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
            member, at = _parse_member(text, at, opaque)
            members.append(member)
            mark = text[at : at + 1]
            at += 1
        if mark != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at - 1)
    if _after_whitespace(text, at) != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return ObjectText(text[:head_end], members, text[at - 1 :])


def _parse_member(text: str, start: int, opaque: Mapping[str, str]) -> tuple[Member, int]:
    key = _after_whitespace(text, start)
    if text[key : key + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, key)
    name, key_end = _parser.raw_decode(text, key)
    colon = _after_whitespace(text, key_end)
    if text[colon : colon + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, colon)
    raw = _after_whitespace(text, colon + 1)
    known = opaque.get(name)
    if known is not None and text.startswith(known, raw):
        value, raw_end = dict[str, Any](), raw + len(known)
    else:
        # Of repeated members another one than the last.
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
    depth = 0
    # In parts, because a single call would keep the interpreter to itself.
    for at in range(0, len(marks), _MARKS_AT_ONCE):
        depths = list(accumulate(map(_STEPS.__getitem__, marks[at : at + _MARKS_AT_ONCE]), initial=depth))
        if max(depths) > limit:
            return True
        depth = depths[-1]
    return False


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


def defects(raw: str, *above: str) -> Iterator[tuple[str, str]]:
    """What the valid JSON text ``raw`` holds that cannot be carried to every language: pairs of pointer and code, in
    the order of the text.

    ``above``: the names that lead to ``raw``. ``number_out_of_range``: not a finite double. ``lone_surrogate``: not
    encodable as UTF-8; for a key, the pointer is that of its object, and its value is not looked at.
    """
    # What leads to the next value: for each level the text of a key, or an index; None where a key comes next.
    path: list[str | int | None] = []
    skipped_below = 0
    for token in _TOKEN.finditer(raw):
        text = token[0]
        mark = text[0]
        if mark == '"':
            is_key = bool(path) and path[-1] is None
            if is_key:
                path[-1] = text
            if not skipped_below and "\\u" in text and not is_encodable(_parser.raw_decode(text)[0]):
                yield pointer(*above, *_names(path[:-1] if is_key else path)), "lone_surrogate"
                skipped_below = len(path) if is_key else 0
        elif mark == ",":
            if len(path) == skipped_below:
                skipped_below = 0
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif mark in "{[":
            path.append(None if mark == "{" else 0)
        elif mark in "}]":
            path.pop()
            if len(path) < skipped_below:
                skipped_below = 0
        elif not skipped_below and _may_be_infinite(text) and math.isinf(float(text)):
            yield pointer(*above, *_names(path)), "number_out_of_range"


def _may_be_infinite(number: str) -> bool:
    return "e" in number or "E" in number or len(number) > len(_LONG_RUN)


def _names(path: Sequence[str | int | None]) -> Iterator[str | int]:
    return (_parser.raw_decode(name)[0] if isinstance(name, str) else name for name in path if name is not None)


def is_encodable(text: str) -> bool:
    """Whether ``text`` holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
