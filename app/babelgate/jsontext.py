"""Reads and edits JSON text without changing any other character.

The standard parser defines valid JSON. This module keeps the text of each member beside its value, so that a member can
be replaced or removed while all other characters, number literals and repeated keys stay as written.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, TypeGuard, TypeVar

import msgspec

WHITESPACE = " \t\n\r"

_skip_whitespace = re.compile(r"[ \t\n\r]*").match
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_PIECE = re.compile(rf"{_STRING.pattern}|[ \t\n\r]+")
_TOKEN = re.compile(rf"{_STRING.pattern}|[\[\]{{}},]|-?[0-9][0-9.eE+-]*")
"""Tokens that determine values and their paths; white space, colons, true, false and null are skipped."""
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

Decoded = TypeVar("Decoded")


class JsonSyntaxError(ValueError):
    """The text is not exactly one JSON object. The message gives the reason, without a full stop."""


class JsonTooDeep(ValueError):
    """The text is nested deeper than the parser supports (some 900 levels)."""


def decoded(decoder: msgspec.json.Decoder[Decoded], text: bytes) -> Decoded:
    """Decode ``text``. Raises msgspec.DecodeError, also for invalid UTF-8 and for a text that is nested too deeply."""
    try:
        return decoder.decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def quote(text: str) -> str:
    """Encode ``text`` as a canonical JSON string: short escapes, ``\\u00xx`` for other controls, else literal."""
    return encode_basestring(text)


MAX_POINTER = 512
"""Maximum characters of a pointer: a name may have a million, and an answer may contain a hundred pointers."""


def pointer(*names: str | int) -> str:
    """Return the RFC 6901 pointer of the path ``names``.

    If it is longer than MAX_POINTER, return the pointer of the nearest ancestor that fits.
    """
    made = ""
    for name in names:
        # A longer name cannot fit.
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
    """A JSON object as text: ``str()`` returns the parsed text, without removed members."""

    head: str
    members: list[Member]
    tail: str

    def __str__(self) -> str:
        return self.head + ",".join(map(str, self.members)) + self.tail

    def by_name(self) -> dict[str, Member]:
        """Return the members by name; for a repeated name the last one, as in every SDK."""
        return {member.name: member for member in self.members}

    def remove(self, name: str, but: Member | None = None) -> None:
        """Remove the members called ``name``, except ``but``."""
        self.members = [member for member in self.members if member.name != name or member is but]

    def append(self, name: str, raw: str) -> None:
        """Add a member at the end."""
        self.members.append(Member(name, None, "", quote(name), ":", raw, ""))


def parse_object(text: str, opaque: Collection[str] = ()) -> ObjectText:
    """Split the JSON object ``text``. Raises JsonSyntaxError or JsonTooDeep.

    Accepts numbers of any size, unpaired surrogate escapes and repeated names; :func:`defects` finds these. ``opaque``
    names members whose text only is needed: the value of a large object among them may be ``{}``.
    """
    if text.startswith("\ufeff"):
        raise JsonSyntaxError("it starts with a byte order mark")
    try:
        return _parse_object(text, _object_texts(text, opaque))
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(syntax_reason(error.msg, error.pos)) from None
    except RecursionError:
        raise JsonTooDeep from None


_SYNTAX = {
    "Expecting value": "a value is missing or malformed",
    "Expecting ',' delimiter": "a comma, or the end of the object or list, is missing",
    "Expecting ':' delimiter": "a colon is missing after a name",
    "Expecting property name": "a name in double quotes is missing",
    "Illegal trailing comma": "a comma stands before the end",
    "Extra data": "text follows the end of the JSON value",
    "Unterminated string": "a string has no closing quote",
    "Invalid control character": "a control character in a string is not escaped",
    "Invalid \\": "an escape in a string is invalid",
}
"""What the messages of the standard parser, by their beginnings, mean in our words."""


def syntax_reason(message: str, position: int) -> str:
    """Return the reason for which the standard parser refuses a text, as a clause; ``position`` counts characters."""
    reason = next((said for start, said in _SYNTAX.items() if message.startswith(start)), "the text is not JSON")
    return f"{reason}, at character {position}"


def decode_object(body: bytes, opaque: Collection[str] = ()) -> ObjectText:
    """Split the JSON object ``body``, as :func:`parse_object` does. Invalid UTF-8 raises JsonSyntaxError."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise JsonSyntaxError(f"it is not valid UTF-8 at byte {error.start}") from None
    return parse_object(text, opaque)


