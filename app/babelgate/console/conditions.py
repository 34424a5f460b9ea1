"""Conditions on dead letters and on events, as forms and addresses have them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from babelgate.errors import InvalidParameter
from babelgate.gateway.letter_groups import MAX_TEXT, LetterGroup
from babelgate.gateway.model import DeadLetterFilter

_TEXTS = ("reason", "job", "error", "trace_id")
_TIMES = ("after", "before")


def letter_filter(fields: Mapping[str, str]) -> DeadLetterFilter:
    """The filter in the fields of a form; empty ones are no condition. Raises InvalidParameter."""
    reason, job, error, trace_id = (fields.get(name) or None for name in _TEXTS)
    after, before = (time_of(fields, name) for name in _TIMES)
    return DeadLetterFilter(job, reason, before, after, trace_id, error)


def fields_of(matching: DeadLetterFilter) -> dict[str, str]:
    """The fields of a form that :func:`letter_filter` reads as ``matching``."""
    texts = {name: getattr(matching, name) for name in _TEXTS}
    times = {name: input_time(getattr(matching, name)) for name in _TIMES}
    return {name: text for name, text in {**texts, **times}.items() if text}


def group_query(group: LetterGroup) -> str | None:
    """The query of an address, for the letters of a group; None where no filter is for these alone."""
    named = {name: getattr(group, name) for name in ("reason", "job", "error")}
    if any(not text or len(text) > MAX_TEXT for text in named.values()):
        return None
    return urlencode(named)


def time_of(fields: Mapping[str, str], name: str) -> int | None:
    """The field of a date and time in UTC, in Unix ms; None for an empty one. Raises InvalidParameter."""
    text = fields.get(name, "")
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        at = round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        at = -1
    if at < 0:
        raise InvalidParameter(name=name, reason="it is not a date and time such as 2026-01-31T23:59")
    return at


def input_time(at: int | None) -> str:
    """Unix ms as the value of an input for a date and time."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at / 1_000, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")


def count_of(fields: Mapping[str, str], name: str) -> int | None:
    """The field of a whole number from 1; None for an empty one. Raises InvalidParameter."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text)):
        raise InvalidParameter(name=name, reason="it is not a whole number from 1 to 999,999,999")
    return int(text)
