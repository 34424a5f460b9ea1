"""Collects the events of a gateway for a test."""

from __future__ import annotations

from babelgate.observe.events import Call, Event, Observe


def events_into(kept: list[Event]) -> Observe:
    """An observer that appends the events, and not the calls to brokers, to ``kept``."""

    def observe(reported: Event | Call) -> None:
        if isinstance(reported, Event):
            kept.append(reported)

    return observe
