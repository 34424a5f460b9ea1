"""One queue, id or trace with nearly all messages does not overload a single task."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as f

from babelgate.pipeline.metrics.lifecycles import MAX_HOPS, lifecycle, with_message_dates
from babelgate.pipeline.metrics.messages import MAX_MESSAGES, traces
from tests.pipeline.histories import START, Days, frame, row

TASKS = 8


@pytest.fixture
def wide(spark):
    """As on a cluster: more partitions than this machine has cores, however small."""
    settings = {"spark.sql.shuffle.partitions": str(TASKS), "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_the_messages_of_one_queue_are_spread_over_tasks(wide, tmp_path):
    rows = list(Days(1200, hot=0.95).rows())
    assert sum(each["queue"] == "hot" for each in rows) > 0.9 * len(rows)
    lives = lifecycle(with_message_dates(frame(wide, tmp_path, rows)), ())
    by_task = lives.groupBy(f.spark_partition_id()).agg(f.sum("events").alias("events")).collect()
    assert len(by_task) == TASKS
    assert max(each.events for each in by_task) < 2 * sum(each.events for each in by_task) / TASKS


def test_one_id_and_one_trace_for_everything_are_counted_and_cut(wide, tmp_path):
    facts = {"message_id": "same", "trace_id": "same", "created_at": START}
    again = [row("delivered", START + number, number, **facts) for number in range(MAX_HOPS + 50)]
    others = [
        row(
            "accepted", START + number, number, **{**facts, "message_id": f"m{number:05}", "created_at": START + number}
        )
        for number in range(1, MAX_MESSAGES + 20)
    ]
    lives = lifecycle(with_message_dates(frame(wide, tmp_path, again + others)), ()).cache()
    (life,) = lives.where("message_id = 'same'").collect()
    assert (life.deliveries, life.events, len(life.hops)) == (MAX_HOPS + 50, MAX_HOPS + 50, MAX_HOPS)
    assert [hop.at for hop in life.hops] == [START + number for number in range(MAX_HOPS)]
    (trace,) = traces(lives).collect()
    assert (trace.messages, trace.open, len(trace.hops)) == (MAX_MESSAGES + 20, MAX_MESSAGES + 20, MAX_MESSAGES)
    assert [hop.message_id for hop in trace.hops][:3] == ["same", "m00001", "m00002"]


def test_many_moves_of_one_message_leave_those_of_another_with_its_id(wide, tmp_path):
    """DuckDB follows the moves of each message, so rows must not depend on the engine."""
    facts = {"message_id": "same", "trace_id": "same"}

    def moved(number: int, made: int, queue: str, to: str):
        return row("redriven", START + number, number, **facts, created_at=START + made, queue=queue, to_queue=to)

    rows = [moved(2, 1, "a", "b"), row("acked", START + 3, 3, **facts, created_at=START + 1, queue="b")]
    rows += [moved(4 + number, 2, "c", "d") for number in range(MAX_HOPS)]
    lives = lifecycle(with_message_dates(frame(wide, tmp_path, rows)), ()).collect()
    assert sorted((life.queue, life.events) for life in lives) == [("a", 2), ("c", MAX_HOPS)]
