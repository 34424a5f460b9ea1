"""A job at the end of a delivery: tried again, discarded, or brought back. Nothing else of it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from app.ojs.reading import Attributes, value
from app.ojs.terms import timestamp


class _Block(Struct):
    reason: str
    failed_at: int
    original_queue: str
    attempts: int
    error: str | None = None
    exception: str | None = None


FAILED = "failed"
"""The type, or the message, of an error of which nothing is known."""


def retried(job: Attributes, attempts: int, error: str | None, exception: str | None) -> bytes:
    """``job`` after ``attempts`` failed ones, the last with ``error`` and ``exception``."""
    return _with(job, {"attempt": attempts, "error": _error(error, exception)}, state="available")


def discarded(job: Attributes, block: Mapping[str, Any]) -> bytes:
    """``job`` at rest, with ``block``, the envelope's ``dead_letter``, as an attribute of that name."""
    changes = {
        "attempt": block["attempts"],
        "error": _error(block["error"], block["exception"] or block["reason"]),
        "discarded_at": timestamp(block["failed_at"]),
        "state": "discarded",
        "dead_letter": block,
    }
    return _with(job, changes)


def revived(job: Attributes) -> bytes:
    """``job`` as it goes back to its queue: not tried, not failed, not discarded."""
    left = {
        name: raw for name, raw in job.items() if name not in ("dead_letter", "discarded_at", "completed_at", "error")
    }
    return _with(left, {"attempt": 0}, state="available")


def dead_letter_of(job: Attributes) -> dict[str, Any] | None:
    """The ``dead_letter`` of a discarded job; None where it has none, or not with the types of the contract."""
    return None if value(job, "dead_letter", _Block) is None else value(job, "dead_letter", dict[str, Any])


def _with(job: Attributes, changes: Mapping[str, Any], state: str | None = None) -> bytes:
    changed: dict[str, Any] = {**job, **changes}
    if state is not None and "state" in job:
        changed["state"] = state
    return msgspec.json.encode(changed)


def _error(error: str | None, exception: str | None) -> dict[str, str]:
    return {"type": exception or FAILED, "message": error or FAILED}
