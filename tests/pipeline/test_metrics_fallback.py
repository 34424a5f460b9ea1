"""``metrics`` computes whole dates where it is not proven what is new, and goes on from these."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.erase.job import erase
from babelgate.pipeline.journal.commits import CommitContent, LostRecords, ProcessRecords
from babelgate.pipeline.metrics import duckdb_increment, since
from babelgate.pipeline.metrics.parts import SLICE
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore
from tests.pipeline.histories import DAY, START, Days, Row, row
from tests.pipeline.incremental import is_increment, manifest, measure, message, run_folder
from tests.pipeline.test_metrics_continuous import Lake
from tests.pipeline.test_metrics_differential import rows_of

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with two runs, the second one of what was new. It divides every date."""
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    monkeypatch.setattr(duckdb_increment, "DIVIDED_BYTES", 0)
    made = Lake(tmp_path)
    measure(made, [event("accepted", 5), event("delivered", 7)])
    measure(made, [event("nacked", 9)], is_new=True)
    return made


def event(name: str, ms: int, message_id: str = "m") -> Row:
    return row(name, START + ms, ms, **message(message_id, 0), envelope=b"{}")


def test_a_batch_that_was_compacted_before_it_was_measured(lake: Lake) -> None:
    lake.put([event("delivered", 11)])
    erase(str(lake.root), ["m"], [])
    measure(lake, [], is_new=False)
    measure(lake, [event("acked", 13)], is_new=True)


def test_batches_that_were_compacted_after_they_were_measured_are_known(lake: Lake) -> None:
    erase(str(lake.root), ["m"], [])
    measure(lake, [event("acked", 13)], is_new=True)


def test_a_clock_that_was_set_back(lake: Lake) -> None:
    lake.put([event("delivered", 11)], committed_at=1)
    measure(lake, [], is_new=False)
    measure(lake, [event("acked", 13)], is_new=True)


