"""Counts, rates and sizes of events as SQL of DuckDB: the rows of :mod:`babelgate.pipeline.metrics.events`.

Every function takes the name of a view and returns a query.
"""

from __future__ import annotations

from collections.abc import Iterable

from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.duckdb_histogram import percentiles
from babelgate.pipeline.metrics.events import KEYS, MINUTE_MS, PLAIN
from babelgate.pipeline.metrics.missing_spans import ALWAYS, MissingSpans
from babelgate.pipeline.storage.duckdb_sql import literal, quoted

OF = ", ".join(KEYS)
_LAST = f"(\"at\" + case when grain = 'day' then {DAY_MS} else {MINUTE_MS} end - 1)"


def one_of(column: str, names: Iterable[str]) -> str:
    """Whether a column has one of these strings."""
    return f"{column} in ({', '.join(map(literal, names))})"


def floored(at: str, ms: int) -> str:
    """A time rounded down to a multiple of ``ms``, also before 1970."""
    return f"({at} - ({at} % {ms} + {ms}) % {ms})"


def grains(minute: str) -> str:
    """A lateral table of (grain, at) for the beginning of a minute."""
    return f"lateral (values ('minute', {minute}), ('day', {floored(minute, DAY_MS)})) as grains(grain, \"at\")"


def overlaps(missing_spans: MissingSpans, first: str, last: str) -> str:
    """Whether a span overlaps ``first`` to ``last``, both included; a null ``last`` means no end."""
    until = f"coalesce({last}, {ALWAYS})"
    spans = (f"({start} <= {until} and {end} >= {first})" for start, end in missing_spans)
    return f"({' or '.join(spans) or 'false'})"


def throughput(journal: str, missing_spans: MissingSpans) -> str:
    """Rows of ``throughput``."""
    counts = ", ".join(f"coalesce(sum(n) filter (event = {literal(name)}), 0) as {name}" for name in PLAIN)
    entry = "{'key': reason, 'value': n::bigint}"
    return f"""
        with few as (
            select date, {floored('"at"', MINUTE_MS)} as minute, {OF}, event,
                case when event in ('dead_lettered', 'poison') then coalesce(outcome, 'unknown') end as reason,
                event = 'delivered' and coalesce(attempts, 0) > 0 as is_retry, count(*) as n
            from {journal} where {one_of("event", (*PLAIN, "dead_lettered"))} group by all
        ),
        by_reason as (
            select date, grain, "at", {OF}, event, reason, sum(n) as n, coalesce(sum(n) filter (is_retry), 0) as retries
            from few, {grains("minute")} group by all
        ),
        counted as (
            select date, grain, "at", {OF}, {counts}, sum(retries) as retried,
                coalesce(sum(n) filter (event in ('dead_lettered', 'poison')), 0) as dead_lettered,
                coalesce(list({entry} order by reason) filter (event = 'dead_lettered' and reason <> 'poison'), [])
                    as reasons,
                coalesce(sum(n) filter (event = 'poison' or reason = 'poison'), 0)::bigint as poisoned,
                coalesce(list({entry} order by reason) filter (event = 'poison'), []) as codes
            from by_reason group by date, grain, "at", {OF}
        )
        select *, map_from_entries(
                reasons || case when poisoned > 0 then [{{'key': 'poison', 'value': poisoned}}] else [] end
            ) as dead_lettered_by,
            map_from_entries(codes) as poison_by, {overlaps(missing_spans, '"at"', _LAST)} as at_least
        from counted
    """


def rates(throughput: str) -> str:
    """Rows of ``rates``."""
    return f"""
        select date, grain, "at", {OF}, delivered, retried, acked + dead_lettered as ended, dead_lettered,
            case when delivered > 0 then retried::double / delivered::double end as retry_rate,
            case when acked + dead_lettered > 0 then dead_lettered::double / (acked + dead_lettered)::double end
                as dead_letter_rate,
            at_least
        from {throughput}
    """


def sizes(journal: str) -> str:
    """The histogram of :func:`payload`, of the events of a journal."""
    return f"""
        with few as (
            select date, {floored('"at"', MINUTE_MS)} as minute, event, {OF}, bucket_of(bytes) as bucket,
                count(*) as n, sum(bytes) as sum, max(bytes) as max
            from {journal} where event in ('accepted', 'delivered') and bytes is not null group by all
        )
        select date, grain, "at", event, {OF}, bucket, n, sum, max from few, {grains("minute")}
    """


def payload(histogram: str, missing_spans: MissingSpans) -> str:
    """Rows of ``payload`` from a query of :func:`sizes`, or of several."""
    found = percentiles(histogram, ["date", "grain", "at", "event", *KEYS], {"sum": "sum"})
    renamed = ", ".join(f"{name} as {name}_bytes" for name in ("sum", "max", "p50", "p95", "p99"))
    return f"""
        select date, grain, "at", event, {OF}, n, {renamed}, buckets,
            {overlaps(missing_spans, '"at"', _LAST)} as at_least
        from ({found})
    """


def added_throughput(throughput: str) -> str:
    """Rows of ``throughput`` from rows that are of the same time and keys: the counts are added."""
    counts = ", ".join(f"sum({name}) as {name}" for name in (*PLAIN, "retried", "dead_lettered"))

    def added(entries: str) -> str:
        value = f"list_sum([one.value for one in {entries} if one.key = name])::bigint"
        names = f"list_sort(list_distinct([each.key for each in {entries}]))"
        return f"map_from_entries([{{'key': name, 'value': {value}}} for name in {names}])"

    return f"""
        with together as (
            select date, grain, "at", {OF}, {counts}, bool_or(at_least) as at_least,
                flatten(list(map_entries(dead_lettered_by))) as reasons, flatten(list(map_entries(poison_by))) as codes
            from {throughput} group by date, grain, "at", {OF}
        )
        select *, {added("reasons")} as dead_lettered_by, {added("codes")} as poison_by from together
    """


def sizes_of(payload: str) -> str:
    """The histogram that rows of ``payload`` were made from. The sum of a row is in its first bucket."""
    return f"""
        select date, grain, "at", event, {OF}, cell.bucket as bucket, cell.n as n,
            case when number = 1 then sum_bytes else 0 end as sum, max_bytes as max
        from (select *, unnest(buckets) as cell, generate_subscripts(buckets, 1) as number from {payload})
    """


def columns_of(names: Iterable[str]) -> str:
    """Names of columns in SQL."""
    return ", ".join(map(quoted, names))
