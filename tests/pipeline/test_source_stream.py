"""The data source ``babelgate`` streams a queue: every message at least once, with a real gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from babelgate.pipeline.source import register
from tests.harness.gateway import gateway
from tests.pipeline.conftest import CONF
from tests.pipeline.sending import body
from tests.pipeline.test_source import run

SECONDS = 600
pytestmark = pytest.mark.timeout(1_500)


@pytest.fixture
def source(spark):
    register(spark)
    return spark


@pytest.fixture
def running(tmp_path):
    with gateway(tmp_path, {"default": {"broker": "local", "lease_seconds": 3600}}) as process:
        yield process


def publish(running, numbers, queue="q"):
    with running.client() as client:
        lines = b"".join(body(number, queue) + b"\n" for number in numbers)
        answer = client.post(
            f"/queues/{queue}/messages:batch", content=lines, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.status_code == 201, answer.text


def counts(running, queue="q"):
    with running.client() as client:
        found = client.get(f"/queues/{queue}").json()["stats"]
        return found["depth"], found["in_flight"]


class Reads:
    """A stream of the queue ``q`` that keeps the ids of every batch."""

    def __init__(self, spark, running, folder):
        self.batches: list[list[str]] = []
        self._spark = spark
        self._running = running
        self._checkpoint = str(folder / "checkpoint")

    def __call__(self, fails=False, **options):
        def keep(rows, number):
            found = rows.select("message_id", "attempts", "body").collect()
            assert all(json.loads(row.body)["meta"]["id"] == row.message_id for row in found)
            self.batches.append(sorted(row.message_id for row in found))
            if fails:
                raise RuntimeError("cut off here")

        given = {"url": self._running.url, "queue": "q", "max_messages": "150", "wait_seconds": "0.1", **options}
        frame = self._spark.readStream.format("babelgate").options(**given).load()
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", self._checkpoint)
        run(query.trigger(availableNow=True))

    def ids(self):
        return sorted(each for batch in self.batches for each in batch)


def test_all_messages_are_read_and_acked_until_the_queue_is_empty(source, running, tmp_path):
    publish(running, range(400))
    reads = Reads(source, running, tmp_path)
    reads()
    assert reads.ids() == sorted(f"id-{number}" for number in range(400))
    assert max(map(len, reads.batches)) == 150
    assert counts(running) == (0, 0), "the last batch is acked, too"
    publish(running, range(400, 403))
    reads.batches.clear()
    reads()
    assert reads.ids() == ["id-400", "id-401", "id-402"]
    assert counts(running) == (0, 0)


def test_a_batch_that_failed_is_not_acked(source, running, tmp_path):
    publish(running, range(5))
    reads = Reads(source, running, tmp_path)
    with pytest.raises(Exception, match="cut off here"):
        reads(fails=True, lease_seconds="1")
    assert reads.ids() == [f"id-{number}" for number in range(5)]
    assert sum(counts(running)) == 5, "none is acked"
    reads.batches.clear()
    end = time.monotonic() + SECONDS
    while len(set(reads.ids())) < 5:
        assert time.monotonic() < end, "they are delivered again once their leases have ended"
        reads(wait_seconds="2")
    assert counts(running) == (0, 0)


PROGRAM = """
import json
import sys
from pyspark.sql import SparkSession
from babelgate.pipeline.source import register

url, folder, conf = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config(map=json.loads(conf)).getOrCreate()
register(spark)
options = {"url": url, "queue": "q", "max_messages": "15", "wait_seconds": "1", "lease_seconds": "5"}
rows = spark.readStream.format("babelgate").options(**options).load().select("message_id")
query = rows.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
query.trigger(processingTime="1 second").start(folder + "/rows").awaitTermination()
"""

FRUGAL = {key: CONF[key] for key in CONF if key == "spark.driver.extraJavaOptions" or ".codegen." in key}


def program(running, folder):
    # Nothing is set by hand: the first python3 in PATH has no package of the pipeline.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environ["PATH"] = os.pathsep.join(["/usr/bin", "/bin", environ["PATH"]])
    arguments = [sys.executable, "-c", PROGRAM, running.url, str(folder), json.dumps(FRUGAL)]
    with (folder / "program.log").open("ab") as log:
        return subprocess.Popen(arguments, env=environ, stdout=log, stderr=log, start_new_session=True)


def written(spark, folder):
    """The ids that the sink has committed."""
    if not (folder / "rows" / "_spark_metadata" / "0").exists():
        return []
    return [row.message_id for row in spark.read.schema("message_id string").parquet(str(folder / "rows")).collect()]


def test_nothing_is_lost_when_the_stream_is_killed(source, running, tmp_path):
    publish(running, range(60))
    seen = 0
    for wanted in (15, 60):
        started = program(running, tmp_path)
        try:
            end = time.monotonic() + SECONDS
            while seen < wanted or (wanted == 60 and sum(counts(running))):
                if started.poll() is not None:
                    # As :func:`patiently`: Spark did not wait long enough for a process on a busy machine.
                    told = (tmp_path / "program.log").read_text()
                    assert "Python worker failed to connect back" in told, told[-4000:]
                    (tmp_path / "program.log").unlink()
                    started = program(running, tmp_path)
                assert time.monotonic() < end, (seen, counts(running))
                time.sleep(0.5)
                seen = len(set(written(source, tmp_path)))
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    assert set(written(source, tmp_path)) == {f"id-{number}" for number in range(60)}
    assert counts(running) == (0, 0)


def test_another_python_without_the_libraries_is_refused_in_words(spark, tmp_path, monkeypatch):
    program = Path(tmp_path) / "python"
    program.write_text(f"#!/bin/sh\necho {sys.version_info.major}.{sys.version_info.minor} msgspec httpx\n")
    program.chmod(0o755)
    named = spark.sparkContext.getConf().get("spark.pyspark.python")
    assert named is None
    monkeypatch.setenv("PYSPARK_PYTHON", str(program))
    with pytest.raises(RuntimeError, match=r"PYSPARK_PYTHON or .* names, lacks msgspec, httpx"):
        register(spark)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="does not run"):
        register(spark)
