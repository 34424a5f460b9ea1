"""Reads forms as browsers send them (https://url.spec.whatwg.org/#urlencoded-parsing)."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

_MAX_FIELDS = 1_000
_PIECE = 16_384
"""Characters that are decoded by one call: urllib makes a list of all escapes in them, while other threads wait."""


def fields(text: str) -> dict[str, str]:
    """The last value of each name. Raises ValueError for too many fields, and for what is not UTF-8."""
    if text.count("&") >= _MAX_FIELDS:
        raise ValueError(f"more than {_MAX_FIELDS} fields")
    pairs = (each.partition("=") for each in text.split("&") if each)
    return {_decoded(name): _decoded(value) for name, _, value in pairs}


def _decoded(text: str) -> str:
    pieces, at = [], 0
    while at < len(text):
        end = at + _PIECE
        # An escape has three characters, and none is divided.
        if end < len(text) and (begun := text.rfind("%", end - 2, end)) > at:
            end = begun
        pieces.append(unquote_to_bytes(text[at:end].replace("+", " ")))
        at = end
    return b"".join(pieces).decode()
