"""``metrics`` of what is new gives the rows that whole dates give, whatever comes in whatever order."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.metrics import duckdb_increment, since
from babelgate.pipeline.metrics.parts import SLICE
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore
from tests.pipeline.compared import nonsense
from tests.pipeline.histories import DAY, START, Days, Row, row
from tests.pipeline.test_metrics_continuous import LATE, Lake

pytestmark = pytest.mark.timeout(600)
PLAIN = {name: value for name, value in LATE.items() if name not in ("message_id", "trace_id", "created_at")}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake of which every run measures what is new, and divides every date."""
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    monkeypatch.setattr(duckdb_increment, "DIVIDED_BYTES", 0)
    return Lake(tmp_path)


def manifest(lake: Lake) -> dict[str, Any]:
    found = DatasetReader.without_spark(str(lake.root)).manifest("throughput")
    assert found is not None
    return found


def measure(lake: Lake, rows: list[Row], *arguments: str) -> dict[str, Any]:
    """The manifest of a run after a batch of ``rows``, whose datasets are right."""
    lake.put(rows)
    found = lake.once(*arguments)
    assert found.exit_code == 0, found.output
    lake.check()
    return manifest(lake)


def is_increment(made: dict[str, Any], lake: Lake) -> bool:
    """Whether a run measured what was new."""
    home = Path(DatasetReader.without_spark(str(lake.root)).folder("lifecycle", made["run_id"]))
    return (home / "_entangled.parquet").exists()


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_make_no_sense_in_any_order(lake: Lake, seed: int) -> None:
    rows = nonsense(seed)
    Random(seed).shuffle(rows)
    size = len(rows) // 4 + 1
    for begin in range(0, len(rows), size):
        made = measure(lake, rows[begin : begin + size])
        assert is_increment(made, lake) == (begin > 0)


@pytest.mark.parametrize("is_in_order", [True, False])
def test_plausible_days(lake: Lake, is_in_order: bool) -> None:
    rows = [each for each in Days(60, days=1).rows() if is_in_order or each["event"] != "redriven"]
    if is_in_order:
        rows.sort(key=lambda each: each["at"])
    else:
        Random(7).shuffle(rows)
    for begin in range(0, len(rows), len(rows) // 4 + 1):
        made = measure(lake, rows[begin : begin + len(rows) // 4 + 1])
    assert is_increment(made, lake)
    assert any(SLICE in part for part in made["parts"]["lifecycle"])
    assert lake.has_current_tables()


def test_only_slices_with_messages_that_change_are_written_again(lake: Lake) -> None:
    early = [row("accepted", START + 5 + hour * 3_600_000, 0, **_message(f"m{hour}", hour)) for hour in range(3)]
    measure(lake, early)
    # This run divides the date.
    measure(lake, [row("delivered", START + 9, 0, **_message("m0", 0))])
    first = manifest(lake)
    assert len(first["parts"]["lifecycle"]) == len(first["parts"]["traces"]) == 3
    late = measure(lake, [row("acked", START + 2 * 3_600_000, 0, **_message("m0", 0))], "--retain-hours", "0")
    for dataset in ("lifecycle", "traces"):
        former, now = first["parts"][dataset], late["parts"][dataset]
        assert former.keys() == now.keys()
        assert [part for part in sorted(now) if now[part] != former[part]] == [min(now)]
    assert lake.once("--force").exit_code == 0
    lake.check()
    assert not any(SLICE in part for parts in manifest(lake)["parts"].values() for part in parts)
    assert lake.once("--retain-hours", "0").exit_code == 0
    lake.check()
    home = Path(DatasetReader.without_spark(str(lake.root)).folder("lifecycle"))
    assert not list(home.glob(f"run=*/date=*/{SLICE}*")), "superseded slices are removed"


def test_other_options_compute_whole_dates(lake: Lake) -> None:
    measure(lake, [row("accepted", START + 5, 0, **_message("m", 0))])
    assert is_increment(measure(lake, [row("delivered", START + 9, 0, **_message("m", 0))]), lake)
    lake.put([row("acked", START + DAY + 7, 0, **_message("m", 0))])
    assert lake.once("--from", "2026-01-01").exit_code == 0
    lake.check()
    assert not is_increment(manifest(lake), lake)
    assert not is_increment(measure(lake, [row("acked", START + DAY + 8, 0, **_message("m", 0))]), lake)


def test_a_run_that_ended_half_way_is_repeated(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(lake, [row("accepted", START + 5, 0, **_message("m", 0))])
    lake.put([row("delivered", START + 9, 0, **_message("m", 0))])
    with monkeypatch.context() as patched:
        patched.setattr(duckdb_increment.DuckDBIncrement, "still_open", None)
        with pytest.raises(TypeError):
            lake.once()
    assert is_increment(measure(lake, [row("acked", START + 19, 0, **_message("m", 0))]), lake)
    assert lake.has_current_tables()


def _message(name: str, hour: int) -> dict[str, Any]:
    return {**PLAIN, "message_id": name, "trace_id": f"t-{name}", "created_at": START + hour * 3_600_000}


@pytest.mark.spark
def test_spark_reads_slices_and_goes_on_from_them(lake: Lake, spark: Any) -> None:
    rows = sorted(Days(40, days=1).rows(), key=lambda each: each["at"])
    half = len(rows) // 2
    measure(lake, rows[:half])
    # This run divides the date.
    made = measure(lake, rows[half:-9])
    assert any(SLICE in part for part in made["parts"]["lifecycle"])
    store = DatasetStore(spark, str(lake.root))
    for dataset in ("lifecycle", "traces"):
        with opened(DatasetReader.without_spark(str(lake.root))) as read:
            expected = sum(len(each["hops"]) for each in read.rows(read.current(dataset)))
        assert sum(len(each.hops) for each in store.read(dataset).select("date", "hops").collect()) == expected > 0
    lake.put(rows[-9:])
    found = lake.once("--engine", "spark")
    assert found.exit_code == 0, found.output
    lake.check()
    assert not is_increment(manifest(lake), lake)
