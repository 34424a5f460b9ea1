"""``metrics`` of what is new: which rows it writes, and which files it keeps and removes."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from babelgate.pipeline.metrics import duckdb_increment, since
from babelgate.pipeline.metrics.dates import DateRange
from babelgate.pipeline.metrics.job import measure as measure_alone
from babelgate.pipeline.metrics.parts import DIVIDED, SLICE, divided_days
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader
from tests.pipeline.compared import nonsense
from tests.pipeline.histories import DAY, START, row
from tests.pipeline.incremental import HOUR, is_increment, manifest, measure, message, run_folder
from tests.pipeline.test_metrics_continuous import Lake

LAUNCH = Launch(None, {}, None, False, "duckdb")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake of which every run measures what is new, and divides every date."""
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    monkeypatch.setattr(duckdb_increment, "DIVIDED_BYTES", 0)
    return Lake(tmp_path)


def test_rows_that_make_no_sense_in_any_order(lake: Lake) -> None:
    rows = nonsense(0)
    Random(0).shuffle(rows)
    size = len(rows) // 4 + 1
    for begin in range(0, len(rows), size):
        measure(lake, rows[begin : begin + size], is_new=begin > 0)
    assert lake.has_current_tables()


def test_only_slices_with_messages_that_change_are_written_again(lake: Lake) -> None:
    measure(lake, [row("accepted", START + 5 + hour * HOUR, 0, **message(f"m{hour}", hour)) for hour in range(3)])
    # This run divides the date.
    first = measure(lake, [row("delivered", START + 9, 0, **message("m0", 0))], is_new=True)
    assert len(first["parts"]["lifecycle"]) == len(first["parts"]["traces"]) == 3
    late = measure(lake, [row("acked", START + 2 * HOUR, 0, **message("m0", 0))], "--retain-hours", "0")
    for dataset in DIVIDED:
        former, now = first["parts"][dataset], late["parts"][dataset]
        assert former.keys() == now.keys()
        assert [part for part in sorted(now) if now[part] != former[part]] == [min(now)]


def test_force_leaves_no_slice_for_an_older_version(lake: Lake) -> None:
    measure(lake, [row("accepted", START + 5, 0, **message("m", 0))])
    made = measure(lake, [row("acked", START + DAY, 0, **message("m", 0))], is_new=True)
    assert any(SLICE in part for part in made["parts"]["traces"])
    made = measure(lake, [], "--force", is_new=False)
    assert not any("/" in part for parts in made["parts"].values() for part in parts)
    assert {run for parts in made["parts"].values() for run in parts.values()} == {made["run_id"]}
    assert "Nothing has changed" in lake.once("--retain-hours", "0").output
    lake.check()
    home = Path(DatasetReader.without_spark(str(lake.root)).folder("lifecycle"))
    assert not list(home.glob(f"run=*/date=*/{SLICE}*")), "superseded slices are removed"
    # Days of ``open`` are known from its parts alone.
    assert made["parts"]["open"].keys() == {"2026-01-01"}


def test_vanished_slices_are_removed_while_runs_go_on(lake: Lake) -> None:
    # Without created_at a message is where its first event is, and an earlier event moves it.
    facts = {**message("m", 0), "created_at": None}
    second = ["--retain-hours", str(1 / 3600)]
    measure(lake, [row("delivered", START + 5 * HOUR, 0, **facts), row("acked", START + 9, 0, **message("n", 0))])
    measure(lake, [row("nacked", START + 6 * HOUR, 0, **facts)], *second, is_new=True)
    (gone,) = run_folder(lake.root).glob(f"date=*/{SLICE}{(START + 5 * HOUR) // 600_000}")
    measure(lake, [row("accepted", START + 2 * HOUR, 0, **facts)], *second, is_new=True)
    assert gone.exists(), "it was current a moment ago"
    for number in range(2):
        time.sleep(1.1)
        # Each is a new run, so that the current one is never old.
        measure(lake, [row("delivered", START + 7 * HOUR + number, 0, **message("n", 0))], *second, is_new=True)
    assert not gone.exists()


def test_what_the_next_run_needs_is_kept_in_one_run_alone(lake: Lake) -> None:
    facts = {**message("m0", 0), "created_at": None}
    measure(lake, [row("accepted", START + 5 + hour * HOUR, 0, **message(f"m{hour}", hour)) for hour in range(5)])
    for hour in range(1, 5):
        # Each writes another slice, so that all of their folders stay in use.
        rows = [row("delivered", START + 9 + 5 * HOUR + hour, 0, **message(f"m{hour}", hour))]
        measure(lake, [*rows, row("nacked", START + 10 + 5 * HOUR + hour, 0, **facts)], is_new=True)
        home = run_folder(lake.root).parent
        runs = {each.parent for each in home.glob("run=*/_open.parquet")}
        assert runs == {each.parent for each in home.glob("run=*/_entangled-*")}
        assert len(runs) == min(hour, 2) and run_folder(lake.root) in runs, "the current one, and the one before it"
    assert len({*manifest(lake.root)["parts"]["lifecycle"].values()}) > 2
    assert "Nothing has changed" in lake.once().output
    assert [each.parent for each in home.glob("run=*/_*.parquet")] == [run_folder(lake.root)] * 2
    assert lake.has_current_tables()


