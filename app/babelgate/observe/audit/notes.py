"""Facts that operations add to the record of their request."""

from __future__ import annotations

from contextvars import ContextVar

Fact = str | int | float | bool | None
MAX_TEXT = 200
"""Longer texts of a record are cut."""

NOTES: ContextVar[dict[str, Fact] | None] = ContextVar("audit_notes", default=None)
"""The facts of the request that is being served; None: it is not recorded."""


def note(**facts: Fact) -> None:
    """Add facts to the record of the request that is being served: counts, names, ids. Never a payload or a secret.
    None is left out. Nothing happens where the request is not recorded."""
    notes = NOTES.get()
    if notes is not None:
        notes.update((name, clipped(fact)) for name, fact in facts.items() if fact is not None)


def clipped(fact: Fact) -> Fact:
    """A text shortened to MAX_TEXT characters; anything else as it is."""
    return fact[:MAX_TEXT] if isinstance(fact, str) else fact
