"""Compares every number of ``metrics --engine duckdb`` with a second computation, and needs no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.journal.commits import Commit, CommitContent
from babelgate.pipeline.journal.reader import Compacted, Snapshot
from babelgate.pipeline.metrics import duckdb_lifecycles, duckdb_messages
from babelgate.pipeline.metrics.duckdb_stages import DuckDBMetricsWriter
from babelgate.pipeline.metrics.stages import DATASETS
from babelgate.pipeline.storage.datasets import DatasetReader
from tests.pipeline.compared import SPANS, check, nonsense
from tests.pipeline.histories import DAY, SCHEMA, START, Days


def computed(rows, folder, spans, as_of, zone="UTC"):
    """Every dataset by its name, as the job computes, writes and reads them."""
    reader = DatasetReader.without_spark(str(folder))
    home = folder / "journal" / "v=1" / "batch=1"
    home.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), home / "journal.parquet")
    dates = {each["date"] for each in rows}
    days = {day.isoformat(): 1 for day in dates}
    batch = Commit(
        batch="1", committed_at=1, folder="batch=1", corrupt_folder=None, dates=days, content=CommitContent()
    )
    journal = Snapshot(reader, None, Compacted(), [batch])
    with opened(reader) as lake:
        lake.run(f"set TimeZone = '{zone}'")
        writer = DuckDBMetricsWriter(lake, journal, "r", days, spans, {})
        writer.events(dates)
        writer.messages(writer.touched(dates))
        writer.still_open(dates, max(dates))
        made = {name: lake.rows(lake.parts(name, writer.parts[name])) for name in DATASETS}
        lake.view("lives", lake.parts("lifecycle", writer.parts["lifecycle"]))
        lake.view("past", duckdb_lifecycles.lifecycle_at("lives", as_of))
        made["open"] = lake.rows(f"select * from ({duckdb_messages.open_messages('past', as_of)})")
    return made


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_days_of_plausible_traffic(tmp_path, zone):
    rows = list(Days(2500, seed=7).rows())
    as_of = START + 2 * DAY
    lived = check(computed(rows, tmp_path, SPANS, as_of, zone), rows, SPANS, as_of)
    assert {life["outcome"] for life in lived.values()} == {"acked", "dropped", "dead_lettered", "open"}


@pytest.mark.parametrize("seed", range(4))
def test_histories_that_make_no_sense(tmp_path, seed):
    rows = nonsense(seed)
    as_of = START + 4 * DAY
    check(computed(rows, tmp_path, SPANS, as_of), rows, SPANS, as_of)
