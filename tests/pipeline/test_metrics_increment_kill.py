"""kill -9 of ``metrics`` while it measures what is new, with a reader: no moment is half-made, and all goes on.

``BABELGATE_TEST_KILLS`` is the number of kills, by default 2.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.pipeline.metrics import duckdb_increment, since
from babelgate.pipeline.tables.moment import open_tables
from tests.pipeline.histories import START, Row, row
from tests.pipeline.incremental import HOUR, measure, message
from tests.pipeline.test_metrics_continuous import KILLS, WAIT_SECONDS, Lake

MESSAGES = 8
"""The messages of a generation."""
DIVIDES_ALL = """
import sys
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.metrics import duckdb_increment, since
since.WHOLE_RECORDS = duckdb_increment.DIVIDED_BYTES = 0
pipeline(["metrics", "--engine", "duckdb", "--retain-hours", "0.01", "--lake", sys.argv[1]])
"""


def generation(number: int) -> list[Row]:
    """New messages in some slices, and events of all former ones."""
    made = []
    for each in range(number * MESSAGES + MESSAGES):
        event = "accepted" if each >= number * MESSAGES else "delivered"
        made.append(row(event, START + 6 * HOUR + number, each, **message(f"m{each}", each % 5)))
    return made


class Reader:
    """Reads moments until the end of the block, and remembers what is wrong in one."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._over = threading.Event()
        self.wrong: list[Any] = []
        self.read: set[tuple[int, ...]] = set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self._read)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _read(self) -> None:
        while not self._over.wait(0.05):
            try:
                found = self.counts()
            except Exception as error:
                found = (repr(error),)
            if len(set(found)) != 1 or found[0] % MESSAGES:
                self.wrong.append(found)
            self.read.add(found)

    def counts(self) -> tuple[Any, ...]:
        """The number of messages by each of three datasets."""
        tables = open_tables(self._root)
        counts, lives, traces = (tables[name].to_pyarrow_table() for name in ("throughput", "lifecycle", "traces"))
        days = [each for each in counts.to_pylist() if each["grain"] == "day"]
        in_traces = sum(each["messages"] for each in traces.to_pylist())
        return sum(each["accepted"] for each in days), lives.num_rows, in_traces


@pytest.mark.timeout(600 + 120 * KILLS)
def test_no_reader_sees_a_half_made_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    monkeypatch.setattr(duckdb_increment, "DIVIDED_BYTES", 0)
    lake, reader, chance = Lake(tmp_path), Reader(tmp_path / "lake"), random.Random()
    measure(lake, generation(0))
    at_work = 0
    with reader.reading():
        for number in range(1, KILLS + 1):
            lake.put(generation(number))
            runs = set(lake.root.glob("*/v=1/run=*"))
            with subprocess.Popen([sys.executable, "-c", DIVIDES_ALL, str(lake.root)]) as process:
                end = time.monotonic() + WAIT_SECONDS
                while set(lake.root.glob("*/v=1/run=*")) == runs and time.monotonic() < end:
                    assert process.poll() is None, "it ended and wrote nothing"
                    time.sleep(0.01)
                assert set(lake.root.glob("*/v=1/run=*")) != runs, "it wrote nothing in time"
                # The first kill is at once: a fast run may end within a pause.
                time.sleep(chance.uniform(0, 1.5) if number > 1 else 0)
                at_work += process.poll() is None
                process.kill()
            assert not reader.wrong
            # The killed run, or what came before it, is what this one goes on from.
            measure(lake, [], is_new=True)
    assert not reader.wrong
    assert at_work, "every run had ended before its kill"
    assert len(reader.read) > 1
    assert reader.counts()[0] == MESSAGES * (KILLS + 1)
    assert lake.has_current_tables()
