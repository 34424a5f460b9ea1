"""The figures of a report, and their JSON and CSV forms."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct


class Group(Struct, frozen=True, kw_only=True):
    """Figures of the messages of one queue, job, producer language, broker, day or hour, or of all messages.

    ``name``: null if the journal does not have it. ``retried``: deliveries after a failed one. A rate is null if its
    denominator is 0, a time if none was measured. ``wait``: from accepted to the first delivery; ``e2e``: from
    ``created_at`` to the ack; both of the messages created in that time. ``at_least``: records are missing, so counts
    are lower bounds.
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
    """The number of bodies of one producer language that were quarantined for one reason."""

    lang: str | None
    reason: str
    count: int


class SchemaViolations(Struct, frozen=True):
    """The number of bodies that the schema of their job refuses at one place. An index in ``pointer`` is ``*``."""

    job: str | None
    pointer: str
    code: str
    bodies: int


class CheckedBodies(Struct, frozen=True):
    """The numbers of checked and of quarantined bodies of one producer language."""

    lang: str | None
    checked: int
    quarantined: int


class DeadLetterFigures(Struct, frozen=True):
    """The number of messages of one queue that were dead-lettered for one reason."""

    reason: str
    queue: str | None
    count: int


class ErrorFigures(Struct, frozen=True):
    """The number of messages of one queue and job that failed in one way, and ids of the latest of them, at most three.

    ``event``: nacked, lease_expired, dead_lettered or poison; ``reason``: of the last two. A message that failed in two
    ways is counted in both. Only the first 256 events of a message are seen.
    """

    event: str
    reason: str | None
    queue: str | None
    job: str | None
    messages: int
    examples: Sequence[str]


class TargetFigures(Struct, frozen=True):
    """Whether the latencies of one queue are within a target, in ms. ``target``: a member of :class:`Group`.

    ``met`` and ``actual_ms`` are null if no such time was measured; ``queue`` is the target's pattern if none fits.
    """

    queue: str | None
    target: str
    limit_ms: float
    actual_ms: float | None
    met: bool | None


class OpenMessages(Struct, frozen=True):
    """The number of messages of one queue, state and age class that had not ended at the end of the report.

    ``state``: waiting or leased. The class is ``from_seconds`` to below ``below_seconds``, null: no bound.
    ``oldest_ms``: the age of the oldest message.
    """

    queue: str | None
    state: str
    from_seconds: int
    below_seconds: int | None
    count: int
    oldest_ms: int


class Figures(Struct, frozen=True, kw_only=True):
    """All figures of a report.

    Dates are UTC, ISO 8601, both included. ``as_of``: the end of the last minute with an event, Unix ms. ``lost``:
    records that gateways dropped; ``in_holes``: records that never landed. ``unit``: that of ``trend``, day or hour.
    ``checked`` and ``violations`` have no dates, and are null if no bodies were checked; ``schema_violations``, those
    of most bodies, is null if they were checked without schemas. ``open`` is null if it was not measured as of the last
    day. ``comparison``: the last day, the day before, and the same weekday a week before; a day without events is left
    out. ``errors``: the most frequent ones, of the messages created on those days. ``targets`` is null if none was set.
    """

    first_date: str
    last_date: str
    as_of: int
    site: str | None = None
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
    comparison: Sequence[Group] = ()
    errors: Sequence[ErrorFigures] = ()
    targets: Sequence[TargetFigures] | None = None
    open: Sequence[OpenMessages] | None
    checked: Sequence[CheckedBodies] | None = None
    violations: Sequence[Violations] | None = None
    schema_violations: Sequence[SchemaViolations] | None = None

    @property
    def at_least(self) -> bool:
        """Whether records are missing, so that every count is a lower bound."""
        return self.total.at_least or bool(self.lost or self.in_holes)


def as_json(figures: Figures) -> bytes:
    """The figures as a JSON document. Equal figures give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n"


_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_KEYS = (
    "name",
    "lang",
    "event",
    "target",
    "queue",
    "job",
    "pointer",
    "code",
    "reason",
    "state",
    "from_seconds",
    "below_seconds",
)


def as_csv(figures: Figures) -> bytes:
    """The figures as CSV with the columns table, of, measure, value: one number per line, or ids between spaces.

    Names that a spreadsheet would read as a formula are prefixed with an apostrophe.
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
    if isinstance(value, list):
        value = " ".join(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
