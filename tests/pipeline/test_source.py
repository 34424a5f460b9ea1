"""The data source ``babelgate`` in a Spark session, with a real gateway and its journals."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from babelgate.pipeline.source import register
from tests.harness.gateway import gateway
from tests.harness.journal import landed, records
from tests.pipeline.segments import Writer, keys
from tests.pipeline.sending import body, drained, envelopes

DOCS = Path(__file__).parents[2] / "docs" / "pipeline" / "spark-source.md"


@pytest.fixture
def source(spark):
    register(spark)
    return spark


@pytest.fixture
def running(tmp_path):
    journal = {"landing": str(tmp_path / "journal"), "segment_seconds": 1, "compression": "gzip", "bodies": True}
    with gateway(tmp_path, {"journal": journal}) as process:
        yield process


def rows_of(spark, *bodies):
    return spark.createDataFrame([(each,) for each in bodies], "body binary")


def patiently(run):
    """The result of ``run``, which runs a stream to its end. Spark waits ten seconds for the process of a Python
    source, which a busy machine may not have started by then. No batch has begun in that case."""
    while True:
        try:
            return run()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise


def run(stream):
    """Run a stream to its end."""
    patiently(lambda: stream.start().awaitTermination())


def test_the_example_of_the_documentation(source, running, tmp_path, capsys):
    """As somebody would paste it, cell by cell."""
    cells = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
    assert len(cells) == 5
    names: dict[str, object] = {"spark": source}
    for cell in cells:
        text = cell.replace("http://127.0.0.1:8080", running.url)
        text = text.replace("/var/lib/babelgate/journal", str(tmp_path / "journal"))
        text = text.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
        if "journal" in text and not any((tmp_path / "journal").rglob("*.gz")):
            # What was accepted lands with the end of the segment.
            assert running.stop() == 0
            running.start()
        patiently(partial(exec, compile(text, "docs/pipeline/spark-source.md", "exec"), names))
    shown = capsys.readouterr().out
    assert "urn:babel:orders:created" in shown
    assert re.search(r"orders\s*\|accepted\s*\|\s*3", shown)
    assert drained(running, "orders") == {}, "written twice under the same keys, read once, and acked"
    assert "3 messages" in shown
    copies = envelopes(running, "orders-copy")
    assert sorted(each["data"]["order"] for each in copies) == [0, 1, 2]


def test_rows_are_written_once_and_can_be_looked_at(source, running):
    to = {"queue": "q", "url": running.url}
    rows = rows_of(source, *(body(number) for number in range(40)), body(7)).repartition(3)
    for _ in range(2):
        rows.write.format("babelgate").mode("append").options(**to, run_id="once").save()
    found = source.read.format("babelgate").options(**to, limit="5").load().collect()
    assert len(found) == 5
    first = next(row for row in found if row.message_id)
    assert (first.job, first.lang, first.attempts) == ("urn:babel:test:sent", "go", 3)
    assert bytes(first.body) in {body(number) for number in range(40)}
    assert drained(running, "q") == {f"id-{number}": 1 for number in range(40)}
    rows.limit(1).write.format("babelgate").mode("append").options(**to).save()
    assert sum(drained(running, "q").values()) == 1, "a run without a name is one of its own"


def test_what_cannot_be_done_is_refused_in_words(source, running):
    to = {"queue": "q", "url": running.url}
    rows = rows_of(source, body(1))
    write = rows.write.format("babelgate").options(**to)
    text = rows.selectExpr("'x' as other")
    with pytest.raises(PySparkException, match="a queue can only be appended to"):
        write.mode("overwrite").save()
    with pytest.raises(PySparkException, match=r"(?i)save.mode"):
        write.mode("errorifexists").save()
    with pytest.raises(PySparkException, match="there must be a column body of type binary or string; there are other"):
        text.write.format("babelgate").mode("append").options(**to).save()
    with pytest.raises(PySparkException, match="limit is an integer from 1 to 100"):
        source.read.format("babelgate").options(**to, limit="x").load()
    with pytest.raises(PySparkException, match="1 of 2 rows of this task were not published: 1 missing_urn"):
        bad = rows_of(source, body(1), b"{}").coalesce(1)
        bad.write.format("babelgate").mode("append").options(**to).save()
    assert drained(running, "q") == {"id-1": 1}


class Reads:
    """A stream of the journal in ``landing``, that keeps what every batch held."""

    def __init__(self, spark, folder):
        self.landing = folder / "landing"
        self.batches = []
        self._spark = spark
        self._checkpoint = str(folder / "checkpoint")

    def __call__(self, fails=False, **options):
        def keep(rows, number):
            found = sorted(map(tuple, rows.select("node", "epoch", "seq").collect()))
            self.batches.append((number, found))
            if fails:
                raise RuntimeError("cut off here")

        given = {"path": str(self.landing), "max_segments": "2", **options}
        frame = self._spark.readStream.format("babelgate").options(**given).load()
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", self._checkpoint)
        run(query.trigger(availableNow=True))

    def keys(self):
        return sorted(key for _, found in self.batches for key in found)


def test_a_journal_is_read_once_as_it_lands(source, tmp_path):
    landing = tmp_path / "landing"
    a, b = Writer(landing, "a"), Writer(landing, "b", "zstd")
    for _ in range(3):
        a.land(20)
    late = a.land(5)
    b.land(7)
    hidden = tmp_path / late.name
    shutil.move(late, hidden)
    a.land(3)
    reads = Reads(source, tmp_path)
    with pytest.raises(PySparkException, match="cut off here"):
        reads(fails=True)
    (cut,) = reads.batches
    reads.batches.clear()
    reads()
    assert reads.batches[0] == cut, "what was cut off is repeated as it was"
    expected_sizes = [40, 23, 7] if a.epoch < b.epoch else [27, 40, 3]
    assert [len(found) for _, found in reads.batches] == expected_sizes, "two segments a batch, the oldest first"
    shutil.move(hidden, late)
    copy = landing / "date=2027-01-01" / late.name
    copy.parent.mkdir()
    shutil.copy(late, copy)
    reads()
    expected = keys(record for path in landed(landing) if path != copy for record in records(path))
    assert reads.keys() == expected, "one that lands late is read, one that landed twice is read once"
    whole = source.read.format("babelgate").option("path", str(landing)).load()
    assert sorted(map(tuple, whole.select("node", "epoch", "seq").collect())) == expected


def test_what_is_no_record_is_not_passed_over_unasked(source, tmp_path):
    writer = Writer(tmp_path / "landing", compression="gzip")
    path = writer.land(3)
    path.write_bytes(path.read_bytes()[:-12])
    read = source.read.format("babelgate").option("path", str(tmp_path / "landing"))
    with pytest.raises(PySparkException, match=r"byte \d+: truncated_file"):
        read.load().collect()
    assert len(read.option("corrupt", "skip").load().collect()) < 4
