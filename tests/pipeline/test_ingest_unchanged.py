"""``pipeline ingest`` ends without Spark when nothing new has landed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from babelgate.pipeline.journal.ingest_unchanged import ingested_already
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.nothing_new import done_under_lock
from tests.pipeline.ingested import Run
from tests.pipeline.segments import Writer


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path)


def test_a_lake_where_a_job_has_never_run_stays_as_it_is(tmp_path):
    landing, root = tmp_path / "landing", tmp_path / "root"
    landing.mkdir()
    assert ingested_already(str(landing), str(root)) is None
    for job in ("ingest", "compact", "metrics"):
        assert done_under_lock(DatasetReader.without_spark(str(root)), job, lambda _: True, lambda *_: True) is None
    assert not root.exists(), "a lock makes its folder"


def test_a_run_without_anything_new_needs_no_spark(run):
    run.landing.mkdir()
    assert ingested_already(str(run.landing), run.root) is None, "there is no journal yet"
    writer = Writer(run.landing)
    whole = writer.land(5)
    damaged = writer.land(400)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-40])
    (run.landing / "other.ndjson").write_bytes(gzip.decompress(whole.read_bytes()))
    (run.landing / ".hidden.ndjson").write_bytes(b"{}\n")
    (run.landing / "empty.ndjson").touch()
    first = run()
    killed = Path(run.root, "journal", "v=1", "batch=killed-00000000.0")
    killed.mkdir()

    assert ingested_already(str(run.landing), run.root) is not None
    again = run()
    assert "nothing new has landed" in run.output and "starting Spark" not in run.output
    assert again["journal"] == first["journal"]
    assert {name: again[name] for name in ("landing", "root")} == {name: first[name] for name in ("landing", "root")}
    assert (again["files"], again["records"], again["batches"]) == (0, 0, 0)
    assert not killed.exists()

    damaged.write_bytes(content)
    assert ingested_already(str(run.landing), run.root) is None, "a damaged file has changed"
    assert run()["records"] == 400 - (first["records"] - 5)
    assert ingested_already(str(run.landing), run.root) is not None
    writer.land(3)
    assert ingested_already(str(run.landing), run.root) is None, "a segment has landed"
    assert run()["records"] == 3
    shutil.rmtree(Path(run.root, "journal_gaps"))
    assert ingested_already(str(run.landing), run.root) is None, "a run was killed before its end"
    run()
    assert ingested_already(str(run.landing), run.root) is not None
    assert ingested_already("oss://bucket/journal", run.root) is None
    assert ingested_already((run.landing / "typo").as_uri(), run.root) is None
