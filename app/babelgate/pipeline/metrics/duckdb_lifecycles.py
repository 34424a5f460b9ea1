"""Rows of ``lifecycle`` as SQL of DuckDB: those of :mod:`babelgate.pipeline.metrics.lifecycles`.

Every function takes the name of a view and returns a query.
"""

from __future__ import annotations

from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.duckdb_events import columns_of, one_of, overlaps
from babelgate.pipeline.metrics.lifecycles import AHEAD_MS, EVENTS, HOP, MAX_HOPS, OLDEST_MS, ORDER
from babelgate.pipeline.metrics.missing_spans import MissingSpans
from babelgate.pipeline.storage.duckdb_sql import quoted

_ORDER = columns_of(ORDER)
_LATEST = ", ".join(f"{quoted(name)} desc" for name in ORDER)
_NAMED = f"(message_id is not null and {one_of('event', EVENTS)})"
_KNOWN = f'coalesce(created_at >= {OLDEST_MS} and created_at <= "at" + {AHEAD_MS}, false)'
_MOVE = "coalesce(event = 'redriven' and to_queue <> queue, false)"
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_387_199_999
"""From the year 1 to a day after the year 9999, in Unix ms. DuckDB fails for dates that it cannot hold."""
_LIFE = "message_id, created_at, home, day"
ENTANGLED_DATES = {"first_date": "min", "last_date": "max", "first_day": "min", "last_day": "max"}
"""The dates in the rows of :func:`entangled`, and the fold that makes one row of several with the same id."""


def day_of(at: str) -> str:
    """The UTC date of a time."""
    # A time in a condition that does not hold may be of no date.
    valid = f"{at} between {_FIRST_MS} and {_LAST_MS}"
    return f"(date '1970-01-01' + try_cast(case when {valid} then floor({at} / {DAY_MS}) end as integer))"


def survey(journal: str, days: str) -> str:
    """By date: the last record, whether a message lacks ``created_at``, and the dates of the messages with events on
    ``days``, a list of dates."""
    return f"""
        select date, max("at") as last_at, bool_or({_NAMED} and not {_KNOWN}) as lacks,
            list(distinct {day_of("created_at")}) filter ({_NAMED} and {_KNOWN} and list_contains({days}, date)) as days
        from {journal} group by date
    """


def without_created_at(journal: str) -> str:
    """The events with a ``message_id`` and without a valid ``created_at``."""
    return f"select * replace (null::bigint as created_at) from {journal} where {_NAMED} and not {_KNOWN}"


def keys(journal: str) -> str:
    """Ids and ``created_at`` of the messages with events that have it."""
    return f"select distinct message_id, created_at from {journal} where {_NAMED} and {_KNOWN}"


def dated(journal: str) -> str:
    """The dates (``day``) of the events of messages that have ``created_at``."""
    return f"select {day_of('created_at')} as day from {journal} where {_NAMED} and {_KNOWN}"


def ids(journal: str) -> str:
    """The ids of messages with events."""
    return f"select distinct message_id from {journal} where {_NAMED}"


def entangled(journal: str, known: str | None = None) -> str:
    """The ids with an event that lacks ``created_at``: each event of one may change how all others are combined. With
    the dates of their first and last event, and the first and last date of their messages. ``known``: a view of ids
    that have such an event elsewhere."""
    blank = f"select message_id from ({without_created_at(journal)})"
    blank += f" union select message_id from {known}" if known else ""
    return f"""
        select message_id, min(date) as first_date, max(date) as last_date, min(day) as first_day, max(day) as last_day
        from (
            select message_id, date, {day_of("created_at")} as day from {journal}
            where {_NAMED} and {_KNOWN} and message_id in ({blank})
            union all by name select message_id, date, day from ({completed(journal)})
        ) group by message_id
    """


def completed(journal: str) -> str:
    """The events without ``created_at``, completed from other events with the same id, and ``day``."""
    return f"""
        with pool as (
            select *, case when {_KNOWN} then created_at end as witness from {journal}
            where {_NAMED} and message_id in (select message_id from ({without_created_at(journal)}))
        ),
        found as (
            select *,
                coalesce(
                    last_value(witness ignore nulls) over (
                        partition by message_id order by {_ORDER} rows between unbounded preceding and current row),
                    first_value(witness ignore nulls) over (
                        partition by message_id order by {_ORDER}
                        rows between unbounded preceding and unbounded following)
                ) as found_at,
                min(case when witness is null then "at" end) over (partition by message_id) as first_at
            from pool
        )
        select * exclude (witness, found_at, first_at) replace (found_at as created_at),
            coalesce({day_of("found_at")}, {day_of("first_at")}) as day
        from found where witness is null
    """


def with_message_dates(journal: str, window: tuple[int, int]) -> str:
    """The events with a ``message_id``, and the date of their message. ``window``: of ``created_at``, Unix ms."""
    known = f"{_NAMED} and {_KNOWN} and created_at between {window[0]} and {window[1]}"
    return (
        f"select *, {day_of('created_at')} as day from {journal} where {known} union all by name ({completed(journal)})"
    )


