"""One dead letter: what it is, and to send it back, edited or not, or to delete it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from babelgate import envelope
from babelgate.console.answers import PageAnswer
from babelgate.console.bodies import Shown, editable, pretty, raw
from babelgate.console.pages.dead_letters import letters_path
from babelgate.console.pages.redrives import target
from babelgate.console.routes import PageRoute
from babelgate.console.timelines import rows_of, trace_address
from babelgate.console.visits import Visit, segment
from babelgate.envelope import Poison
from babelgate.errors import BabelgateError
from babelgate.gateway.model import DeadLetter, LetterEdit
from babelgate.http.problems import detail_of, status_of
from babelgate.observe.journal.record import Record
from babelgate.runtime import turns

_MAX_EDITED = 1_048_576
"""Bytes of a record that a form edits. A larger one is edited by the API."""
_EDIT_FORM_BYTES = 4 * _MAX_EDITED
"""In a form, a quotation mark takes three bytes."""

_EVENTS = 100
"""Events of the message that the page of a letter has."""


class _LetterBlock(Struct, frozen=True):
    exception: Any = None
    original_queue: Any = None


class _LetterRecord(Struct, frozen=True):
    dead_letter: _LetterBlock = _LetterBlock()


async def show(visit: Visit) -> PageAnswer:
    """The letter, with what can be done to it."""
    letter = await _letter(visit)
    record = letter.record
    block, body = await turns.run(_read, record, size=len(record), background=True)
    events, unknown = await _events(visit, letter)
    return visit.page(
        "letter.html",
        rows=rows_of(events),
        unknown=unknown,
        has_journal=visit.gateway.history.enabled,
        trace_address=trace_address(visit.frame, letter.trace_id, letter.headers.get("traceparent")),
        **_common(visit),
        letter=letter,
        body=body,
        record=raw(record),
        size=len(record),
        exception=_text(block.exception),
        original_queue=_text(block.original_queue),
        can_be_edited=len(record) <= _MAX_EDITED,
    )


async def redrive(visit: Visit) -> PageAnswer:
    """Send the letter as it is."""
    return await _send(visit, None, visit.form.get("force") == "1")


async def delete(visit: Visit) -> PageAnswer:
    """Remove the letter."""
    queue = visit.parameters["queue"]
    await visit.gateway.letters.remove_one(visit.caller, queue, visit.parameters["letter"], _cursor(visit))
    return visit.see_other(f"{letters_path(queue)}/list", "The dead letter was deleted.")


async def edit_form(visit: Visit) -> PageAnswer:
    """The form with the body that would be sent."""
    record = (await _letter(visit)).record
    text = await turns.run(_editable, record, size=len(record), background=True)
    return await _edit_page(visit, text, None)


async def edit(visit: Visit) -> PageAnswer:
    """Send the letter with another body; the form again if that is refused."""
    text = visit.form.get("body", "")
    try:
        return await _send(visit, LetterEdit(body=text.encode("utf-8", "surrogatepass")), False)
    except BabelgateError as error:
        if status_of(error) >= 500:
            raise
        visit.exchange.error = error.problem_code
        return await _edit_page(visit, text, error)


async def check(visit: Visit) -> PageAnswer:
    """What would be sent, or why it would be refused: a part of the page, or the form again without scripts."""
    text = visit.form.get("body", "")
    body, error = None, None
    try:
        body = await visit.gateway.letters.preview(
            visit.caller,
            visit.parameters["queue"],
            visit.parameters["letter"],
            target(visit.form),
            LetterEdit(body=text.encode("utf-8", "surrogatepass")),
            visit.exchange.trace,
            _cursor(visit),
        )
    except BabelgateError as raised:
        if status_of(raised) >= 500:
            raise
        error = raised
    if visit.is_fragment:
        checked = await _checked(body)
        return visit.page("letter_checked.html", "letter_checked.html", checked=checked, **_refusal(error))
    return await _edit_page(visit, text, error, body)


async def _letter(visit: Visit) -> DeadLetter:
    queue, letter_id = visit.parameters["queue"], visit.parameters["letter"]
    return await visit.gateway.letters.get(visit.caller, queue, letter_id, _cursor(visit))


async def _events(visit: Visit, letter: DeadLetter) -> tuple[Sequence[Record], str]:
    """What happened to the message of a letter, or why that is not known."""
    if letter.id is None or not visit.gateway.history.enabled:
        return (), ""
    try:
        message, _ = await visit.gateway.history.message(visit.caller, letter.id, _EVENTS)
    except BabelgateError as error:
        return (), detail_of(error)
    return message.events, ""


async def _send(visit: Visit, edited: LetterEdit | None, force: bool) -> PageAnswer:
    queue = visit.parameters["queue"]
    sent = await visit.gateway.letters.redrive_one(
        visit.caller,
        queue,
        visit.parameters["letter"],
        target(visit.form),
        edited,
        force,
        visit.exchange.trace,
        _cursor(visit),
    )
    notice = f"The dead letter was sent to {sent.to_queue}"
    notice += "." if sent.id is None else f" as the message {sent.id}."
    if not sent.removed:
        notice += " Somebody else has removed it meanwhile, so that it may have been sent twice."
    return visit.see_other(f"{letters_path(queue)}/list", notice)


async def _edit_page(visit: Visit, text: str, error: BabelgateError | None, body: bytes | None = None) -> PageAnswer:
    return visit.page(
        "letter_edit.html",
        status=200 if error is None else status_of(error),
        **_common(visit),
        text=text,
        to_queue=target(visit.form) or "",
        checked=await _checked(body),
        **_refusal(error),
    )


async def _checked(body: bytes | None) -> Shown | None:
    return None if body is None else await turns.run(_shown, body, size=len(body), background=True)


def _refusal(error: BabelgateError | None) -> dict[str, Any]:
    if error is None:
        return {"refused": None, "problems": []}
    problems = error.facts.get("problems", [])
    # Pointers of a request to the API begin with its member for the new body.
    return {
        "refused": detail_of(error),
        "problems": [(each.pointer.removeprefix("/edit/body"), each.detail) for each in problems],
    }


def _common(visit: Visit) -> dict[str, Any]:
    queue, cursor = visit.parameters["queue"], _cursor(visit)
    base = visit.root + letters_path(queue)
    return {
        "queue": queue,
        "base": base,
        "address": f"{base}/{segment(visit.parameters['letter'])}",
        "place": f"?{urlencode({'cursor': cursor})}" if cursor else "",
    }


def _cursor(visit: Visit) -> str | None:
    return visit.query.get("cursor") or None


def _read(record: bytes) -> tuple[_LetterBlock, Shown]:
    """What the record says of the letter, and its body."""
    return _block(record), _shown(envelope.original(record))


def _editable(record: bytes) -> str:
    """The body that would be sent, as a text to be edited."""
    try:
        body = envelope.redriven(record)
    except Poison:
        body = envelope.original(record)
    return editable(body)


def _block(record: bytes) -> _LetterBlock:
    try:
        return msgspec.json.decode(record, type=_LetterRecord).dead_letter
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _LetterBlock()


def _shown(body: bytes) -> Shown:
    return pretty(body) or raw(body)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_BASE = "queues/{queue}/dead-letters/{letter}"

ROUTES = (
    PageRoute(method="GET", path=_BASE, handler=show),
    PageRoute(method="POST", path=f"{_BASE}/redrive", handler=redrive),
    PageRoute(method="POST", path=f"{_BASE}/delete", handler=delete),
    PageRoute(method="GET", path=f"{_BASE}/edit", handler=edit_form),
    PageRoute(method="POST", path=f"{_BASE}/edit", handler=edit, form_bytes=_EDIT_FORM_BYTES),
    PageRoute(method="POST", path=f"{_BASE}/check", handler=check, form_bytes=_EDIT_FORM_BYTES, writes=False),
)
