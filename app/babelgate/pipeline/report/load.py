"""Computes the figures of a report from the datasets of ``metrics`` and ``validate``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Literal, Protocol

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.reader import gaps, snapshot
from babelgate.pipeline.metrics.dates import DAY_MS, midnight
from babelgate.pipeline.report.figures import (
    CheckedBodies,
    DeadLetterFigures,
    ErrorFigures,
    Figures,
    Group,
    OpenMessages,
    SchemaViolations,
    Violations,
)
from babelgate.pipeline.storage.datasets import DatasetReader

COUNTS = (
    "accepted",
    "delivered",
    "retried",
    "acked",
    "nacked",
    "rejected",
    "lease_expired",
    "dead_lettered",
    "poison",
    "redriven",
)
_KINDS = {"wait": "wait", "end_to_end": "e2e"}
DIMENSIONS = ("queue", "job", "lang", "broker")
ERRORS = ("nacked", "lease_expired", "dead_lettered", "poison")
"""The events that are errors. A rejection is left out, because it is dead-lettered as well."""
REASONED = ("dead_lettered", "poison")
"""Those whose outcome is a reason."""
EXAMPLES = 3
_MOST_ERRORS = 100
MINUTE_MS, HOUR_MS = 60_000, 3_600_000

Span = tuple[date, date]
"""The first and the last day, both included."""


Unit = Literal["hour", "day"]
Row = dict[str, Any]


class FigureRows(Protocol):
    """Reads the datasets of a report. ``span``: the days; ``unit``: of the trend, hours of minutes or days of days."""

    @property
    def reader(self) -> DatasetReader:
        """The lake."""
        ...

    def extent(self, first: date | None, last: date | None) -> tuple[date, date, int] | None:
        """The first and last day with events from ``first`` to ``last``, and the beginning of the last minute, Unix ms.

        None without events.
        """
        ...

    def counts(self, span: Span, unit: Unit) -> Iterable[Row]:
        """By ``dimension`` (of :data:`DIMENSIONS`, trend or total) and ``name``: :data:`COUNTS` and ``at_least``."""
        ...

    def times(self, span: Span, unit: Unit) -> Iterable[Row]:
        """By ``dimension``, ``name`` and ``kind`` of latency: p50, p95, p99 and max, in ms."""
        ...

    def reasons(self, span: Span, unit: Unit, column: str) -> Iterable[Row]:
        """The counts ``n`` in a map of ``throughput``, by ``key`` and ``queue``."""
        ...

    def errors(self, span: Span) -> Iterable[Row]:
        """The number of messages by ``event``, ``reason``, ``queue`` and ``job``, with :data:`EXAMPLES` ids of each.

        Of the messages created in ``span``. Events are those of :data:`ERRORS`; an id counts once for each group. The
        ids of the latest events come first.
        """
        ...

    def open(self, day: date) -> Iterable[Row]:
        """The rows of the dataset ``open``."""
        ...

    def bodies(self, dataset: str) -> Iterable[Row]:
        """The ``count`` of bodies in accepted by ``lang``, or in quarantined by ``lang`` and ``reason``."""
        ...


def load_figures(
    rows: FigureRows, first: date | None = None, last: date | None = None, note: str | None = None
) -> Figures:
    """The figures from ``first`` to ``last``, both included; None: no bound.

    Raises JobFailed if that time has no events.
    """
    span, as_of = _span(rows, first, last)
    # Minutes are used for a single day only, because they have many more rows.
    unit: Unit = "hour" if span[0] == span[1] else "day"
    groups = _groups(rows, span, unit)
    queues, jobs, languages, brokers = (_ranked(groups[each].values()) for each in DIMENSIONS)
    lost, in_holes = _missing(rows.reader, span)
    checked, violations = _checked(rows)
    return Figures(
        first_date=span[0].isoformat(),
        last_date=span[1].isoformat(),
        as_of=as_of,
        note=note,
        lost=lost,
        in_holes=in_holes,
        unit=unit,
        total=groups["total"].get(None, Group(name=None)),
        trend=[groups["trend"].get(name, Group(name=name)) for name in _names(span, unit)],
        queues=queues,
        jobs=jobs,
        languages=languages,
        brokers=brokers,
        dead_letters=_dead_letters(rows, span, unit),
        comparison=_comparison(rows, span[1]),
        errors=_errors(rows, span),
        open=_open(rows, span),
        checked=checked,
        violations=violations,
        schema_violations=_schema_violations(rows.reader),
    )


def _ranked(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: (-group.accepted, -group.delivered, _nulls_last(group.name)))


def _nulls_last(name: str | None) -> tuple[bool, str]:
    return name is None, name or ""


def _span(rows: FigureRows, first: date | None, last: date | None) -> tuple[Span, int]:
    found = rows.extent(first, last)
    if found is None:
        when = f" from {first or 'the beginning'} to {last or 'the end'}" if first or last else ""
        root = rows.reader.root
        raise JobFailed(f"{root} has no events{when}: run `babelgate pipeline metrics` first, or take other days")
    return (first or found[0], last or found[1]), found[2] + MINUTE_MS - 1


def _names(span: Span, unit: str) -> list[str]:
    if unit == "hour":
        return [f"{span[0]}T{hour:02d}" for hour in range(24)]
    return [(span[0] + timedelta(days)).isoformat() for days in range((span[1] - span[0]).days + 1)]


def _groups(rows: FigureRows, span: Span, unit: Unit) -> Mapping[str, Mapping[str | None, Group]]:
    """The groups by dimension and name; ``trend`` and ``total`` are dimensions too."""
    found: defaultdict[tuple[str, str | None], dict[str, Any]] = defaultdict(dict)
    for row in rows.counts(span, unit):
        made = found[row["dimension"], row["name"]]
        made |= {name: row[name] for name in (*COUNTS, "at_least")}
        made["retry_rate"] = _rate(row["retried"], row["delivered"])
        made["dead_letter_rate"] = _rate(row["dead_lettered"], row["acked"] + row["dead_lettered"])
    for row in rows.times(span, unit):
        kind = _KINDS[row["kind"]]
        made = found[row["dimension"], row["name"]]
        made |= {f"{kind}_{name}_ms": row[name] for name in ("p50", "p95", "p99", "max")}
    groups: defaultdict[str, dict[str | None, Group]] = defaultdict(dict)
    for (dimension, name), members in found.items():
        groups[dimension][name] = Group(name=name, **members)
    return groups


def _rate(part: int, of: int) -> float | None:
    return part / of if of else None


def _missing(reader: DatasetReader, span: Span) -> tuple[int, int]:
    first = midnight(span[0])
    end = midnight(span[1]) + DAY_MS
    counts = {"lost": 0, "hole": 0}
    for kind, *_, missing, from_at, to_at in gaps(snapshot(reader).known()):
        begins_before = from_at is None or from_at < end
        if kind in counts and begins_before and (to_at is None or to_at >= first):
            counts[kind] += missing or 0
    return counts["lost"], counts["hole"]


def _dead_letters(rows: FigureRows, span: Span, unit: Unit) -> Sequence[DeadLetterFigures]:
    found = [
        DeadLetterFigures(prefix + row["key"], row["queue"], row["n"])
        for column, prefix in (("dead_lettered_by", ""), ("poison_by", "poison: "))
        for row in rows.reasons(span, unit, column)
        # ``poison_by`` has the codes of these.
        if column != "dead_lettered_by" or row["key"] != "poison"
    ]
    return sorted(found, key=lambda each: (-each.count, each.reason, _nulls_last(each.queue)))


def _comparison(rows: FigureRows, last: date) -> Sequence[Group]:
    """The figures of ``last``, the day before, and the day a week before; a day without events is left out."""
    week_before = last - timedelta(7)
    days = _groups(rows, (week_before, last), "day")["trend"]
    return [days[name] for day in (last, last - timedelta(1), week_before) if (name := day.isoformat()) in days]


def _errors(rows: FigureRows, span: Span) -> Sequence[ErrorFigures]:
    found = [ErrorFigures(**row) for row in rows.errors(span)]
    found.sort(
        key=lambda each: (-each.messages, each.event, each.reason or "", _nulls_last(each.queue), _nulls_last(each.job))
    )
    return found[:_MOST_ERRORS]


def _open(source: FigureRows, span: Span) -> Sequence[OpenMessages] | None:
    """The open messages as of the end of the last day; None if no run has measured them."""
    rows = list(source.open(span[1]))
    if not rows:
        # A day without open messages has no rows, but the manifest names the day of the last run.
        as_of = (source.reader.manifest("open") or {}).get("as_of")
        if as_of is None or not midnight(span[1]) <= as_of < midnight(span[1]) + DAY_MS:
            return None
    found = [
        OpenMessages(
            row["queue"],
            row["state"],
            row["from_seconds"],
            row["below_seconds"],
            row["n"],
            max(0, row["as_of"] - row["oldest_at"]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (-each.from_seconds, _nulls_last(each.queue), each.state))


def _checked(rows: FigureRows) -> tuple[Sequence[CheckedBodies] | None, Sequence[Violations] | None]:
    if rows.reader.current("accepted") is None:
        return None, None
    fine = {row["lang"]: row["count"] for row in rows.bodies("accepted")}
    violations = [Violations(row["lang"], row["reason"], row["count"]) for row in rows.bodies("quarantined")]
    bad: defaultdict[str | None, int] = defaultdict(int)
    for each in violations:
        bad[each.lang] += each.count
    checked = [CheckedBodies(lang, fine.get(lang, 0) + bad.get(lang, 0), bad.get(lang, 0)) for lang in {*fine, *bad}]
    return (
        sorted(checked, key=lambda each: (-each.checked, _nulls_last(each.lang))),
        sorted(violations, key=lambda each: (-each.count, _nulls_last(each.lang), each.reason)),
    )


def _schema_violations(reader: DatasetReader) -> Sequence[SchemaViolations] | None:
    """Those of the last ``validate``, as its manifest has them; None if it checked no schemas."""
    found = (reader.manifest("quarantined") or {}).get("counts", {}).get("violations")
    return None if found is None else [SchemaViolations(**each) for each in found]
