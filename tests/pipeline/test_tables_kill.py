"""kill -9 of each job while a reader opens one moment after the other: none is half-made, and the job then goes on.

``BABELGATE_TEST_KILLS=20 pytest tests/pipeline/test_tables_kill.py`` kills each job 20 times; by default it is once.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import Raw

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.tables.moment import Moment, open_tables, read_moment
from tests.pipeline.histories import DAY, START, land, row
from tests.pipeline.ingested import Run
from tests.pipeline.test_ingest_kill import Victim
from tests.pipeline.test_tables import check

KILLS = int(os.environ.get("BABELGATE_TEST_KILLS", "1"))
MESSAGES = 6
"""The messages of a generation, each with three records; and the bodies that a run of ``validate`` accepts."""

DUCKDB = "metrics --engine duckdb --force"
"""The other ``metrics`` is killed on Spark. What DuckDB adds of what is new: ``test_metrics_increment_kill.py``."""

AGAIN_SECONDS = 0.5
"""After this time a reader reads the same moment again."""


class Reader:
    """Reads moments until it is closed, and remembers what is wrong in one."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.wrong: list[str] = []
        self.moments: set[tuple[int, ...]] = set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _read(self) -> None:
        files = ArrowFiles(self._root)
        read: Moment | None = None
        again_at = 0.0
        while not self._over.wait(0.05):
            try:
                moment = read_moment(files)
                # To read all tables takes much CPU time. A moment stays what it is as long as its files are there.
                if moment != read or time.monotonic() > again_at:
                    self._check(self.counts())
                    read, again_at = moment, time.monotonic() + AGAIN_SECONDS
            except Exception as error:
                self.wrong.append(repr(error))

    def counts(self) -> dict[str, int]:
        tables = open_tables(self._root)
        self.moments.add(tuple(table.version() for table in tables.values()))
        found = {name: table.to_pyarrow_table() for name, table in tables.items()}
        days = [each for each in found["throughput"].to_pylist() if each["grain"] == "day"]
        records = found["journal"].select(["node", "epoch", "seq"]).to_pylist()
        return {
            "records": len(records),
            "distinct": len({tuple(each.values()) for each in records}),
            "counted": sum(each["acked"] for each in days),
            "lifecycles": found["lifecycle"].num_rows,
            "in_traces": sum(each["messages"] for each in found["traces"].to_pylist()),
            "accepted": found["accepted"].num_rows,
            "quarantined": found["quarantined"].num_rows,
        }

    def _check(self, found: dict[str, int]) -> None:
        of_metrics = {found[name] for name in ("counted", "lifecycles", "in_traces")}
        whole = (
            found["records"] == found["distinct"]
            and found["records"] % (3 * MESSAGES) == 0
            and len(of_metrics) == 1
            and found["counted"] % MESSAGES == 0
            and found["accepted"] == MESSAGES * found["quarantined"] > 0
        )
        if not whole:
            self.wrong.append(str(found))


class Lake:
    """A lake that grows by generations of messages."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.run = Run(spark, folder)
        self.bodies = folder / "bodies.ndjson"
        self.generation = 0

    def grow(self) -> None:
        """New records and bodies for the jobs."""
        self.generation += 1
        rows = [each for number in range(MESSAGES) for each in self._message(number)]
        land(self.run.landing, rows, f"n{self.generation}")
        meta = {"queue": "orders", "lang": "go", "schema_version": 1, "created_at": START}
        made = [
            json.dumps(
                {"job": "urn:babel:a:b", "trace_id": "t", "data": {}, "meta": {"id": f"v{n}", **meta}, "attempts": 0}
            )
            for n in range(MESSAGES * self.generation)
        ]
        self.bodies.write_text("\n".join([*made, *["{}"] * self.generation]))

    def newest(self) -> str:
        return f"message-{self.generation}-0"

    def _message(self, number: int) -> Iterator[dict[str, Any]]:
        at = START + number * DAY // 4 + self.generation
        name = f"message-{self.generation}-{number}"
        facts = {"message_id": name, "trace_id": f"trace-{name}", "job": "urn:babel:a:b", "created_at": at, "bytes": 9}
        for event in ("accepted", "delivered", "acked"):
            yield row(event, at, 0, **facts, envelope=Raw(b'{"secret":"%b"}' % name.encode()))

    def arguments(self, job: str) -> list[str]:
        command, *options = job.split()
        given = {
            "ingest": [str(self.run.landing)],
            "validate": [str(self.bodies)],
            "maintain": ["--retain-days", "0.001"],
            "erase": [self.newest()],
        }
        return [command, *given.get(command, []), *options, "--lake", self.run.root]

    def complete(self, job: str) -> None:
        result = CliRunner().invoke(pipeline, self.arguments(job), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert "warning" not in result.output

    def paths(self) -> set[Path]:
        """The runs, batches and commits that jobs have made so far."""
        root = Path(self.run.root)
        names = "*/v=1/run=*", "*/v=1/batch=*", "*/v=1/_batches/*", "*/v=1/_delta_log/*", "_staging/*"
        return {path for name in names for path in root.glob(name)}

    def changed(self) -> Callable[[], bool]:
        before = self.paths()
        return lambda: self.paths() != before


JOBS = {
    "ingest": 6.0,
    "compact": 4.0,
    "validate": 4.0,
    "validate --force": 4.0,
    "metrics": 12.0,
    DUCKDB: 2.0,
    "erase": 0.6,
    "maintain": 0.3,
}
"""The jobs, in an order in which each has work to do; and how many seconds after its first file it may be killed."""


@pytest.mark.timeout(900 + 600 * KILLS)
def test_no_reader_sees_a_half_made_moment(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    lake.grow()
    for job in ("ingest", "validate", "metrics"):
        lake.complete(job)
    reader = Reader(lake.run.root)
    chance = random.Random()
    at_work = dict.fromkeys(JOBS, 0)
    with reader.reading():
        for _ in range(KILLS):
            lake.grow()
            for job, seconds in JOBS.items():
                victim = Victim(*lake.arguments(job), spark=job not in (DUCKDB, "erase", "maintain"))
                at_work[job] += victim.kill_after(lake.changed(), chance.uniform(0, seconds))
                print(f"kills at work: {at_work}, moments read: {len(reader.moments)}, wrong: {reader.wrong}")
                assert not reader.wrong
                lake.complete(job)
    assert not reader.wrong
    assert len(reader.moments) > 1
    check(lake.run, ("journal", "lifecycle", "throughput", "traces", "accepted", "quarantined"))
    found = reader.counts()
    assert (found["records"], found["lifecycles"]) == (3 * MESSAGES * lake.generation, MESSAGES * lake.generation)
    assert found["quarantined"] == lake.generation
    journal = open_tables(lake.run.root)["journal"].to_pyarrow_table(columns=["message_id", "envelope"]).to_pylist()
    erased = {each["message_id"] for each in journal if each["envelope"] is None}
    assert erased == {f"message-{generation}-0" for generation in range(2, lake.generation + 1)}
