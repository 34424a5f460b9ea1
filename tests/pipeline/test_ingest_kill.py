"""kill -9 of all processes at a random moment: afterwards every record is in ``journal`` once.

``BABELGATE_TEST_KILLS`` is the number of kills per journal, by default 1.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from pyarrow import parquet

from babelgate.pipeline.journal.reader import snapshot
from tests.pipeline.conftest import CONF
from tests.pipeline.ingested import Run
from tests.pipeline.segments import Writer

KILLS = int(os.environ.get("BABELGATE_TEST_KILLS", "1"))


class Victim:
    """A command in a process of its own, killed with all that it started."""

    def __init__(self, *arguments: str, spark: bool = True) -> None:
        conf = [each for key, value in CONF.items() for each in ("--conf", f"{key}={value}")]
        starts = ["--master", "local[2]", *conf] if spark else []
        command = [sys.executable, "-m", "babelgate", "pipeline", *arguments, *starts]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_after(self, begun: Callable[[], bool], seconds: float) -> bool:
        """Kill so many seconds after something has begun; whether it was still at work."""
        while not begun() and self._process.poll() is None:
            time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        was_alive = self._process.poll() is None
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self._process.pid)
            victims = [top, *top.children(recursive=True)]
            for each in victims:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(victims)
        self._process.wait()
        return was_alive


def folders(run: Run) -> set[str]:
    """All that jobs have made for the journal so far, attempts included."""
    home = Path(run.store.folder("journal").removeprefix("file:"))
    return {str(path) for path in (*home.glob("batch=*"), *home.glob("run=*/date=*"), *home.glob("_batches/*"))}


def check(run: Run) -> None:
    """Every record that was read is there once; no file that readers read is broken."""
    found = run.keys()
    assert len(found) == len(set(found))
    assert set(found) <= set(run.expected())
    for folder in snapshot(run.store).folders():
        rows = [parquet.read_metadata(path).num_rows for path in Path(folder.removeprefix("file:")).glob("*.parquet")]
        assert sum(rows) > 0


def grown(run: Run, before: set[str]) -> bool:
    """Whether there are folders that were not there before."""
    return bool(folders(run) - before)


@pytest.mark.timeout(900 + 300 * KILLS)
def test_ingest_that_is_killed_goes_on(spark, tmp_path):
    run = Run(spark, tmp_path)
    chance = random.Random()
    writers = [Writer(run.landing, "a", "gzip"), Writer(run.landing, "b", "zstd")]
    kills = 0
    while kills < KILLS:
        for writer in writers * 5:
            writer.land(chance.randrange(1, 200))
        shutil.copy(writers[0].land(50), run.landing / f"copy-{kills}.ndjson.gz")
        victim = Victim("ingest", str(run.landing), "--lake", run.root, "--max-files", "2")
        kills += victim.kill_after(partial(grown, run, folders(run)), chance.uniform(0, 4))
        if snapshot(run.store).batches:
            check(run)
    run()
    assert run.keys() == run.expected()
    check(run)
    home = Path(run.store.folder("journal").removeprefix("file:"))
    named = {batch.folder for batch in snapshot(run.store).batches}
    assert {path.name for path in home.glob("batch=*")} == named - {None}, "nothing is left of the killed attempts"
    assert run()["batches"] == 0


@pytest.mark.timeout(900 + 300 * KILLS)
def test_compact_that_is_killed_leaves_what_was(spark, tmp_path):
    run = Run(spark, tmp_path)
    chance = random.Random()
    writer = Writer(run.landing)
    kills = 0
    while kills < KILLS:
        for _ in range(12):
            writer.at += 86_400_000
            writer.land(20)
        run()
        victim = Victim("compact", "--lake", run.root, "--retain-hours", "0")
        kills += victim.kill_after(partial(grown, run, folders(run)), chance.uniform(0, 3))
        assert run.keys() == run.expected()
        check(run)
    run("--retain-hours", "0", command="compact")
    run("--retain-hours", "0", command="compact")
    assert run.keys() == run.expected()
    home = Path(run.store.folder("journal").removeprefix("file:"))
    used = {Path(folder.removeprefix("file:")) for folder in snapshot(run.store).folders()}
    # The log of the table has Parquet files, too: its checkpoints.
    assert {path.parent for path in home.rglob("*.parquet")} - {home / "_delta_log"} == used
