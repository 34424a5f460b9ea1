"""``python -m bench.pipeline_skew --rows 1000000``: how evenly ``metrics`` shares a journal among its tasks.

95 % of the messages are on one queue. A row for each stage that took long: how many tasks it had, and of the median and
of the largest task the time and the records it read from other tasks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.pipeline import watched
from bench.pipeline_data import write_journal

PARTITIONS = 16


class Task(NamedTuple):
    """A task that ended: its stage, its seconds, and the records that it was given by tasks of an earlier stage."""

    stage: int
    seconds: float
    records: int


def tasks(log: Path) -> Iterator[Task]:
    """Those in an event log of Spark."""
    for event in map(json.loads, log.read_text().splitlines()):
        if event["Event"] == "SparkListenerTaskEnd":
            taken, metrics = event["Task Info"], event["Task Metrics"]
            seconds = (taken["Finish Time"] - taken["Launch Time"]) / 1000
            yield Task(event["Stage ID"], seconds, metrics["Shuffle Read Metrics"]["Total Records Read"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_skew", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--stages", type=int, default=8, help="so many are shown, those with the most time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        landing, lake, events = (Path(folder) / name for name in ("landing", "lake", "events"))
        events.mkdir()
        records = write_journal(landing, arguments.rows)
        conf = {
            "spark.sql.shuffle.partitions": PARTITIONS,
            # What is joined to few tasks again would hide what is looked for.
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        launch = ["--master", f"local[{arguments.cores}]"]
        settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        program = [sys.executable, "-m", "babelgate", "pipeline"]
        watched([*program, "ingest", str(landing), "--lake", str(lake), *launch])
        watched([*program, "metrics", "--lake", str(lake), *launch, *settings])
        (log,) = events.iterdir()
        by_stage: dict[int, list[Task]] = {}
        for task in tasks(log):
            by_stage.setdefault(task.stage, []).append(task)
    print(f"{records} records\n{'stage':>5} {'tasks':>5} {'median s':>9} {'largest s':>9} {'median':>9} {'largest':>9}")
    shared = [found for found in by_stage.values() if len(found) == PARTITIONS]
    shared.sort(key=lambda found: -sum(task.seconds for task in found))
    for found in shared[: arguments.stages]:
        seconds, given = [task.seconds for task in found], [task.records for task in found]
        spread = f"{statistics.median(seconds):9.2f} {max(seconds):9.2f}"
        print(f"{found[0].stage:5} {len(found):5} {spread} {statistics.median(given):9.0f} {max(given):9}")


if __name__ == "__main__":
    main()
