"""Finds the lines of a JSON text that pointers lead to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

MAX_CHARACTERS = 200_000
"""Of a longer text no lines are found: it takes a fifth of a microsecond a character."""
# A string that is not closed goes to the end of the text, so that the text is read once.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s"{}\[\],:]+', re.S)


class _Sought:
    """A place that is looked for, or that one leads through. ``offset``: where it begins in the text."""

    __slots__ = ("below", "offset")

    def __init__(self) -> None:
        self.below: dict[str, _Sought] = {}
        self.offset: int | None = None


def lines_of(text: str, pointers: Iterable[str]) -> dict[str, int]:
    """The line of each of ``pointers``, from 1: that of a member's name, or of the beginning of an element. A place
    that the text does not have is at the nearest one above. The text may be anything, also no JSON.

    Pointers that lead to the whole text are left out, and all of them if it is longer than MAX_CHARACTERS.
    """
    wanted = {pointer: _names(pointer) for pointer in pointers}
    if len(text) > MAX_CHARACTERS or not any(wanted.values()):
        return {}
    root = _Sought()
    for names in wanted.values():
        place = root
        for name in names:
            place = place.below.setdefault(name, _Sought())
    _locate(text, root)
    found = {}
    for pointer, names in wanted.items():
        place, offset = root, None
        for name in names:
            place = place.below[name]
            offset = offset if place.offset is None else place.offset
        if offset is not None:
            found[pointer] = text.count("\n", 0, offset) + 1
    return found


def _names(pointer: str) -> list[str]:
    return [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]


def _locate(text: str, root: _Sought) -> None:
    """Set the offsets of the places below ``root``. Of a member that occurs twice the last counts."""
    above: list[tuple[_Sought | None, int]] = []
    inside, index = None, -1
    """The object or array that the token is in, if it is on the way to a place; the index of an element, or -1."""
    place: _Sought | None = root
    is_name = False
    for token in _TOKEN.finditer(text):
        kind = token[0][0]
        if kind == '"' and is_name:
            place, is_name = None if inside is None else inside.below.get(_name(token[0])), False
            if place is not None:
                place.offset = token.start()
        elif kind == ",":
            is_name = index < 0
            index += not is_name
            place = None if inside is None or is_name else inside.below.get(str(index))
        elif kind in "}]":
            inside, index = above.pop() if above else (None, -1)
            is_name = False
        elif kind != ":":
            if index >= 0 and place is not None:
                place.offset = token.start()
            if kind in "{[":
                above.append((inside, index))
                inside, index, is_name = place, 0 if kind == "[" else -1, kind == "{"
                place = None if inside is None or is_name else inside.below.get("0")


def _name(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token
