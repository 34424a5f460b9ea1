"""Encodes positions in a list of dead letters as cursors, and reads them back."""

from __future__ import annotations

from babelgate.errors import InvalidParameter
from babelgate.jsontext import digits


def encode(position: int) -> str:
    """The cursor for ``position``, a whole number from 0 of at most 18 digits.

    A cursor is opaque to clients. This format is decimal digits; a later one must begin with another character.
    """
    return str(position)


def decode(cursor: str | None) -> int:
    """The position of ``cursor``; 0, the beginning, for None. Raises InvalidParameter for another format."""
    if cursor is None:
        return 0
    position = digits(cursor)
    if position is None:
        raise InvalidParameter(name="cursor", reason="it is not one that this queue has given")
    return position


def moved_back(cursor: str | None, count: int) -> str | None:
    """``cursor``, a position, after ``count`` items before it were removed."""
    return None if cursor is None else encode(max(0, decode(cursor) - count))
