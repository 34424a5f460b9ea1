"""``pipeline compact``: fewer files, and readers always see the same records."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from babelgate.pipeline.journal.compact import remove_leftovers
from babelgate.pipeline.journal.reader import existing, snapshot
from babelgate.pipeline.storage.schemas import JOURNAL
from tests.pipeline.ingested import Run
from tests.pipeline.segments import DAY, START, Writer


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path)


def compact(run, *arguments, code=0):
    return run(*arguments, command="compact", code=code)


def files(run, dataset="journal"):
    """The Parquet files of a dataset, read by somebody or not, below its folder."""
    home = Path(run.store.folder(dataset).removeprefix("file:"))
    return sorted(str(path.relative_to(home)) for path in home.rglob("*.parquet"))


def two_days(run, batches=3):
    """So many batches, each with records of two days of two queues."""
    writer = Writer(run.landing)
    for _ in range(batches):
        writer.at = START
        writer.happened("accepted", 3, "orders")
        writer.happened("accepted", 2, "mails")
        writer.at = START + DAY
        writer.land(2)
        run()
    return writer


def test_a_set_of_files_a_date_in_order(run):
    two_days(run)
    before = run.keys()
    assert len(files(run)) >= 3
    summary = compact(run, "--retain-hours", "0")
    assert (summary["batches"], summary["dates"], summary["rows"], summary["unchanged"]) == (3, 2, 21, False)
    assert run.keys() == before == run.expected()
    folders = snapshot(run.store).folders()
    assert [folder.rpartition("/")[2] for folder in folders] == ["date=2026-01-01", "date=2026-01-02"]
    (first, second) = (list(Path(folder.removeprefix("file:")).glob("*.parquet")) for folder in folders)
    rows = parquet.read_table(first[0], partitioning=None).to_pylist()
    assert (len(first), len(second), len(rows)) == (1, 1, 15)
    order = [(row["queue"], row["message_id"]) for row in rows]
    assert order == sorted(order)
    assert list(rows[0]) == list(JOURNAL.columns)
    assert snapshot(run.store).dates() == {"2026-01-01": 15, "2026-01-02": 6}


def test_once_more_changes_nothing(run):
    two_days(run)
    made = compact(run)
    again = compact(run)
    assert (again["unchanged"], again["run_id"]) == (True, made["run_id"])
    assert "Nothing has been ingested" in run.output
    forced = compact(run, "--force")
    assert (forced["unchanged"], forced["rows"]) == (False, 21)
    assert run.keys() == run.expected()


def test_only_the_dates_that_batches_touch_are_written_again(run):
    two_days(run)
    compact(run)
    parts = snapshot(run.store).compacted.parts
    late = Writer(run.landing, "late")
    late.land(4)
    run()
    assert len(snapshot(run.store).batches) == 1
    assert run.keys() == run.expected(), "what was compacted, and the batches since"
    assert compact(run)["dates"] == 1
    now = snapshot(run.store).compacted.parts
    assert now["2026-01-02"] == parts["2026-01-02"]
    assert now["2026-01-01"].rows == 19
    assert run.keys() == run.expected()
    # Ingest goes on from there: what it knows has gone through both compactions.
    late.land(1)
    assert run()["records"] == 1
    assert run.keys() == run.expected()


def test_readers_that_have_begun_find_their_files_until_these_are_retired(run):
    two_days(run)
    reading = existing(run.spark, run.root).records()
    compact(run)
    assert reading.count() == 21
    other = existing(run.spark, run.root).records()
    Writer(run.landing, "late").land(4)
    run()
    compact(run)
    assert (reading.count(), other.count()) == (21, 21)
    before = files(run)
    summary = compact(run, "--retain-hours", "0")
    assert summary["unchanged"]
    removed = [each for each in summary["removed"] if each.startswith("journal/")]
    assert len(removed) == 5, "four batches, and a part; its run still holds another"
    assert compact(run, "--retain-hours", "0")["removed"] == [], "once is enough"
    left = files(run)
    assert set(left) < set(before)
    assert len(left) == 2
    assert run.keys() == run.expected()
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        reading.collect()
    # With the last part of the first run, all of it is retired.
    Writer(run.landing, "later").land(1)
    run()
    compact(run, "--force")
    assert run.keys() == run.expected()
    compact(run, "--retain-hours", "0")
    assert run.keys() == run.expected()
    assert len({name.partition("/")[0] for name in files(run)}) == 1


def test_what_a_killed_one_left_is_nobodys_and_goes(run):
    two_days(run)
    compact(run)
    home = Path(run.store.folder("journal").removeprefix("file:"))
    parts = snapshot(run.store).compacted.parts
    left = home / "run=0123456789abcdef" / "date=2026-01-01"
    left.mkdir(parents=True)
    whole = next((home / parts["2026-01-01"].folder).glob("*.parquet"))
    (left / "part.parquet").write_bytes(whole.read_bytes())
    attempt = home / "batch=123456789abc-00000007.01234567"
    attempt.mkdir()
    (attempt / "part.parquet").write_bytes(whole.read_bytes()[:100])
    assert run.keys() == run.expected()
    remove_leftovers(run.store, snapshot(run.store))
    assert not left.parent.exists()
    assert attempt.exists(), "it may be that of an ingest at work"
    run()
    assert not attempt.exists()
    assert run.keys() == run.expected()


def test_a_pointer_that_is_gone_takes_nothing_with_it(run):
    """As a process leaves it that is killed where a file cannot be replaced in one step."""
    two_days(run)
    made = compact(run, "--retain-hours", "0")
    compact(run, "--retain-hours", "0")
    (Path(run.store.folder("journal").removeprefix("file:")) / "CURRENT").unlink()
    assert run.keys() == run.expected()
    assert compact(run)["run_id"] == made["run_id"]
    Writer(run.landing, "late").land(4)
    assert run()["records"] == 4
    compact(run)
    assert run.keys() == run.expected()


def test_a_count_that_does_not_fit_changes_nothing(run):
    two_days(run, 1)
    compact(run)
    Writer(run.landing, "late").land(4)
    run()
    (batch,) = snapshot(run.store).batches
    assert batch.folder is not None
    folder = Path(run.store.folder("journal").removeprefix("file:")) / batch.folder
    next(folder.glob("*.parquet")).unlink()
    pointer = run.store.current("journal")
    compact(run, code=1)
    assert "has 9 records, but" in run.output
    assert run.store.current("journal") == pointer


def test_what_is_no_record_is_put_together_too(run):
    run.landing.mkdir()
    for name in ("a", "b"):
        (run.landing / f"{name}.ndjson").write_bytes(b"wrong\n" + name.encode())
        run()
    assert len(run.corrupt()) == 4
    compact(run)
    assert len(snapshot(run.store).compacted.corrupt) == 1
    (run.landing / "c.ndjson").write_bytes(b"wrong")
    run()
    assert len(run.corrupt()) == 5
    compact(run)
    compact(run, "--retain-hours", "0")
    assert [bytes(row.raw) for row in run.corrupt()] == [b"wrong", b"a", b"wrong", b"b", b"wrong"]
    assert len({name.partition("/")[0] for name in files(run, "journal_corrupt")}) == 1


def test_a_large_date_has_several_files(run):
    writer = Writer(run.landing)
    for _ in range(300):
        writer.happened("accepted", 100)
    writer.land()
    run()
    compact(run, "--target-mib", "0.1", "--retain-hours", "0")
    (folder,) = snapshot(run.store).folders()
    parts = sorted(Path(folder.removeprefix("file:")).glob("*.parquet"))
    assert 2 <= len(parts) <= 10
    ids = [parquet.read_table(part, columns=["message_id"])["message_id"].to_pylist() for part in parts]
    assert [each for part in ids for each in part] == sorted(each for part in ids for each in part)
    assert run.keys() == run.expected()
