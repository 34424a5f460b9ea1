"""Bodies of messages as pages show them."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import Struct

from babelgate.brokers.binding import Peeked
from babelgate.console.indenting import indented
from babelgate.envelope import Limits, Poison, inspect
from babelgate.envelope.contract import Received
from babelgate.runtime import turns

SHOWN_CHARACTERS = 20_000
"""How much of a body a page shows: some hundred lines. A download has all of it."""
_EDITED_CHARACTERS = 10 * SHOWN_CHARACTERS
"""How long the lines of a body in a form may be together: deeply nested ones consist of spaces."""
_ROW_BYTES = 16
_CONTROLS = (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)
_DIRECTIONS = (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the order in which a browser shows others: https://www.unicode.org/reports/tr9/"""
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _DIRECTIONS}


class Shown(NamedTuple):
    """A text, or its beginning. ``left_out``: how many characters of the original follow."""

    text: str
    left_out: int = 0


class Row(NamedTuple):
    """A message in a list. ``key`` identifies its bytes. Either ``envelope`` or ``defect`` is given: what the message
    says of itself, or why it is no envelope."""

    key: str
    size: int
    envelope: Received | None
    defect: str


class Draft(Struct, frozen=True, omit_defaults=True):
    """What another message like this one has. ``data``: the payload, as it was written."""

    job: str
    data: msgspec.Raw
    trace_id: str | None = None


class _Payload(Struct):
    data: msgspec.Raw


def key_of(body: bytes) -> str:
    """What stands for ``body`` in an address."""
    return hashlib.sha256(body).hexdigest()[:32]


def raw(body: bytes) -> Shown:
    """The bytes as text, with invisible characters escaped; in hexadecimal if they are not UTF-8."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        rows = (
            body[at : at + _ROW_BYTES].hex(" ") for at in range(0, min(len(body), SHOWN_CHARACTERS // 3), _ROW_BYTES)
        )
        shown = "\n".join(rows)
        return Shown(shown, max(len(body) - SHOWN_CHARACTERS // 3, 0))
    return _shown(text)


def pretty(body: bytes) -> Shown | None:
    """The JSON in ``body`` with line breaks, all literals as they are; None for anything else."""
    try:
        text = body.decode()
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    lines, left_out = indented(text, SHOWN_CHARACTERS)
    return Shown(lines.translate(_VISIBLE), left_out)


def editable(body: bytes) -> str:
    """``body`` as the text of a form: JSON with line breaks, unless it is long or its lines would be."""
    if len(body) <= SHOWN_CHARACTERS:
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
            lines, left_out = indented(body.decode(), _EDITED_CHARACTERS)
            if not left_out:
                return lines
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return body.decode("utf-8", "backslashreplace")


def data_url(kind: bytes, body: bytes) -> str:
    """An address that contains ``body``, for what cannot be asked of the gateway again."""
    return f"data:{kind.decode().replace(' ', '')};base64,{b64encode(body).decode()}"


def draft_of(body: bytes, envelope: Received, *, traced: bool) -> Draft:
    """A draft like the envelope in ``body``. ``traced``: of the same trace."""
    data = msgspec.json.decode(body, type=_Payload).data
    return Draft(envelope.job, data, envelope.trace_id if traced else None)


def written(draft: Draft) -> str:
    """The draft as JSON for people."""
    return editable(msgspec.json.encode(draft))


def row(body: bytes, limits: Limits) -> Row:
    """The row of a message in a list."""
    try:
        return Row(key_of(body), len(body), inspect(body, limits), "")
    except Poison as poison:
        return Row(key_of(body), len(body), None, poison.detail)


async def rows(messages: list[Peeked], limits: Limits) -> list[Row]:
    """The row of each message, without a long turn of the event loop."""
    return await turns.mapped(partial(row, limits=limits), [each.body for each in messages], len, background=True)


def _shown(text: str) -> Shown:
    beginning = text[:SHOWN_CHARACTERS].translate(_VISIBLE)
    return Shown(beginning, max(len(text) - SHOWN_CHARACTERS, 0))
