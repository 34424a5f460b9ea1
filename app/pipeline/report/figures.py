"""The numbers of a report, whatever form it takes: as JSON, as CSV, or as a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct


class Group(Struct, frozen=True, kw_only=True):
    """What happened to the messages of one queue, job, producer language, broker, day or hour, or to all.

    ``name``: null where the journal could not know it. ``retried``: deliveries after a failed one. The rates are null
    where there is nothing to share; so are times where none was measured. ``wait``: from accepted to the first
    delivery; ``e2e``: from ``created_at`` to the ack; both of the messages that were created then. With ``at_least``,
    records were lost, and it may be more.
    """

    name: str | None
    accepted: int = 0
    delivered: int = 0
    retried: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    lease_expired: int = 0
    dead_lettered: int = 0
    poison: int = 0
    redriven: int = 0
    retry_rate: float | None = None
    dead_letter_rate: float | None = None
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None
    wait_p99_ms: float | None = None
    wait_max_ms: int | None = None
    e2e_p50_ms: float | None = None
    e2e_p95_ms: float | None = None
    e2e_p99_ms: float | None = None
    e2e_max_ms: int | None = None
    at_least: bool = False


class Violations(Struct, frozen=True):
    """Bodies of one producer language that broke the contract for one reason."""

    lang: str | None
    reason: str
    count: int


class CheckedBodies(Struct, frozen=True):
    """How many bodies of one producer language were checked, and how many of them were quarantined."""

    lang: str | None
    checked: int
    quarantined: int


class DeadLetterFigures(Struct, frozen=True):
    """Messages of one queue that were dead-lettered for one reason."""

    reason: str
    queue: str | None
    count: int


class OpenMessages(Struct, frozen=True):
    """Messages that had not ended at the end of the report's time, by the queue they are in and by age.

    ``state``: waiting or leased. Ages from ``from_seconds`` to below ``below_seconds``, null: without end;
    ``oldest_ms``: the age of the oldest.
    """

    queue: str | None
    state: str
    from_seconds: int
    below_seconds: int | None
    count: int
    oldest_ms: int


class Figures(Struct, frozen=True, kw_only=True):
    """All of a report. Dates are UTC, ISO 8601, both included; ``as_of``: the end of the last minute with an event, in
    Unix ms.

    ``lost``: records that gateways dropped; ``in_holes``: that never landed. ``unit``: of ``trend``, day or hour.
    ``checked`` and ``violations`` are null where no bodies were checked; they know no dates. ``open`` is null where it
    was not measured as of the last day.
    """

    first_date: str
    last_date: str
    as_of: int
    note: str | None = None
    lost: int = 0
    in_holes: int = 0
    unit: str
    total: Group
    trend: Sequence[Group]
    queues: Sequence[Group]
    jobs: Sequence[Group]
    languages: Sequence[Group]
    brokers: Sequence[Group]
    dead_letters: Sequence[DeadLetterFigures]
    open: Sequence[OpenMessages] | None
    checked: Sequence[CheckedBodies] | None = None
    violations: Sequence[Violations] | None = None

    @property
    def at_least(self) -> bool:
        """Whether records are missing, so that every count may be more."""
        return self.total.at_least or bool(self.lost or self.in_holes)


def as_json(figures: Figures) -> bytes:
    """The figures as a JSON document: the same bytes for the same figures."""
    return msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n"


_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_KEYS = ("name", "lang", "queue", "reason", "state", "from_seconds", "below_seconds")


def as_csv(figures: Figures) -> bytes:
    """The figures as CSV, a number a line: table, what it is of, measure, value.

    Names that a spreadsheet would take for a formula have an apostrophe before them.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("table", "of", "measure", "value"))
    for row in _rows(msgspec.to_builtins(figures)):
        writer.writerow(map(_cell, row))
    return out.getvalue().encode()


def _rows(document: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for table, content in document.items():
        if not isinstance(content, list | dict):
            yield "report", "", table, content
            continue
        for row in [content] if isinstance(content, dict) else content:
            names = [("" if row[key] is None else str(row[key])) for key in _KEYS if key in row]
            for measure, value in row.items():
                if measure not in _KEYS:
                    yield table, " / ".join(names), measure, value


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