def _object_texts(text: str, names: Collection[str]) -> Mapping[str, str]:
    """Return the texts of those members ``names`` of a large ``text`` that are objects, without decoding their values.

    Decoding would create a Python object for each number and string in them.
    """
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
        # Also reached by an earlier one of repeated opaque members.
        value, raw_end = _parser.raw_decode(text, raw)
    end = _after_whitespace(text, raw_end)
    pieces = text[start:key], text[key:key_end], text[key_end:raw], text[raw:raw_end], text[raw_end:end]
    return Member(name, value, *pieces), end


def _after_whitespace(text: str, start: int) -> int:
    found = _skip_whitespace(text, start)
    return found.end() if found else start


def _integer(literal: str) -> int | float:
    # A float represents any integer beyond int64: long digits are slow to convert, and refused past 4300.
    return int(literal) if len(literal) <= _INT_DIGITS else float(literal)


def _refuse_constant(name: str) -> Any:
    raise JsonSyntaxError(f"{name} is not JSON")


_parser = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse_constant)


def compact(raw: str) -> str:
    """Remove the white space of ``raw``, valid JSON without :func:`defects`, and make its escapes canonical.

    Keeps key order, repeated keys and number literals.
    """
    text = msgspec.json.format(raw, indent=-1)
    if "\\u" in text or "\\/" in text:
        text = _STRING.sub(_canonical_string, text)
    return text


def compact_any(raw: str) -> str:
    """Compact any valid JSON. Strings with lone surrogates keep their escapes, because UTF-8 cannot encode them."""
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
    """Return whether the valid JSON text ``body`` has more than ``limit`` levels of nesting, counting the outermost."""
    if len(body) < 2 * limit or body.count(b"{") + body.count(b"[") <= limit:
        return False
    # A string without brackets leaves two adjacent quotes; strings with brackets or escapes are removed first.
    marks = body.translate(None, _NO_MARKS).replace(b'""', b"")
    if b'"' in marks or b"\\" in body:
        marks = _BYTE_STRING.sub(b"", body).translate(None, _NO_MARKS)
    depth = 0
    # In parts, because a single call would keep the interpreter lock for too long.
    for at in range(0, len(marks), _MARKS_AT_ONCE):
        depths = list(accumulate(map(_STEPS.__getitem__, marks[at : at + _MARKS_AT_ONCE]), initial=depth))
        if max(depths) > limit:
            return True
        depth = depths[-1]
    return False


def surely_finite(raw: bytes) -> bool:
    """Return whether all numbers of the valid JSON text ``raw`` are certainly finite doubles; a cheap check."""
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
    """Return whether the valid JSON text ``raw`` contains an unpaired surrogate escape."""
    if "\\u" not in raw:
        return False
    strings = (string[0] for string in _STRING.finditer(raw))
    return not all(is_encodable(_parser.raw_decode(text)[0]) for text in strings if "\\u" in text)


def is_plain(raw: str) -> bool:
    """Return whether the valid JSON text ``raw`` certainly has no :func:`defects`."""
    return surely_finite(raw.encode()) and not has_lone_surrogate(raw)


def defects(raw: str, *above: str) -> Iterator[tuple[str, str]]:
    """Yield the values of the valid JSON text ``raw`` that not every language can read, as pairs of pointer and code.

    The pairs are in the order of the text. ``above`` is the path to ``raw``. ``number_out_of_range`` is a number that
    is not a finite double; ``lone_surrogate`` is text that UTF-8 cannot encode. For a key with a lone surrogate the
    pointer is that of its object, and its value is skipped.
    """
    # The path to the next value: for each level the text of a key, or an index; None if a key comes next.
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


def is_number(value: Any, least: float = -sys.float_info.max, most: float = sys.float_info.max) -> TypeGuard[float]:
    """Return whether ``value`` is an int or a finite float from ``least`` to ``most``.

    Comparing is exact for an int of any size, whose conversion to a float may overflow. A bool is no number.
    """
    return type(value) in (int, float) and least <= value <= most


MAX_DIGITS = 18
"""An integer of this number of digits fits 64 bits. Python refuses to convert more than 4,300."""


def digits(text: str) -> int | None:
    """Return the integer that ``text`` is, 1 to MAX_DIGITS ASCII digits; None for another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def is_encodable(text: str) -> bool:
    """Return whether ``text`` contains no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
