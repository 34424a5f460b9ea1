"""Computes the figures of a report from the datasets of ``metrics`` and ``validate``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.reader import read_missing
from babelgate.pipeline.metrics.dates import DAY_MS, midnight
from babelgate.pipeline.metrics.histogram import percentiles
from babelgate.pipeline.report.figures import (
    CheckedBodies,
    DeadLetterFigures,
    Figures,
    Group,
    OpenMessages,
    SchemaViolations,
    Violations,
)
from babelgate.pipeline.storage.datasets import DatasetStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COUNTS = (
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
_DIMENSIONS = ("queue", "job", "lang", "broker")
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000

Span = tuple[date, date]
"""The first and the last day, both included."""


def load_figures(
    store: DatasetStore, first: date | None = None, last: date | None = None, note: str | None = None
) -> Figures:
    """The figures from ``first`` to ``last``, both included; None: no bound.

    Raises JobFailed if that time has no events.
    """
    span, as_of = _span(store, first, last)
    unit: Literal["hour", "day"] = "hour" if span[0] == span[1] else "day"
    # Minutes are used for a single day only, because they have many more rows.
    grain = "minute" if unit == "hour" else "day"
    counted = _between(store.read("throughput").where(f"grain = '{grain}'"), span)
    groups = _groups(counted, _between(store.read("latency_hist").where(f"grain = '{grain}'"), span), unit)
    queues, jobs, languages, brokers = (_ranked(groups[each].values()) for each in _DIMENSIONS)
    lost, in_holes = _missing(store, span)
    checked, violations = _checked(store)
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
        dead_letters=_dead_letters(counted),
        open=_open(store, span),
        checked=checked,
        violations=violations,
        schema_violations=_schema_violations(store),
    )


def _ranked(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: (-group.accepted, -group.delivered, _nulls_last(group.name)))


def _nulls_last(name: str | None) -> tuple[bool, str]:
    return name is None, name or ""


def _span(store: DatasetStore, first: date | None, last: date | None) -> tuple[Span, int]:
    from pyspark.sql import functions as f

    minutes = store.read("throughput").where("grain = 'minute'")
    if first is not None:
        minutes = minutes.where(f.col("date") >= first)
    if last is not None:
        minutes = minutes.where(f.col("date") <= last)
    found = minutes.agg(f.min("date"), f.max("date"), f.max("at")).first()
    if found is None or found[0] is None:
        when = f" from {first or 'the beginning'} to {last or 'the end'}" if first or last else ""
        raise JobFailed(f"{store.root} has no events{when}: run `babelgate pipeline metrics` first, or take other days")
    return (first or found[0], last or found[1]), found[2] + _MINUTE_MS - 1


def _between(frame: DataFrame, span: Span) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.where(f.col("date").between(*span))


def _names(span: Span, unit: str) -> list[str]:
    if unit == "hour":
        return [f"{span[0]}T{hour:02d}" for hour in range(24)]
    return [(span[0] + timedelta(days)).isoformat() for days in range((span[1] - span[0]).days + 1)]


def _groups(counted: DataFrame, histogram: DataFrame, unit: str) -> Mapping[str, Mapping[str | None, Group]]:
    """The groups by dimension and name; ``trend`` and ``total`` are dimensions too."""
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in _COUNTS]
    counts = _spread(counted, unit).groupBy("dimension", "name").agg(*sums, f.bool_or("at_least").alias("at_least"))
    renamed = histogram.withColumnsRenamed({"sum_ms": "sum", "max_ms": "max"})
    times = percentiles(_spread(renamed, unit), ["dimension", "name", "kind"])
    found: defaultdict[tuple[str, str | None], dict[str, Any]] = defaultdict(dict)
    for row in counts.collect():
        made = found[row["dimension"], row["name"]]
        made |= {name: row[name] for name in (*_COUNTS, "at_least")}
        made["retry_rate"] = _rate(row["retried"], row["delivered"])
        made["dead_letter_rate"] = _rate(row["dead_lettered"], row["acked"] + row["dead_lettered"])
    for row in times.collect():
        kind = _KINDS[row["kind"]]
        made = found[row["dimension"], row["name"]]
        made |= {f"{kind}_{name}_ms": row[name] for name in ("p50", "p95", "p99", "max")}
    groups: defaultdict[str, dict[str | None, Group]] = defaultdict(dict)
    for (dimension, name), members in found.items():
        groups[dimension][name] = Group(name=name, **members)
    return groups


def _spread(frame: DataFrame, unit: str) -> DataFrame:
    """Repeats every row for each of its dimensions, as ``dimension`` and ``name``."""
    from pyspark.sql import functions as f

    day = f.date_from_unix_date(f.floor(f.col("at") / DAY_MS).cast("int")).cast("string")
    hour = f.lpad(f.floor(f.pmod("at", f.lit(DAY_MS)) / _HOUR_MS).cast("string"), 2, "0")

    def entry(dimension: str, name: Column) -> Column:
        return f.struct(f.lit(dimension).alias("dimension"), name.cast("string").alias("name"))

    entries = [entry(name, f.col(name)) for name in _DIMENSIONS]
    entries += [entry("trend", f.concat_ws("T", day, hour) if unit == "hour" else day), entry("total", f.lit(None))]
    return frame.select("*", f.inline(f.array(*entries)))


def _rate(part: int, of: int) -> float | None:
    return part / of if of else None


def _missing(store: DatasetStore, span: Span) -> tuple[int, int]:
    first = midnight(span[0])
    end = midnight(span[1]) + DAY_MS
    counts = {"lost": 0, "hole": 0}
    for row in read_missing(store.spark, store.root).where("kind in ('lost', 'hole')").collect():
        begins_before = row["from_at"] is None or row["from_at"] < end
        if begins_before and (row["to_at"] is None or row["to_at"] >= first):
            counts[row["kind"]] += row["missing"] or 0
    return counts["lost"], counts["hole"]


def _dead_letters(counted: DataFrame) -> Sequence[DeadLetterFigures]:
    from pyspark.sql import functions as f

    found = [
        DeadLetterFigures(prefix + row["key"], row["queue"], row["n"])
        for column, prefix in (("dead_lettered_by", ""), ("poison_by", "poison: "))
        for row in counted.select("queue", f.explode(column))
        # ``poison_by`` has the codes of these.
        .where(f.lit(column != "dead_lettered_by") | (f.col("key") != "poison"))
        .groupBy("key", "queue")
        .agg(f.sum("value").alias("n"))
        .collect()
    ]
    return sorted(found, key=lambda each: (-each.count, each.reason, _nulls_last(each.queue)))


def _open(store: DatasetStore, span: Span) -> Sequence[OpenMessages] | None:
    """The open messages as of the end of the last day; None if no run has measured them."""
    from pyspark.sql import functions as f

    rows = store.read("open").where(f.col("date") == f.lit(span[1])).collect()
    if not rows:
        # A day without open messages has no rows, but the manifest names the day of the last run.
        as_of = (store.manifest("open") or {}).get("as_of")
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


def _checked(store: DatasetStore) -> tuple[Sequence[CheckedBodies] | None, Sequence[Violations] | None]:
    if store.current("accepted") is None:
        return None, None
    fine = {row["lang"]: row["count"] for row in store.read("accepted").groupBy("lang").count().collect()}
    broken = store.read("quarantined").groupBy("lang", "reason").count().collect()
    violations = [Violations(row["lang"], row["reason"], row["count"]) for row in broken]
    bad: defaultdict[str | None, int] = defaultdict(int)
    for each in violations:
        bad[each.lang] += each.count
    checked = [CheckedBodies(lang, fine.get(lang, 0) + bad.get(lang, 0), bad.get(lang, 0)) for lang in {*fine, *bad}]
    return (
        sorted(checked, key=lambda each: (-each.checked, _nulls_last(each.lang))),
        sorted(violations, key=lambda each: (-each.count, _nulls_last(each.lang), each.reason)),
    )


def _schema_violations(store: DatasetStore) -> Sequence[SchemaViolations] | None:
    """Those of the last ``validate``, as its manifest has them; None if it checked no schemas."""
    found = (store.manifest("quarantined") or {}).get("counts", {}).get("violations")
    return None if found is None else [SchemaViolations(**each) for each in found]