def moves(dated: str) -> str:
    """The redrives to another queue, the latest of each message first, and the queues that its events name. ``made``:
    its ``created_at``, 0 if that is unknown."""
    return f"""
        with made as (select *, coalesce(created_at, 0) as made from {dated}),
        moves as (
            select message_id, made, list({{'from': queue, 'to': to_queue}} order by {_LATEST})[1:{MAX_HOPS}] as moves
            from made where {_MOVE} group by message_id, made
        )
        select distinct message_id, made, queue, moves from made join moves using (message_id, made)
        where queue is not null
    """


def lifecycle(dated: str, homes: str, missing_spans: MissingSpans) -> str:
    """One row per message. ``homes``: the ``home`` of events by ``message_id``, ``made`` and ``queue``, where it is
    not that queue (:func:`moves`)."""

    def at(fold: str, event: str) -> str:
        return f"{fold}(\"at\") filter (event = '{event}')"

    def count(event: str) -> str:
        return f"count(*) filter (event = '{event}')"

    # Sorted as structures, by their first fields. Aggregates with an order by these columns take twice the time.
    event = "{" + ", ".join(f"'{name}': {quoted(name)}" for name in dict.fromkeys((*ORDER, *HOP, "to_queue"))) + "}"
    hop = "{" + ", ".join(f"'{name}': hop.{quoted(name)}" for name in HOP) + "}"
    return f"""
        with placed as (
            select events.*, coalesce(homes.home, events.queue) as home
            from {dated} as events left join {homes} as homes
                on homes.message_id = events.message_id and homes.queue = events.queue
                    and homes.made = coalesce(events.created_at, 0)
        ),
        lives as (
            select {_LIFE}, max(job) as job, max(lang) as lang, max(trace_id) as trace_id, max(bytes) as bytes,
                min("at") as first_at, {at("min", "accepted")} as accepted_at,
                {at("min", "delivered")} as first_delivered_at, {at("min", "acked")} as acked_at,
                {at("max", "dead_lettered")} as dead_lettered_at, {at("max", "dropped")} as dropped_at,
                {count("accepted")} as copies, {count("delivered")} as deliveries, {count("acked")} as acks,
                {count("nacked")} as nacks, {count("lease_expired")} as lease_expiries,
                {count("dead_lettered")} as dead_letterings, {count("redriven")} as redrives, count(*) as events,
                list_sort(list({event})) as sorted
            from placed group by {_LIFE}
        ),
        ended as (
            select * exclude (sorted),
                coalesce(
                    [hop for hop in sorted if hop.broker is not null and hop.queue is not distinct from home][1].broker,
                    [hop for hop in sorted if hop.broker is not null][1].broker
                ) as broker,
                coalesce(sorted[-1].to_queue, sorted[-1].queue) as last_queue, sorted[-1].event as last_event,
                [{hop} for hop in sorted[1:{MAX_HOPS}]] as hops,
                -- Counts decide, because the clocks of two processes may reverse the order of events.
                case when acked_at is not null then 'acked' when dropped_at is not null then 'dropped'
                    when dead_letterings > redrives then 'dead_lettered' else 'open' end as outcome,
                coalesce(acked_at, dropped_at, case when dead_letterings > redrives then dead_lettered_at end)
                    as ended_at,
                first_delivered_at - coalesce(accepted_at, created_at) as wait,
                acked_at - coalesce(created_at, accepted_at) as whole
            from lives
        )
        select *, day as date, home as queue, case when wait < 0 then 0 else wait end as wait_ms,
            case when whole < 0 then 0 else whole end as e2e_ms,
            coalesce(wait < 0, false) or coalesce(whole < 0, false) as skewed,
            {is_at_least(missing_spans)} as at_least
        from ended
    """


def is_at_least(missing_spans: MissingSpans) -> str:
    """Whether records are missing between the beginning and the end of a message."""
    return overlaps(missing_spans, "least(first_at, created_at)", "ended_at")


def lifecycle_at(lifecycle: str, at: int) -> str:
    """The messages that existed at ``at`` (Unix ms), with ``ended_at``, ``last_event`` and ``last_queue`` of then."""

    def count(event: str) -> str:
        return f"len([hop for hop in past if hop.event = '{event}'])"

    return f"""
        with existing as (
            select *, [hop for hop in hops if hop."at" <= {at}] as past, events = len(hops) as is_whole
            from {lifecycle} where first_at <= {at}
        ),
        past_state as (
            select *, past[-1] as last, hops[len(past) + 1] as following,
                {count("acked")} > 0 or {count("dropped")} > 0 or {count("dead_lettered")} > {count("redriven")}
                    as had_ended
            from existing
        )
        select * exclude (past, is_whole, last, following, had_ended) replace (
            case when not is_whole then ended_at when had_ended then least(ended_at, {at}) end as ended_at,
            case when is_whole then last.event else last_event end as last_event,
            -- The event after a redrive names the queue to which the message went.
            case when not is_whole or following is null then last_queue
                when last.event = 'redriven' then following.queue else last.queue end as last_queue
        )
        from past_state
    """