def test_a_created_at_before_the_first_date_of_the_journal(lake: Lake) -> None:
    measure(lake, [row("delivered", START + 5, 0, **message("m", -30))])
    made = measure(lake, [row("acked", START + 9, 0, **message("m", -30))], is_new=True)
    assert made["message_dates"] == ["2025-12-30"]


def test_a_date_to_which_nothing_comes_becomes_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def divided() -> dict[str, list[str]]:
        parts = manifest(lake.root)["parts"]
        return {name: [day.isoformat() for day in divided_days(parts[name])] for name in DIVIDED}

    measure(lake, [row("accepted", START + 5 + hour * HOUR, 0, **message(f"m{hour}", hour)) for hour in range(3)])
    measure(lake, [row("acked", START + 9 + 3 * HOUR, 0, **message("m0", 0))], is_new=True)
    later = [row("acked", START + DAY + each, 0, **message("n", 24)) for each in range(4)]
    measure(lake, later[:1], is_new=True)
    assert divided() == {name: ["2026-01-01"] for name in DIVIDED}
    monkeypatch.setattr(since, "REST_MS", 0)
    # The date of this run does not rest.
    measure(lake, later[1:2], "--retain-hours", "0", is_new=True)
    assert divided() == {name: ["2026-01-02"] for name in DIVIDED}
    measure(lake, [], "--retain-hours", "0")
    home = Path(DatasetReader.without_spark(str(lake.root)).folder("lifecycle"))
    assert not list(home.glob(f"run=*/date=2026-01-01/{SLICE}*"))


def test_a_run_reads_no_messages_of_dates_that_do_not_change(lake: Lake) -> None:
    within = DateRange(None, None, 31)
    for day in range(3):
        lake.put([row("accepted", START + day * DAY + 5, 0, **message(f"m{day}", 24 * day))])
        measure_alone(LAUNCH, str(lake.root), within)
    assert is_increment(lake.root)
    parts = manifest(lake.root)["parts"]
    for part, run in parts["lifecycle"].items():
        if part < "2026-01-03":
            folder = Path(DatasetReader.without_spark(str(lake.root)).folder("lifecycle", run)) / f"date={part}"
            for file in folder.glob("*.parquet"):
                file.write_bytes(b"this is not read")
    lake.put([row("acked", START + 2 * DAY + 9, 0, **message("m2", 48))])
    measure_alone(LAUNCH, str(lake.root), within)
    assert is_increment(lake.root)


def test_a_run_that_ended_half_way_is_repeated(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(lake, [row("accepted", START + 5, 0, **message("m", 0))])
    lake.put([row("delivered", START + 9, 0, **message("m", 0))])
    with monkeypatch.context() as patched:
        patched.setattr(duckdb_increment.DuckDBIncrement, "still_open", None)
        with pytest.raises(TypeError):
            lake.once()
    measure(lake, [row("acked", START + 19, 0, **message("m", 0))], is_new=True)
    assert lake.has_current_tables()


def test_a_current_run_stays_that_a_complete_one_was_to_follow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was killed when all datasets had a manifest, and none was current."""
    measure(lake, [row("accepted", START + 5, 0, **message("m", 0))])
    former = manifest(lake.root)["run_id"]
    lake.put([row("delivered", START + 9, 0, **message("m", 0))])

    def killed(store: DatasetReader, datasets: object, run: str) -> None:
        if run != former:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DatasetReader, "point", killed)
        with pytest.raises(KeyboardInterrupt):
            measure_alone(LAUNCH, str(lake.root), DateRange())
    assert manifest(lake.root)["run_id"] == former
    time.sleep(0.01)
    measure(lake, [row("acked", START + 12, 0, **message("m", 0))], "--retain-hours", "0")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_current_run_stays_whose_clock_was_set_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    measure(lake, [row("accepted", START + 5, 0, **message("m", 0))])
    former = run_folder(lake.root)
    an_hour_ago = time.time_ns() - 3_600_000_000_000
    with monkeypatch.context() as patched:
        patched.setattr("babelgate.pipeline.storage.datasets.time.time_ns", lambda: an_hour_ago)
        measure(lake, [row("delivered", START + 9, 0, **message("m", 0))])
    current = run_folder(lake.root)
    rows = [row("nacked", START + 12, 0, **message("m", 0))] if is_new else []
    measure(lake, rows, "--retain-hours", "0")
    assert current.exists() and former.exists(), "the former one by its time"
    measure(lake, [row("acked", START + 13, 0, **message("m", 0))], "--retain-hours", "0")
    time.sleep(0.01)
    measure(lake, [], "--retain-hours", "0")
    assert former.exists() is current.exists() is False
