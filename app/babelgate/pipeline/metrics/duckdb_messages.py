"""Latencies, open messages and traces as SQL of DuckDB: the rows of :mod:`babelgate.pipeline.metrics.messages`.

Every function takes the name of a view and returns a query.
"""

from __future__ import annotations

from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.duckdb_events import OF, floored, grains
from babelgate.pipeline.metrics.duckdb_histogram import percentiles
from babelgate.pipeline.metrics.events import KEYS, MINUTE_MS
from babelgate.pipeline.metrics.messages import AGES_SECONDS, MAX_MESSAGES, MEMBERS

BEGAN = "coalesce(created_at, accepted_at, first_at)"
"""The time of a message that decides its minute."""
_FOLDED = {"sum_ms": "sum", "max_ms": "max", "skewed": "sum", "at_least": "bool_or"}


def latency_hist(lifecycle: str) -> str:
    """Rows of ``latency_hist``."""
    return f"""
        with few as (
            select date, {floored(BEGAN, MINUTE_MS)} as minute, kind, {OF}, bucket_of(ms) as bucket, count(*) as n,
                sum(ms) as sum_ms, max(ms) as max_ms, count(*) filter (skewed) as skewed, bool_or(at_least) as at_least
            from {lifecycle}, lateral (values ('wait', wait_ms), ('end_to_end', e2e_ms)) as times(kind, ms)
            where ms is not null group by all
        )
        select date, grain, "at", kind, {OF}, bucket, sum(n) as n,
            {", ".join(f"{fold}({name}) as {name}" for name, fold in _FOLDED.items())}
        from few, {grains("minute")} group by all
    """


def with_days(minutes: str) -> str:
    """Rows of ``latency_hist`` by minute, with those by day that they add up to."""
    return f"""
        with minutes as ({minutes})
        from minutes union all by name
        select date, 'day' as grain, {floored('"at"', DAY_MS)} as "at", kind, {OF}, bucket, sum(n) as n,
            {", ".join(f"{fold}({name}) as {name}" for name, fold in _FOLDED.items())}
        from minutes group by all
    """


def latency(histogram: str) -> str:
    """Rows of ``latency``."""
    rows = f"select * exclude (max_ms, sum_ms), max_ms as max, sum_ms as sum from {histogram}"
    more = {"sum": "sum", "skewed": "sum", "at_least": "bool_or"}
    found = percentiles(rows, ["date", "grain", "at", "kind", *KEYS], more)
    renamed = ", ".join(f"{name} as {name}_ms" for name in ("p50", "p95", "p99", "max", "sum"))
    return f'select date, grain, "at", kind, {OF}, n, {renamed}, skewed, at_least from ({found})'


def open_messages(lifecycle: str, as_of: int) -> str:
    """Rows of ``open`` as of ``as_of``, Unix ms."""
    bounds = f"{list(AGES_SECONDS)}::bigint[]"
    return f"""
        with still as (
            select *, {BEGAN} as began,
                len([bound for bound in {bounds} if bound <= greatest(({as_of} - {BEGAN}) / 1000, 0)]) as reached
            from {lifecycle} where first_at <= {as_of} and (ended_at is null or ended_at > {as_of})
        )
        select date '1970-01-01' + {as_of // DAY_MS} as date, {as_of} as as_of, last_queue as queue,
            case when last_event = 'delivered' then 'leased' else 'waiting' end as state,
            ({bounds})[reached] as from_seconds, ({bounds})[reached + 1] as below_seconds, count(*) as n,
            min(began) as oldest_at, bool_or(at_least) as at_least
        from still group by all
    """


def traces(lifecycle: str) -> str:
    """Rows of ``traces``."""
    hop = "{'at': began, " + ", ".join(f"'{name}': {name}" for name in MEMBERS) + "}"
    return f"""
        with members as (
            select *, {BEGAN} as began,
                row_number() over (partition by trace_id order by {BEGAN}, first_at, message_id, queue nulls first)
                    as number
            from {lifecycle} where trace_id is not null
        ),
        firsts as (
            select trace_id, queue, min(number) as number from members where number <= {MAX_MESSAGES}
            group by trace_id, queue
        ),
        visited as (select trace_id, list(queue order by number) as queues from firsts group by trace_id),
        found as (
            select trace_id, min(date) as date, min(began) as started_at, max(ended_at) as last_ended_at,
                count(*) as messages, count(*) filter (outcome = 'open') as open,
                count(*) filter (outcome = 'dead_lettered') as dead_lettered,
                list({hop} order by number) filter (number <= {MAX_MESSAGES}) as hops, bool_or(at_least) as at_least
            from members group by trace_id
        )
        select *, open = 0 as complete, case when open = 0 then last_ended_at end as ended_at,
            case when open = 0 then greatest(last_ended_at - started_at, 0) end as trace_ms
        from found join visited using (trace_id)
    """
