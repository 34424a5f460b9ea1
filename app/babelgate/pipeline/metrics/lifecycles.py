"""Rows of ``lifecycle``: the events of each message, combined.

A message is identified by ``message_id``, ``created_at`` and its first queue. Its date is that of ``created_at``, which
never changes and is in nearly every event, so a late event itself shows which date it affects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from typing import TYPE_CHECKING, NamedTuple, get_args

from babelgate.observe.journal.record import JournalEvent
from babelgate.pipeline.metrics.dates import DAY_MS
from babelgate.pipeline.metrics.missing_spans import MissingSpans, overlaps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_HOPS = 256
"""The most hops kept per message; all are counted. An id shared by many messages must not fill the memory of a task."""
EVENTS = tuple(event for event in get_args(JournalEvent) if event != "gap")
"""The events of messages: all but ``gap``."""
OLDEST_MS = 1_000_000_000_000
"""September 2001: an earlier ``created_at`` is assumed to be in seconds and counts as unknown."""
AHEAD_MS = 86_400_000
"""A ``created_at`` later than the event by more than this counts as unknown."""
ORDER = ("at", "node", "epoch", "seq")
HOP = ("at", "event", "queue", "broker", "attempts", "outcome", "node")


class Survey(NamedTuple):
    """What a journal has, so that work for what it lacks is left out.

    ``days``: the dates of the messages with a valid ``created_at`` in the surveyed events. ``last_at``: the time of the
    last record of each date, Unix ms. ``lacks_created_at``: the events of some messages lack it. ``has_moves``: some
    messages were redriven to another queue.
    """

    days: Collection[date] = ()
    last_at: Mapping[date, int] = {}
    lacks_created_at: bool = True
    has_moves: bool = True


def survey(journal: DataFrame, of_days: Column) -> Survey:
    """Read the journal once. ``of_days``: a condition, the events whose messages are in ``Survey.days``."""
    from pyspark.sql import functions as f

    is_named = _is_named()
    kinds = {
        "day": f.when(is_named & of_days & _is_known(), _day("created_at")),
        "lacks": is_named & ~_is_known(),
        "moves": is_named & _is_move(),
    }
    by = journal.groupBy("date", *(value.alias(name) for name, value in kinds.items()))
    found = by.agg(f.max("at").alias("last_at")).collect()
    last_at: dict[date, int] = {}
    for row in found:
        last_at[row.date] = max(row.last_at, last_at.get(row.date, row.last_at))
    days = {row.day for row in found if row.day is not None}
    return Survey(days, last_at, any(row.lacks for row in found), any(row.moves for row in found))


def with_message_dates(
    journal: DataFrame, window: tuple[int, int] | None = None, *, lacks_created_at: bool = True
) -> DataFrame:
    """The events with a ``message_id``, with ``created_at`` if it can be found, and ``day``, the date of the message.

    An event without ``created_at`` (a redrive, or a token from before an upgrade) takes it from the last earlier event
    with the same ``message_id``, else from the first later one. If no event of an id has it, ``day`` is the date of the
    first event. ``window``: keep events whose own ``created_at`` is in this range, Unix ms, both included.
    ``lacks_created_at``: as in :class:`Survey`.
    """
    from pyspark.sql import functions as f

    known = _known(journal)
    if window is not None:
        known = known.where(f.col("created_at").between(*window))
    dated = known.withColumn("day", _day("created_at"))
    return dated.unionByName(completed(journal)) if lacks_created_at else dated


def completed(journal: DataFrame) -> DataFrame:
    """The events without ``created_at`` of :func:`with_message_dates`, completed."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    known, blank = _known(journal), without_created_at(journal)
    witnesses = known.join(blank.select("message_id").distinct(), "message_id", "left_semi").select(
        "message_id", *ORDER, f.col("created_at").alias("witness")
    )
    of_id = Window.partitionBy("message_id")
    before = f.last("witness", ignorenulls=True).over(
        of_id.orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    first = f.min_by("witness", f.when(f.col("witness").isNotNull(), f.struct(*ORDER))).over(of_id)
    first_at = f.min(f.when(f.col("witness").isNull(), f.col("at"))).over(of_id)
    found = (
        blank.unionByName(witnesses, allowMissingColumns=True)
        .withColumns({"found_at": f.coalesce(before, first), "first_at": first_at})
        .where(f.col("witness").isNull())
        .withColumns({"created_at": f.col("found_at"), "day": f.coalesce(_day("found_at"), _day("first_at"))})
    )
    return found.select(*journal.columns, "day")


def _known(journal: DataFrame) -> DataFrame:
    return _named(journal).where(_is_known())


def without_created_at(journal: DataFrame) -> DataFrame:
    """The events with a ``message_id`` and without a valid ``created_at``."""
    from pyspark.sql import functions as f

    return _named(journal).where(~_is_known()).withColumn("created_at", f.lit(None).cast("bigint"))


def _named(journal: DataFrame) -> DataFrame:

    return journal.where(_is_named())


def _is_named() -> Column:
    from pyspark.sql import functions as f

    return f.col("message_id").isNotNull() & f.col("event").isin(*EVENTS)


def _is_known() -> Column:
    from pyspark.sql import functions as f

    made = f.col("created_at")
    return f.coalesce((made >= OLDEST_MS) & (made <= f.col("at") + AHEAD_MS), f.lit(False))


def _day(at: str) -> Column:
    """The UTC date of a time, independent of the session's time zone."""
    from pyspark.sql import functions as f

    return f.date_from_unix_date(f.floor(f.col(at) / DAY_MS).cast("int"))


def _is_move() -> Column:
    from pyspark.sql import functions as f

    return f.coalesce((f.col("event") == "redriven") & (f.col("to_queue") != f.col("queue")), f.lit(False))


def lifecycle(with_message_dates: DataFrame, missing_spans: MissingSpans, *, has_moves: bool = True) -> DataFrame:
    """One row per message. ``has_moves``: as in :class:`Survey`."""
    from pyspark.sql import functions as f

    hop, order = f.col("hop"), f.col("order")
    event, at, queue = hop["event"], hop["at"], hop["queue"]

    def when(*names: str) -> Column:
        return f.when(event.isin(*names), at)

    def count(*names: str) -> Column:
        return f.count_if(event.isin(*names))

    # Structures are made before the exchange: an aggregate that made them would interpret an expression for each event.
    before = {
        "hop": f.struct(*HOP),
        "order": f.struct(*ORDER),
        # An id that is used again is another message, and so are its moves. Without nulls, as a join takes it.
        "made": f.coalesce("created_at", f.lit(0)),
    }
    # Events of a message are combined where they are together. To combine them in each task before the exchange, too,
    # would cost more than it saves, because a message has few events. Spark sorts them by what they are grouped by: ids
    # often begin alike, and then their hashes are faster to compare.
    spread = with_message_dates.withColumns(before).repartition("message_id", "made")
    lives = (
        (_with_home(spread) if has_moves else spread.withColumn("home", queue))
        .groupBy(f.xxhash64("message_id"), "message_id", "made", "home", "day")
        .agg(
            *(f.max(name).alias(name) for name in ("job", "lang", "trace_id", "bytes")),
            f.min_by(hop["broker"], f.when(hop["broker"].isNotNull(), f.struct(queue != f.col("home"), order))).alias(
                "broker"
            ),
            f.max_by(f.struct(f.coalesce("to_queue", queue).alias("queue"), event.alias("event")), order).alias("last"),
            f.min(at).alias("first_at"),
            f.min(when("accepted")).alias("accepted_at"),
            f.min(when("delivered")).alias("first_delivered_at"),
            f.min(when("acked")).alias("acked_at"),
            f.max(when("dead_lettered")).alias("dead_lettered_at"),
            f.max(when("dropped")).alias("dropped_at"),
            count("accepted").alias("copies"),
            count("delivered").alias("deliveries"),
            count("acked").alias("acks"),
            count("nacked").alias("nacks"),
            count("lease_expired").alias("lease_expiries"),
            count("dead_lettered").alias("dead_letterings"),
            count("redriven").alias("redrives"),
            f.count("*").alias("events"),
            f.min_by(hop, order, MAX_HOPS).alias("hops"),
        )
    )
    return _lifecycle_columns(lives.withColumn("created_at", f.nullif("made", f.lit(0))), missing_spans)


def _with_home(with_message_dates: DataFrame) -> DataFrame:
    """Adds ``home``, the queue of the message before any redrive to another queue; usually ``queue``. ``made``: its
    ``created_at``, 0 if that is unknown."""
    from pyspark.sql import functions as f

    moves = (
        with_message_dates.where(_is_move())
        .groupBy("message_id", "made")
        .agg(f.max_by(f.struct("queue", "to_queue"), f.struct(*ORDER), MAX_HOPS).alias("moves"))
    )
    # The latest move comes first, so this follows the moves back to the first queue.
    back = f.aggregate(
        "moves", f.col("queue"), lambda queue, move: f.when(move["to_queue"] == queue, move["queue"]).otherwise(queue)
    )
    home = f.when(f.col("moves").isNull(), f.col("queue")).otherwise(back)
    return with_message_dates.join(moves, ["message_id", "made"], "left").withColumn("home", home)


def _lifecycle_columns(lives: DataFrame, missing_spans: MissingSpans) -> DataFrame:
    from pyspark.sql import functions as f

    acked, dead_at, delivered = f.col("acked_at"), f.col("dead_lettered_at"), f.col("first_delivered_at")
    dropped_at = f.col("dropped_at")
    # Counts decide, not the last event, because the clocks of two processes may reverse the order of events.
    outcome = (
        f.when(acked.isNotNull(), "acked")
        .when(dropped_at.isNotNull(), "dropped")
        .when(f.col("dead_letterings") > f.col("redrives"), "dead_lettered")
        .otherwise("open")
    )
    ended = f.coalesce(acked, dropped_at, f.when(f.col("outcome") == "dead_lettered", dead_at))
    wait = delivered - f.coalesce("accepted_at", "created_at")
    whole = acked - f.coalesce("created_at", "accepted_at")
    return (
        lives.withColumn("outcome", outcome)
        .withColumn("ended_at", ended)
        .select(
            f.col("day").alias("date"),
            "message_id",
            f.col("home").alias("queue"),
            "broker",
            "job",
            "lang",
            "trace_id",
            "bytes",
            "created_at",
            "accepted_at",
            "first_at",
            "first_delivered_at",
            "ended_at",
            "outcome",
            f.col("last")["queue"].alias("last_queue"),
            f.col("last")["event"].alias("last_event"),
            "copies",
            "deliveries",
            "acks",
            "nacks",
            "lease_expiries",
            "dead_letterings",
            "redrives",
            "events",
            f.when(wait < 0, 0).otherwise(wait).alias("wait_ms"),
            f.when(whole < 0, 0).otherwise(whole).alias("e2e_ms"),
            (f.coalesce(wait < 0, f.lit(False)) | f.coalesce(whole < 0, f.lit(False))).alias("skewed"),
            "hops",
            is_at_least(missing_spans).alias("at_least"),
        )
    )


def is_at_least(missing_spans: MissingSpans) -> Column:
    """Whether records are missing between the beginning and the end of a message."""
    from pyspark.sql import functions as f

    return overlaps(missing_spans, f.least("first_at", "created_at"), f.col("ended_at"))


def lifecycle_at(lifecycle: DataFrame, at: int) -> DataFrame:
    """The messages that existed at ``at`` (Unix ms), with ``ended_at``, ``last_event`` and ``last_queue`` of that time.

    A message with more events than ``hops`` keeps its present values.
    """
    from pyspark.sql import functions as f

    past = f.filter("hops", lambda hop: hop["at"] <= at)

    def count(event: str) -> Column:
        return f.size(f.filter(past, lambda hop: hop["event"] == event))

    last, following = f.element_at(past, -1), f.try_element_at("hops", f.size(past) + 1)
    # The event after a redrive names the queue to which the message went.
    queue = f.when(last["event"] == "redriven", following["queue"]).otherwise(last["queue"])
    had_ended = (count("acked") > 0) | (count("dropped") > 0) | (count("dead_lettered") > count("redriven"))
    then = {
        "ended_at": f.when(had_ended, f.least("ended_at", f.lit(at))),
        "last_event": last["event"],
        "last_queue": f.when(following.isNull(), f.col("last_queue")).otherwise(queue),
    }
    is_whole = f.col("events") == f.size("hops")
    return lifecycle.where(f.col("first_at") <= at).withColumns(
        {name: f.when(is_whole, value).otherwise(f.col(name)) for name, value in then.items()}
    )
