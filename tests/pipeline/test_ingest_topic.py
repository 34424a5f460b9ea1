"""``ingest`` from a topic of Kafka: every record once, whatever is sent twice, killed, away or deleted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from babelgate.brokers.landing import TopicBounds, landing_store
from babelgate.observe.journal.record import Segment
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.journal.commits import TopicPosition
from babelgate.pipeline.journal.ingest_batch import BatchWriter
from babelgate.pipeline.journal.ingest_topic import Lost, next_position
from babelgate.pipeline.journal.reader import existing, now_ms, read_journal, snapshot
from babelgate.pipeline.storage.datasets import DatasetStore
from tests.brokers.kafka.harness import KafkaBroker, delete_before, settings, write
from tests.brokers.kafka.server import kafka
from tests.harness.journal_topic import create_topic, landed_in, wait_for_leaders
from tests.pipeline.conftest import CONF
from tests.pipeline.segments import Writer, keys
from tests.pipeline.test_ingest_continuous import killed
from tests.pipeline.test_ingest_kill import Victim

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_PASSWORD = {
    "listener.name.password.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.password.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="a secret";'
    ),
}


class TopicRun:
    """The command, in this process, from a topic to a lake below ``folder``; and processes that land there."""

    def __init__(self, spark, server, topic, folder):
        self.spark = spark
        self.port = server.port
        self.topic = topic
        self.url = f"kafka://127.0.0.1:{server.port}/{topic}"
        self.root = str(folder / "root")
        self.store = DatasetStore(spark, self.root)
        self.output = ""
        self._folder = folder
        self._summary = folder / "summary.json"

    def __call__(self, *arguments, code=0, command="ingest"):
        """The summary of a run that ends with ``code``; None where it wrote none."""
        self._summary.unlink(missing_ok=True)
        where = [self.url] if command == "ingest" else []
        given = [command, *where, "--lake", self.root, "--summary", str(self._summary), *arguments]
        result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
        assert result.exit_code == code, result.output
        self.output = result.output
        return json.loads(self._summary.read_text()) if self._summary.exists() else None

    def land(self, count, node="a", times=1):
        """Land a segment of a new process with ``count`` records, so many times."""
        writer = Writer(self._folder / "unused", node)
        path = writer.land(count)
        plain = path.with_name(path.name.removesuffix(".gz"))
        subprocess.run(["gzip", "-dk", str(path)], check=True)
        store = landing_store(self.url, "zstd")
        for _ in range(times):
            store.put(plain, plain.name)
        assert Segment(node, writer.epoch, 1).file_name == plain.name

    def keys(self):
        rows = read_journal(self.spark, self.root).select("node", "epoch", "seq").collect()
        return sorted(map(tuple, rows))

    def expected(self):
        return keys(landed_in(self.port, self.topic))


@pytest.fixture
def server(servers):
    return servers.server(KafkaBroker)


@pytest.fixture
def make(spark, server, tmp_path):
    def make(partitions):
        topic = f"journal-{random.getrandbits(64):x}"
        create_topic(server.port, topic, partitions=partitions)
        return TopicRun(spark, server, topic, tmp_path)

    return make


def test_every_record_once(make):
    run = make(3)
    for node in "abc":
        run.land(1500, node, times=2)
    made = run("--max-files", "2")
    assert (made["records"], made["duplicates"]) == (4500, 4500)
    assert made["batches"] > 1
    assert made["landing"] == run.url
    assert run.keys() == run.expected()
    assert run()["batches"] == 0
    assert "nothing new has landed" in run.output
    run(command="compact")
    run.land(10, "d")
    expected = run.expected()
    # Neither a line that is no record nor a message without a value stops it.
    write(run.port, run.topic, {"value": b"nonsense", "partition": 0}, {"key": b"x", "partition": 0})
    made = run()
    assert (made["records"], made["corrupt"], made["duplicates"], made["damaged_files"]) == (10, 1, 0, 0)
    assert run.keys() == expected
    (row,) = existing(run.spark, run.root).corrupt().collect()
    assert row.src_file.startswith(f"topic:{run.topic}/0/")
    assert run()["batches"] == 0


def test_messages_that_were_deleted_before_they_were_read(make):
    run = make(1)
    run.land(10)
    run()
    kept = run.keys()
    run.land(10)
    run.land(10)
    delete_before(run.port, run.topic, 0, 2)
    run("--checkpoint", "x", code=2)
    run(code=1)
    said = f"The topic {run.topic} has lost messages that were not read: partition 0 lacks the offsets 1 to 1."
    assert said in run.output
    assert run.keys() == kept
    assert run("--skip-lost")["records"] == 10
    assert run.keys() == sorted([*kept, *run.expected()])
    assert run()["batches"] == 0


def test_a_topic_that_was_made_again(make):
    run = make(1)
    run.land(10)
    run()
    kept = run.keys()
    create_again(run)
    run.land(20)
    run(code=1)
    assert "it was deleted and created again" in run.output
    run("--skip-lost")
    assert run.keys() == sorted([*kept, *run.expected()])


def create_again(run):
    """Delete the topic and create it; a broker deletes the former one in its own time."""
    admin, end = AdminClient(settings(run.port)), time.monotonic() + 120
    admin.delete_topics([run.topic])[run.topic].result(60)
    while run.topic in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < end
        time.sleep(0.1)
    create_topic(run.port, run.topic)


def test_where_the_next_batch_begins():
    def bounds(firsts, ends, topic_id="t"):
        return TopicBounds("c", topic_id, firsts, ends)

    def begin(before, now, **how):
        position = None if before is None else TopicPosition("c", "journal", "t", before)
        return next_position(position, now, "journal", **how).offsets

    assert begin(None, bounds([3, 0], [9, 0])) == [3, 0]
    assert begin([5, 0], bounds([3, 0], [9, 4])) == [5, 0]
    assert begin([5], bounds([3, 0], [9, 4])) == [5, 0], "a partition was added"
    for before, now, words, skipped in (
        ([2], bounds([3], [9]), "partition 0 lacks the offsets 2 to 2", [3]),
        ([5], bounds([3, 1], [9, 4]), "partition 1 lacks the offsets 0 to 0", [5, 1]),
        ([5], bounds([0], [4]), "partition 0 ends at the offset 4, before 5", [4]),
        ([5], bounds([0], [9], "other"), "deleted and created again", [0]),
        ([5, 5], bounds([0], [9]), "deleted and created again", [0]),
    ):
        with pytest.raises(Lost, match=words):
            begin(before, now)
        assert begin(before, now, skips_lost=True) == skipped


def test_the_last_commit_tells_the_offsets_although_the_clock_of_another_was_ahead(spark, tmp_path, monkeypatch):
    store, now = DatasetStore(spark, str(tmp_path / "root")), now_ms()

    def read_to(offset, at):
        monkeypatch.setattr("babelgate.pipeline.journal.ingest_batch.now_ms", lambda: at)
        BatchWriter(store).messages(f"to-{offset}", {}, TopicPosition("c", "journal", "t", [offset]))
        found = snapshot(store)
        assert found.known().topics["c", "journal"].offsets == [offset]
        return found.newest_at()

    ahead = read_to(5, now + 3_600_000)
    assert read_to(9, now) > ahead
    given = ["compact", "--lake", store.root]
    assert CliRunner().invoke(pipeline, given, catch_exceptions=False).exit_code == 0
    assert snapshot(store).batches == []
    assert read_to(12, now) > ahead + 1, "metrics knows new batches by their times, after a compaction, too"


@pytest.mark.timeout(900)
def test_an_ingest_that_is_killed_goes_on(make):
    run = make(2)
    where = [run.url, "--lake", run.root, "--max-files", "2"]
    home = Path(run.store.folder("journal").removeprefix("file:"))
    was_killed = False
    while not was_killed:
        for node in "abcdef":
            run.land(400, node)
        before = {*home.glob("batch=*")}

        def begun(before=before):
            return bool({*home.glob("batch=*")} - before)

        was_killed = Victim("ingest", *where).kill_after(begun, random.uniform(0, 2))
        if snapshot(run.store).batches:
            found = run.keys()
            assert len(found) == len(set(found)) and set(found) <= set(run.expected())
    run()
    assert run.keys() == run.expected()
    named = {batch.folder for batch in snapshot(run.store).batches}
    assert {path.name for path in home.glob("batch=*")} == named - {None}, "nothing is left of the killed attempt"


@pytest.mark.timeout(900)
def test_a_continuous_run_while_the_broker_is_away(make, spark, tmp_path):
    """Which lets in who knows a password: gateways have it in their URL, and the command in a file."""
    with kafka(_PASSWORD, {"PASSWORD": "SASL_PLAINTEXT"}) as own:
        create_topic(own.port, "journal", partitions=2)
        run = TopicRun(spark, own, "journal", tmp_path)
        place = f"127.0.0.1:{own.ports['PASSWORD']}/journal?sasl_mechanism=PLAIN"
        run.url = f"kafka://shop:a%20secret@{place}"
        run.land(10)
        log, password = tmp_path / "log.txt", tmp_path / "password"
        password.write_text("a secret\n")
        conf = [each for key, value in CONF.items() for each in ("--conf", f"{key}={value}")]
        where = [f"kafka://shop@{place}", "--password-file", str(password), "--lake", run.root]
        how = ["--continuous", "--interval-seconds", "0.2", "--master", "local[2]"]
        command = [sys.executable, "-m", "babelgate", "pipeline", "ingest", *where, *how, *conf]
        with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process, killed(process):

            def wait(text):
                end = time.monotonic() + 300
                while text not in log.read_text():
                    assert process.poll() is None and time.monotonic() < end, log.read_text()
                    time.sleep(0.1)

            wait("batch of 1 messages: 10 records")
            own.kill()
            wait("Trying again in 1 s.")
            own.start()
            wait_for_leaders(own.port, "journal", 2)
            run.land(11)
            wait(" 11 records")
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == 0, log.read_text()
        assert "Ingested 21 records of 2 files" in log.read_text()
        assert "secret" not in log.read_text()
        assert run.keys() == run.expected()
