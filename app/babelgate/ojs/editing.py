"""Edits a job at the end of a delivery: retry, discard and revive. All other attributes stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from babelgate.clock import timestamp
from babelgate.ojs.reading import Attributes, value


class _Block(Struct):
    reason: str
    failed_at: int
    original_queue: str
    attempts: int
    error: str | None = None
    exception: str | None = None


_ENDED = frozenset({"dead_letter", "discarded_at", "completed_at", "error", "expires_at"})
"""The attributes that a redrive removes."""

FAILED = "failed"
"""The type or the message of an unknown error."""


def retried(job: Attributes, attempts: int, error: str | None, exception: str | None) -> bytes:
    """Return ``job`` after ``attempts`` failed attempts, the last one with ``error`` and ``exception``."""
    return _with(job, {"attempt": attempts, "error": _error(error, exception)}, state="available")


def discarded(job: Attributes, block: Mapping[str, Any]) -> bytes:
    """Return ``job`` as discarded, with ``block``, the envelope's ``dead_letter``, as an attribute of that name."""
    changes = {
        "attempt": block["attempts"],
        "error": _error(block["error"], block["exception"] or block["reason"]),
        "discarded_at": timestamp(block["failed_at"]),
        "state": "discarded",
        "dead_letter": block,
    }
    return _with(job, changes)


def revived(job: Attributes) -> bytes:
    """Return ``job`` as it is sent back to its queue, without attempts, error, discard and time of expiry."""
    left = {name: raw for name, raw in job.items() if name not in _ENDED}
    return _with(left, {"attempt": 0}, state="available")


def dead_letter_of(job: Attributes) -> dict[str, Any] | None:
    """Return the ``dead_letter`` of a discarded job; None if it is missing or has wrong types."""
    return None if value(job, "dead_letter", _Block) is None else value(job, "dead_letter", dict[str, Any])


def _with(job: Attributes, changes: Mapping[str, Any], state: str | None = None) -> bytes:
    changed: dict[str, Any] = {**job, **changes}
    if state is not None and "state" in job:
        changed["state"] = state
    return msgspec.json.encode(changed)


def _error(error: str | None, exception: str | None) -> dict[str, str]:
    return {"type": exception or FAILED, "message": error or FAILED}
