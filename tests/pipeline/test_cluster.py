"""Every job on a real cluster of a master and two workers gives the same result as in a local session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import COMMANDS, pipeline
from babelgate.pipeline.journal.reader import read_journal
from babelgate.pipeline.storage.datasets import DatasetStore
from babelgate.pipeline.storage.schemas import DATASETS
from tests.harness.gateway import gateway
from tests.harness.spark_cluster import cluster
from tests.pipeline.histories import Days, land
from tests.pipeline.sending import body, drained, write

ROOT = Path(__file__).parents[2]
OWN = {"journal": ("ingest_batch",), "ledger": ("run_id", "idempotency_key", "target_queue", "at")}
"""Columns that tell of a run, and differ between runs."""
SHARED = {"ingest", "metrics", "backfill"}
"""Commands with more than one task at a time, whatever little there is to do."""


@pytest.fixture
def two_workers(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder) as started:
        yield started


def commands(folder, root, queue):
    """All of them, in the order in which one needs what another made."""
    sent = ["--lake", root, "--to-queue", queue]
    return [
        ["validate", f"{folder}/dump", "--lake", root, "--schemas", f"{folder}/schemas"],
        ["ingest", f"{folder}/landing", "--lake", root],
        ["compact", "--lake", root],
        ["metrics", "--lake", root],
        ["report", "--lake", root, "--output", f"{root}/report.json"],
        ["message", "id-1", "--lake", root],
        ["trace", "trace-0", "--lake", root],
        ["backfill", *sent],
        ["redrive", "--select", "reason = 'invalid_dead_letter'", *sent],
        ["replay", "--dry-run", *sent],
    ]


def inputs(folder):
    """Two files of bodies, of which some break the contract, and one has no schema; two segments of a journal."""
    (folder / "dump").mkdir()
    write(
        folder / "dump" / "a.ndjson",
        *(body(number) for number in range(60)),
        b"{",
        b"\xff",
        body(99, job="urn:babel:test:other"),
    )
    (folder / "schemas").mkdir()
    (folder / "schemas" / "any.json").write_text(json.dumps({"$id": "urn:babel:test:sent"}))
    mendable = (body(number)[:-1] + b',"dead_letter":7}' for number in range(60, 80))
    write(folder / "dump" / "b.ndjson", *mendable)
    rows = list(Days(40, days=1).rows())
    for number, node in enumerate(("a", "b")):
        land(folder / "landing", rows[number::2], node)


def rows_of(store, dataset):
    """As they can be compared: whatever their order, and the run that made them."""
    frame = read_journal(store.spark, store.root) if dataset == "journal" else store.read(dataset)
    return Counter(map(repr, frame.drop(*OWN.get(dataset, ("run_id",))).collect()))


def tasks_by_worker(folder, two_workers, spans):
    """By command, the workers on which its tasks ran."""
    worker_of = two_workers.worker_of()
    found: dict[str, set[Path]] = {command: set() for command, _, _ in spans}
    for log in folder.glob("app-*"):
        for event in map(json.loads, log.read_text().splitlines()):
            if event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                for command, began, ended in spans:
                    if began <= info["Launch Time"] <= ended:
                        found[command].add(worker_of[log.name, info["Executor ID"]])
    return found


@pytest.mark.slow
def test_every_job_runs_on_a_cluster_as_it_does_here(spark, two_workers, tmp_path):
    imported = subprocess.run([two_workers.python, "-c", "import babelgate"], cwd=tmp_path, stderr=subprocess.PIPE)
    assert b"No module named 'babelgate'" in imported.stderr, "whatever of it runs there was sent there"
    inputs(tmp_path)
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    (tmp_path / "events").mkdir()
    conf = two_workers.conf | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with gateway(tmp_path) as running:
        environ = os.environ | {"BABELGATE_URL": running.url, "SPARK_LOCAL_IP": "127.0.0.1"}
        first, *others = commands(tmp_path, there, "there")
        # The others need no Spark.
        assert {name for name, *_ in (first, *others)} == {command.name for command in COMMANDS} - {
            "erase",
            "maintain",
            "tables",
        }
        settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        alone = [sys.executable, "-m", "babelgate", "pipeline", *first, "--master", two_workers.master, *settings]
        subprocess.run(alone, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
        driver = [sys.executable, "-m", "tests.harness.spark_driver", two_workers.master, json.dumps(conf)]
        done = subprocess.run([*driver, json.dumps(others)], cwd=ROOT, env=environ, check=True, stdout=subprocess.PIPE)
        for command in commands(tmp_path, here, "here"):
            result = CliRunner().invoke(pipeline, command, env={"BABELGATE_URL": running.url})
            assert result.exit_code == 0, result.output
        arrived = drained(running, "there")
        assert arrived == drained(running, "here")
    assert arrived == Counter(f"id-{number}" for number in range(80))

    told = json.loads(done.stdout.splitlines()[-1])
    homes = [
        worker for worker in two_workers.workers for source in told["sources"] if Path(source).is_relative_to(worker)
    ]
    assert sorted(homes) == sorted(two_workers.workers), "each has the package from its own working folder"
    spans = [(first[0], 0, told["spans"][0][1]), *told["spans"]]
    worked = tasks_by_worker(tmp_path / "events", two_workers, spans)
    assert all(worked.values()), worked
    assert {name for name, workers in worked.items() if len(workers) == 2} >= SHARED, worked

    one, other = DatasetStore(spark, here), DatasetStore(spark, there)
    made = {name for name in DATASETS if one.current(name) is not None} | {"journal"}
    assert made >= {"accepted", "quarantined", "lifecycle", "ledger"}
    for dataset in made:
        assert rows_of(other, dataset) == rows_of(one, dataset), dataset