def test_records_that_are_lost_and_found(lake: Lake) -> None:
    def content(*seqs: tuple[int, int], lost: bool = False) -> CommitContent:
        ranges = [(first, last, START + first, START + last) for first, last in seqs]
        gap = LostRecords("n1", "e1", 90, 3, START + 6, START + 8)
        return CommitContent(processes=[ProcessRecords("n1", "e1", ranges, [])], lost=[gap] if lost else [])

    def run(rows: list[Row], known: CommitContent, *, is_new: bool, at_least: bool) -> None:
        lake.put(rows, content=known)
        assert lake.once().exit_code == 0
        assert (is_increment(lake.root), manifest(lake.root)["at_least"]) == (is_new, at_least)
        with opened(DatasetReader.without_spark(str(lake.root))) as read:
            assert {each["at_least"] for each in read.rows(read.current("lifecycle"))} == {at_least}

    # Numbers 1 to 3 and 8 to 9 are there, and then the others.
    run([event("delivered", 11)], content((1, 3), (8, 9)), is_new=False, at_least=True)
    run([event("nacked", 12)], content((10, 11)), is_new=True, at_least=True)
    run([event("delivered", 13)], content((4, 7)), is_new=False, at_least=False)
    run([event("nacked", 14)], content((12, 13)), is_new=True, at_least=False)
    run([event("delivered", 15)], content((14, 15), lost=True), is_new=False, at_least=True)
    run([event("acked", 16)], content((16, 17)), is_new=True, at_least=True)


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_gaps_of_an_old_date_make_one_run_compute_whole_dates(
    lake: Lake, engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")

    def run(at: int, *known: tuple[int, int], engine: str = "duckdb") -> bool:
        """Whether a run after a record of the last date measured what was new. Its rows are right."""
        ranges = [(seq, seq, START + ms, START + ms) for seq, ms in known]
        content = CommitContent(processes=[ProcessRecords("n1", "e1", ranges, [])] if known else [])
        lake.put([_event("f4", 4, 4, at)], content=content)
        assert lake.once("--engine", engine).exit_code == 0
        _check_by_force(lake, tmp_path / f"whole-{at}")
        return is_increment(lake.root)

    # Message m is of the first date, and stays open. The second date has no records.
    for day in (2, 3, 4):
        measure(lake, _others(day))
    assert run(60)
    for number, ms in enumerate((100, DAY + 100)):
        first, at = 3 * number + 1, 10 * number + 61
        assert not run(at, (first, ms), (first + 2, ms + 9), engine=engine), "a record is missing"
        assert manifest(lake.root)["at_least"]
        assert [run(at + 1), run(at + 2)] == [True, True]
        assert not run(at + 3, (first + 1, ms + 5), engine=engine), "it is found"
        assert not manifest(lake.root)["at_least"]
        assert [run(at + 4), run(at + 5)] == [True, True]


def test_a_gap_after_the_first_event_of_a_message_and_before_its_created_at(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for each in [[_blank("x", 0)], [_event("x", 2, 2, 60)], _others(3)]:
        measure(lake, each)
    gap = LostRecords("n1", "e1", 1, 1, START + DAY + 60, START + DAY + 70)
    lake.put([_event("f3", 3, 3, 60)], content=CommitContent(lost=[gap]))
    assert lake.once().exit_code == 0
    _check_by_force(lake, tmp_path / "whole")


@pytest.mark.parametrize("case", ["open", "ended", "ended late"])
def test_a_date_with_wrong_rows_that_is_followed_again(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late record moves the range of followed messages back to a date with a message that was open over a gap, or had
    an event when it was not followed. Whole dates are computed once; a date with right rows needs none."""
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    two = ["--lookback-days", "2"]
    lake = Lake(tmp_path)

    def run(*rows: Row, content: CommitContent | None = None) -> bool:
        """Whether a run after these records measured what was new."""
        lake.put(list(rows), content=content)
        assert lake.once(*two).exit_code == 0
        return is_increment(lake.root)

    is_right = case == "ended"
    assert not run(_event("m", 0, 0, 10, "accepted"))
    run(*_others(1, 2))
    if case == "ended late":
        run(_event("m", 0, 3, 60, "acked"), *_others(3))
    else:
        run(_event("m", 0, 0, 20, "acked" if is_right else "delivered"))
        gap = LostRecords("n1", "e1", 1, 1, START + 3 * DAY + 60, START + 3 * DAY + 70)
        assert not run(*_others(3), content=CommitContent(lost=[gap]))
    assert manifest(lake.root)["not_followed"] == ([] if is_right else ["2026-01-01"])
    for number in range(2):
        is_new = run(_event("f2", 2, 2, 60 + number))
        assert (is_new, manifest(lake.root)["not_followed"]) == (number > 0 or is_right, [])
        _check_by_force(lake, tmp_path / f"whole-{number}", *two)


def _check_by_force(lake: Lake, folder: Path, *arguments: str) -> None:
    """The rows of the current run are those of ``--force``."""
    whole = Lake(folder)
    shutil.copytree(lake.root, whole.root)
    assert whole.once("--force", *arguments).exit_code == 0
    assert rows_of(lake.root) == rows_of(whole.root)


def test_other_options(lake: Lake) -> None:
    measure(lake, [event("delivered", DAY + 7)], "--from", "2026-01-01", is_new=False)
    measure(lake, [event("nacked", DAY + 8)], is_new=False)
    measure(lake, [event("delivered", DAY + 9)], "--lookback-days", "5", is_new=False)
    measure(lake, [event("nacked", DAY + 10)], "--lookback-days", "5", is_new=True)
    measure(lake, [event("acked", DAY + 11)], is_new=False)


def test_another_version(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(since, "__version__", "0.0.0")
    measure(lake, [event("acked", 11)], is_new=False)


def test_a_message_that_was_not_followed_and_is_again(lake: Lake) -> None:
    """A late record moves the range of followed messages back to one whose events were only counted."""
    short = ["--lookback-days", "1"]
    measure(lake, [event("delivered", 20)], *short, is_new=False)
    lake.put([event("acked", 5 * DAY), event("accepted", 5 * DAY, "n")])
    assert lake.once(*short).exit_code == 0
    assert manifest(lake.root)["not_followed"] == ["2026-01-01"]
    measure(lake, [event("nacked", 21)], *short, is_new=False)


def test_ids_without_created_at_are_found_again_for_an_earlier_record(lake: Lake) -> None:
    short = ["--lookback-days", "1"]
    blank = {**message("m", 0), "created_at": None}
    measure(lake, [row("redriven", START + 30, 0, **blank)], *short, is_new=False)
    later = {**message("n", 24 * 5), "created_at": None}
    measure(lake, [row("redriven", START + 5 * DAY, 0, **later)], *short, is_new=True)
    measure(lake, [row("delivered", START + 5 * DAY + 1, 0, **message("o", 24 * 5))], *short, is_new=True)
    # The former date is followed no more, and its ids are not kept.
    assert [each.name for each in run_folder(lake.root).glob("_entangled*")] == ["_entangled-2026-01-06.parquet"]
    measure(lake, [event("acked", 40)], *short, is_new=True)
    assert [each.name for each in run_folder(lake.root).glob("_entangled*")] == ["_entangled-2026-01-01.parquet"]


def test_a_message_whose_rows_would_be_made_of_other_records(lake: Lake) -> None:
    """Its events are further apart than the lookback, and its rows are not."""
    short = ["--lookback-days", "1"]
    blank = {**message("m", 0), "created_at": None}
    known = {**message("m", 0), "created_at": START + 3 * DAY}
    measure(lake, [row("redriven", START + 30, 0, **blank), row("delivered", START + 3 * DAY, 0, **known)], *short)
    for number in range(2):
        lake.put([row("delivered", START + 3 * DAY + 10 + number, 0, **known)])
        assert lake.once(*short).exit_code == 0
        # Once its date is made of what is followed, this is so for all runs.
        assert is_increment(lake.root) == (number == 1)


def test_a_message_with_other_records_that_no_new_record_touches(lake: Lake) -> None:
    """Whole dates are computed only for a run that would write its date."""
    three = ["--lookback-days", "3"]

    def made(name: str, day: int) -> Row:
        return message(name, 24 * day)

    blank = {**made("x", 0), "created_at": None}
    measure(lake, [row("redriven", START + 30, 0, **blank)], *three, is_new=False)
    measure(lake, [row("delivered", START + 3 * DAY, 0, **made("x", 3))], *three, is_new=True)
    for number in range(3):
        measure(lake, [row("accepted", START + 5 * DAY + number, 0, **made(f"n{number}", 5))], *three, is_new=True)
    # A redrive without created_at of another message changes nothing of this.
    measure(lake, [row("redriven", START + 5 * DAY + 9, 0, **{**made("n0", 5), "created_at": None})], *three)
    assert is_increment(lake.root)
    lake.put([row("acked", START + 5 * DAY + 10, 0, **made("y", 3))])
    assert lake.once(*three).exit_code == 0
    assert not is_increment(lake.root), "it shares the date of the former message"


def _made(name: str, day: int) -> Row:
    return message(name, 24 * day)


def _blank(name: str, day: int) -> Row:
    """An event without ``created_at``."""
    return row("redriven", START + day * DAY + 30, 0, **{**_made(name, 0), "created_at": None})


def _event(name: str, made: int, day: int, ms: int, kind: str = "delivered") -> Row:
    """An event on a day of a message that was made on another."""
    return row(kind, START + day * DAY + ms, 0, **_made(name, made))


def _others(*days: int) -> list[Row]:
    return [_event(f"f{day}", day, day, 50, "accepted") for day in days]


HISTORIES = {
    "one blank event stays in the window, and what dates its message does not": [
        [_blank("x", 0), _blank("x", 3), *_others(0, 1, 2, 3)],
        [_event("f3", 3, 4, 60)],
    ],
    "the date of that event has no row": [
        [_blank("x", 0), _blank("x", 3), *_others(0, 1)],
        [_event("f1", 1, 3, 60)],
    ],
    "what dates it has created_at": [
        [_event("x", 1, 1, 30, "accepted"), *_others(1, 2)],
        [_blank("x", 3), *_others(3)],
        [_event("f3", 3, 4, 60)],
    ],
    "the blank event was before the window when others came": [
        [_blank("x", 0), *_others(0, 1, 2, 3)],
        [_event("f3", 3, 3, 55)],
        [_event("x", 3, 3, 60)],
        [_event("z", 2, 2, 70, "accepted"), _event("f3", 3, 3, 71)],
    ],
}
"""Rounds of records, with a lookback of a day."""


@pytest.mark.parametrize("case", HISTORIES)
def test_rows_of_a_message_whose_other_events_are_too_old(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    short = ["--lookback-days", "1"]
    lake, whole = Lake(tmp_path), Lake(tmp_path / "whole")
    *rounds, last = HISTORIES[case]
    for each in rounds:
        lake.put(each)
        assert lake.once(*short).exit_code == 0
    lake.put(last)
    shutil.copytree(lake.root, whole.root)
    assert lake.once(*short).exit_code == 0
    monkeypatch.setattr(since, "WHOLE_RECORDS", 10**9)
    assert whole.once(*short).exit_code == 0
    assert rows_of(lake.root) == rows_of(whole.root)


@pytest.mark.spark
def test_another_engine(lake: Lake, spark: Any) -> None:
    rows = sorted(Days(40, days=1).rows(), key=lambda each: each["at"])
    measure(lake, rows[:-18], is_new=True)
    assert any(SLICE in part for part in manifest(lake.root)["parts"]["lifecycle"])
    store = DatasetStore(spark, str(lake.root))
    for dataset in ("lifecycle", "traces"):
        with opened(DatasetReader.without_spark(str(lake.root))) as read:
            expected = sum(len(each["hops"]) for each in read.rows(read.current(dataset)))
        assert sum(len(each.hops) for each in store.read(dataset).select("date", "hops").collect()) == expected > 0
    lake.put(rows[-18:-9])
    found = lake.once("--engine", "spark")
    assert found.exit_code == 0, found.output
    lake.check()
    assert not is_increment(lake.root)
    measure(lake, rows[-9:], is_new=True)
