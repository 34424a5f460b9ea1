"""``ingest --continuous`` beside ``compact`` and readers, and the lock on remote file systems."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from pyspark.sql.streaming.query import StreamingQuery

from babelgate.pipeline.continuous import Continuous, Service
from babelgate.pipeline.journal.ingest import ingest
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.files import Files
from babelgate.pipeline.storage.locks import LEASE_SECONDS, exclusive_lock
from tests.pipeline.conftest import CONF
from tests.pipeline.ingested import Run
from tests.pipeline.segments import Writer


@contextmanager
def killed(process):
    """Whatever happens meanwhile, it does not outlive this."""
    try:
        yield
    finally:
        process.kill()


def test_readers_see_every_record_once_while_both_are_at_work(spark, tmp_path):
    run = Run(spark, tmp_path)
    writer = Writer(run.landing)
    writer.land(10)
    summary = tmp_path / "continuous.json"
    conf = [each for key, value in CONF.items() for each in ("--conf", f"{key}={value}")]
    where = [str(run.landing), "--lake", run.root, "--continuous", "--interval-seconds", "0.2"]
    command = [sys.executable, "-m", "babelgate", "pipeline", "ingest", *where, "--summary", str(summary), *conf]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        killed(process),
    ):
        seen = 0
        for _ in range(4):
            writer.at += 86_400_000 // 2
            writer.land(10)
            while seen < len(run.expected()):
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.1)
                if not any((tmp_path / "root" / "journal" / "v=1").glob("_batches/*.json")):
                    continue
                found = run.keys()
                assert len(found) == len(set(found)) >= seen
                seen = len(found)
            run(command="compact")
            assert run.keys() == run.expected()
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "ingest: batch 0: " in log
    assert "journal: 50 records of 1 processes" in output
    assert json.loads(summary.read_text())["records"] == 50
    assert run.store.read("journal_gaps").count() == 1
    assert run()["records"] == 0


@pytest.mark.timeout(600)
def test_a_landing_folder_and_a_lake_that_are_away_for_a_while(spark, tmp_path):
    run = Run(spark, tmp_path)
    writer = Writer(run.landing)
    writer.land(10)
    log, alive, root = tmp_path / "log.txt", tmp_path / "alive", Path(run.root)
    conf = [each for key, value in CONF.items() for each in ("--conf", f"{key}={value}")]
    where = [str(run.landing), "--lake", run.root, "--continuous", "--interval-seconds", "0.2", "--alive", str(alive)]
    command = [sys.executable, "-m", "babelgate", "pipeline", "ingest", *where, "--master", "local[2]", *conf]
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process, killed(process):

        def wait(text):
            end = time.monotonic() + 240
            while text not in log.read_text():
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.1)

        wait("batch 0: 10 records")
        assert alive.exists()
        away = tmp_path / "away"
        run.landing.rename(away)
        wait("landing: there is no such folder. Trying again in 1 s.")
        away.rename(run.landing)
        writer.land(11)
        wait("batch 1: 11 records")
        root.rename(away)
        writer.land(12)
        wait("root is gone. Trying again in")
        if root.exists():
            shutil.rmtree(root)
        away.rename(root)
        wait(": 12 records")
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0, log.read_text()
    assert "Ingested 33 records of 3 files" in log.read_text()
    assert run.keys() == run.expected()
    assert run()["records"] == 0


@pytest.mark.timeout(600)
def test_rounds_are_seen_although_one_is_always_at_work(spark, tmp_path, monkeypatch):
    run = Run(spark, tmp_path)
    Writer(run.landing).land(10)
    monkeypatch.setattr(StreamingQuery, "status", {"isTriggerActive": True})
    seen, stop = [], threading.Event()

    def round_done(service):
        seen.append(service)
        if len(seen) == 3:
            stop.set()

    monkeypatch.setattr(Service, "round_done", round_done)
    monkeypatch.setattr(Service, "is_stopping", property(lambda _: stop.is_set()))
    launch = Launch(None, {}, None, False)
    assert ingest(launch, str(run.landing), run.root, Continuous(0.1))["records"] == 10
    assert len(seen) >= 3, "one of the batch, and two without anything new"


@pytest.mark.timeout(600)
def test_journal_gaps_that_a_killed_process_left_behind_follow(spark, tmp_path, monkeypatch):
    run = Run(spark, tmp_path)
    Writer(run.landing).land(10)
    run()
    shutil.rmtree(Path(run.root, "journal_gaps"))
    seen: list[str | None] = []
    monkeypatch.setattr(Service, "is_stopping", property(lambda _: bool(seen)))

    def committed():
        seen.append(run.store.current("journal_gaps"))

    ingest(Launch(None, {}, None, False), str(run.landing), run.root, Continuous(0.1), committed=committed)
    assert seen == [run.store.current("journal_gaps")] != [None]


@pytest.fixture
def elsewhere(spark, tmp_path):
    """Files of a place whose locks no operating system keeps."""
    files = Files(spark, str(tmp_path))
    files.is_local = False
    return files


def test_a_lease_is_held_by_one(elsewhere, tmp_path):
    url = f"file:{tmp_path}/lock"
    with (
        exclusive_lock(elsewhere, url, "ingest"),
        pytest.raises(click.ClickException, match=r"Another ingest is at work there \(process"),
        exclusive_lock(elsewhere, url, "ingest"),
    ):
        pytest.fail("two hold it")
    assert not elsewhere.exists(url)


def test_a_lease_that_another_took_is_left_to_it(elsewhere, tmp_path):
    url = f"file:{tmp_path}/lock"
    other = json.dumps({"id": "other", "by": "another", "at": time.time()}).encode()
    with (
        pytest.raises(click.ClickException, match="Another ingest took over"),
        exclusive_lock(elsewhere, url, "ingest"),
    ):
        elsewhere.write(url, other)
    assert elsewhere.read(url) == other


def test_a_lease_of_one_that_was_killed_runs_out(elsewhere, tmp_path):
    url = f"file:{tmp_path}/lock"
    for age in (LEASE_SECONDS - 10, LEASE_SECONDS + 1):
        elsewhere.write(url, json.dumps({"id": "other", "by": "another", "at": time.time() - age}).encode())
        if age < LEASE_SECONDS:
            with pytest.raises(click.ClickException), exclusive_lock(elsewhere, url, "compact"):
                pytest.fail("it is not over yet")
        else:
            with exclusive_lock(elsewhere, url, "compact"):
                assert json.loads(elsewhere.read(url))["id"] != "other"
