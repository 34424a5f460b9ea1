"""``pipeline ingest``: landed records are in ``journal`` once, and unreadable content is reported."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from babelgate.observe.journal.frames import Unpacking
from babelgate.observe.journal.record import Record, encode
from babelgate.pipeline.journal.commits import Commit, CommitContent, DamagedFile
from babelgate.pipeline.journal.ingest_batch import LARGEST_BYTES, BatchWriter, LandedFile
from babelgate.pipeline.journal.reader import commit, committed, read_journal, read_missing, snapshot
from babelgate.pipeline.journal.segment_lines import parse_segment_lines
from babelgate.pipeline.storage.datasets import DatasetStore
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.schemas import JOURNAL, JOURNAL_GAPS
from babelgate.pipeline.tables.moment import open_tables
from tests.harness.journal import records
from tests.pipeline.ingested import Run
from tests.pipeline.segments import DAY, START, Writer


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path)


def test_every_member_of_every_record_arrives(run, tmp_path):
    writer = Writer(run.landing, bodies=True, meta=["tenant"], compression="zstd")
    bodies = [b'{"a": 1.10,"\xc3\xa9":"\\ud800"}', b'{"meta":\n{"tenant":"\xc3\xa9"}}', b"\xff\x00"]
    writer.happened("accepted", 3, bodies=bodies)
    writer.happened("delivered", 2)
    for kind in ("acked", "nacked", "rejected", "lease_expired", "dead_lettered", "redriven", "poison", "dropped"):
        writer.happened(kind)
    path = writer.land()
    writer.at = START + DAY
    other = writer.land(2)
    summary = run()
    assert (summary["records"], summary["files"], summary["batches"]) == (15, 2, 1)
    assert summary["journal"] == {
        "records": 15,
        "processes": 1,
        "damaged_files": 0,
        "lost": 0,
        "in_holes": 0,
        "at_least": False,
    }
    found = read_journal(run.spark, run.root)
    assert found.columns == list(JOURNAL.columns)
    rows = [row.asDict() for row in found.orderBy("seq").collect()]
    written = [*records(path), *records(other)]
    plain = [member for member in JOURNAL.columns if member in written[0].__struct_fields__ and member != "envelope"]
    for row, record in zip(rows, written, strict=True):
        members = msgspec.structs.asdict(record)
        if record.meta is not msgspec.UNSET:
            members["meta"] = msgspec.json.encode(record.meta).decode()
        assert {name: row[name] for name in plain} == {
            name: None if members[name] is msgspec.UNSET else members[name] for name in plain
        }
    assert [row["envelope"] for row in rows[:4]] == [*bodies, None]
    assert [row["meta"] for row in rows[:4]] == [None, '{"tenant":"é"}', None, None]
    assert {row["date"].isoformat() for row in rows} == {"2026-01-01", "2026-01-02"}
    assert {row["src_file"] for row in rows} == {f"file:{path}", f"file:{other}"}
    by_day = read_journal(run.spark, run.root, ["2026-01-02"])
    assert [row.seq for row in by_day.orderBy("seq").collect()] == [14, 15]


def test_members_of_a_newer_gateway_are_kept(run):
    """The lake was begun by a version without the column ``extra``."""
    writer = Writer(run.landing)
    writer.land(2)
    run()
    for path in Path(run.root, "journal").rglob("part-*.parquet"):
        parquet.write_table(parquet.read_table(path).drop_columns(["extra"]), path)
        path.with_name(f".{path.name}.crc").unlink()
    shutil.rmtree(Path(run.root, "journal", "v=1", "_delta_log"))
    (line,) = gzip.decompress(writer.land(1).read_bytes()).splitlines()
    added = b'"region":"eu","route":{"hops":[1.10,{"\xc3\xa9":12345678901234567890123}]}'
    newer = line.replace(b'"seq":3', b'"seq":9'), b"{%b,%b" % (added, line[1:].replace(b'"seq":3', b'"seq":10'))
    (run.landing / "newer.ndjson").write_bytes(b"\n".join([*newer, b""]))
    run()
    for command in ("ingest", "compact"):
        run(command=command)
        rows = {row.seq: row.extra for row in read_journal(run.spark, run.root).collect()}
        assert rows == {1: None, 2: None, 3: None, 9: None, 10: f"{{{added.decode()}}}"}
        table = open_tables(run.root)["journal"].to_pyarrow_table(columns=["seq", "extra"])
        assert {row["seq"]: row["extra"] for row in table.to_pylist()} == rows


def test_a_second_run_reads_what_has_landed_since(run):
    first, second = Writer(run.landing, "a"), Writer(run.landing, "b", "zstd")
    first.land(5)
    assert run()["records"] == 5
    assert run()["batches"] == 0
    first.land(3)
    second.land(4)
    summary = run()
    assert (summary["records"], summary["skipped_files"], summary["duplicates"]) == (7, 0, 0)
    assert run.keys() == run.expected()
    assert len(run.expected()) == 12


def test_what_landed_twice_counts_once(run):
    writer = Writer(run.landing)
    path = writer.land(10)
    writer.land(10)
    # The same segment elsewhere, a copy that is called like none, and one with another's lines among its own.
    (run.landing / "again").mkdir()
    shutil.copy(path, run.landing / "again" / path.name)
    shutil.copy(path, run.landing / "copy.ndjson.gz")
    later = writer.land(5)
    later.write_bytes(path.read_bytes() + later.read_bytes() + later.read_bytes())
    summary = run()
    assert (summary["records"], summary["duplicates"]) == (25, 35)
    assert run.keys() == run.expected()
    # Afterwards, the same again: segments are known by their names, others by their lines.
    (run.landing / "date=2026-01-05").mkdir()
    shutil.copy(later, run.landing / "date=2026-01-05" / later.name)
    shutil.copy(later, run.landing / "later.ndjson.gz")
    summary = run()
    assert (summary["records"], summary["skipped_files"], summary["duplicates"]) == (0, 1, 20)
    assert run.keys() == run.expected()


def test_what_is_no_record_is_kept_with_its_place(run):
    writer = Writer(run.landing)
    path = writer.land(3)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    (record, *_) = records(path)
    far = encode(msgspec.structs.replace(record, seq=9, at=2**62)) + b"\n"
    newer = lines[2].replace(b'"v":1', b'"v":2').replace(b'"at":', b'"when":')
    wrong = [b"no json\n", b'{"v":1}\n', b"\xff\xfe\n", far, newer, b'{"v":1,"node":"a']
    spoiled = run.landing / "spoiled.ndjson"
    spoiled.write_bytes(b"".join([*lines[:2], *wrong]))
    more = lines[2].replace(b'"seq":3', b'"seq":4').replace(b'"v":1', b'"v":1,"later":{"a":[1]}')
    (run.landing / "more.ndjson").write_bytes(more)
    (run.landing / "README.ndjson.txt").write_text("is nobody's")
    (run.landing / "empty.ndjson").write_bytes(b"")
    summary = run()
    assert (summary["records"], summary["corrupt"], summary["duplicates"]) == (4, 6, 2)
    assert summary["journal"]["damaged_files"] == 1, "a later program knows that version"
    found = run.corrupt()
    places = [sum(map(len, [*lines[:2], *wrong[:index]])) for index in range(6)]
    assert [(row.src_at, bytes(row.raw)) for row in found] == [
        (place, line.removesuffix(b"\n")) for place, line in zip(places, wrong, strict=True)
    ]
    assert [row.reason for row in found] == [*["invalid_record"] * 4, "unknown_version", "invalid_record"]
    assert {row.src_file for row in found} == {f"file:{spoiled}"}
    assert "version 2" in found[4].detail
    assert "year" in found[3].detail


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_damaged_segment_gives_what_can_be_read_and_the_rest_when_it_is_whole(run, compression):
    writer = Writer(run.landing, compression=compression)
    for _ in range(400):
        writer.happened("accepted", 50)
    path = writer.land()
    whole = path.read_bytes()
    # Within a frame: there are 24 of about one size, and what ends with one is whole.
    path.write_bytes(whole[: len(whole) * 12 // 25])
    writer.land(3)
    summary = run()
    assert summary["damaged_files"] == 1
    assert summary["journal"]["at_least"]
    assert summary["journal"]["records"] + summary["journal"]["in_holes"] == 20_003
    assert 5_000 < summary["records"] < 15_000
    (told,) = run.corrupt()
    assert (told.reason, told.src_file) == ("truncated_file", f"file:{path}")
    (hole,) = run.missing()
    assert (hole["kind"], hole["first_seq"], hole["last_seq"]) == ("hole", summary["records"] - 3 + 1, 20_000)
    assert "at least" in run.output
    assert run()["journal"] == summary["journal"], "as long as it is the same, it is not read again"

    path.write_bytes(whole)
    mended = run()
    assert (mended["records"], mended["duplicates"]) == (hole["missing"], summary["records"] - 3)
    assert (mended["journal"]["damaged_files"], mended["journal"]["at_least"]) == (0, False)
    assert run.keys() == run.expected()
    assert run.missing() == []


def test_a_good_copy_mends_a_damaged_segment(run):
    writer = Writer(run.landing)
    path = writer.land(50)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    run()
    (run.landing / "again").mkdir()
    (run.landing / "again" / path.name).write_bytes(whole)
    assert run()["journal"] | {"processes": 1} == {
        "records": 50,
        "processes": 1,
        "damaged_files": 0,
        "lost": 0,
        "in_holes": 0,
        "at_least": False,
    }


def test_a_plain_segment_that_was_cut_is_read_again(run):
    path = Writer(run.landing).land(50)
    plain = path.with_suffix("")
    whole = gzip.decompress(path.read_bytes())
    path.unlink()
    plain.write_bytes(whole[: len(whole) // 2])
    summary = run()
    assert (summary["corrupt"], summary["journal"]["damaged_files"]) == (1, 1)
    plain.write_bytes(whole)
    assert run()["journal"] | {"records": 50, "damaged_files": 0} == run()["journal"]
    assert len(run.keys()) == 50


def test_a_file_is_what_the_last_batch_tells_of_it(run):
    """Whatever the batches are called."""
    found = DamagedFile("file:/a.ndjson.gz", 1, 1, "truncated_file", "0.0.1")
    for at, (name, content) in enumerate(
        [
            ("z", CommitContent(damaged=[found])),
            ("y", CommitContent(damaged=[found])),
            ("x", CommitContent(mended=[found.url])),
        ]
    ):
        made = Commit(batch=name, committed_at=at, folder=None, corrupt_folder=None, dates={}, content=content)
        assert bool(snapshot(run.store).known().damaged) == (at > 0)
        commit(run.store, made)
    assert snapshot(run.store).known().damaged == {}


def test_the_root_may_lie_on_another_file_system(run, tmp_path):
    """One with a name of its own, and without locks of the operating system."""
    settings = run.spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.default.link./lake", tmp_path.as_uri())
    settings.set("fs.viewfs.impl.disable.cache", "true")
    run.root = "viewfs:///lake/root"
    run.store = DatasetStore(run.spark, run.root)
    path = Writer(run.landing).land(50)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert run()["journal"]["damaged_files"] == 1
    path.write_bytes(whole)
    assert run()["journal"]["damaged_files"] == 0
    run(command="compact")
    assert run.keys() == run.expected()


def test_what_is_missing_is_told(run):
    writer = Writer(run.landing, "busy", limit=2000)
    writer.happened("accepted", 100)
    lost_at = writer.at
    writer.land()
    writer.land()
    away = writer.land(3)
    writer.land(1)
    away.unlink()
    headless = Writer(run.landing, "headless")
    headless.land(4).unlink()
    headless.land(2)
    summary = run()
    gaps = run.missing()
    assert [(row["node"], row["kind"]) for row in gaps] == [
        ("busy", "lost"),
        ("busy", "hole"),
        ("headless", "hole"),
    ]
    lost, hole, beginning = gaps
    assert (lost["from_at"], lost["to_at"]) == (lost_at, lost_at)
    assert lost["missing"] == summary["journal"]["lost"] == 101 - lost["first_seq"]
    assert hole["missing"] == hole["last_seq"] - hole["first_seq"] + 1
    assert lost_at <= hole["from_at"] < hole["to_at"] == writer.at
    assert (beginning["first_seq"], beginning["last_seq"], beginning["from_at"]) == (1, 4, START)
    ends = [row for row in read_missing(run.spark, run.root).collect() if row.kind == "open_end"]
    assert [(row.node, row.from_at, row.missing) for row in ends] == [
        ("busy", writer.at, None),
        ("headless", headless.at, None),
    ]
    stored = run.store.read("journal_gaps")
    assert stored.columns == list(JOURNAL_GAPS.columns)
    assert sorted(stored.collect()) == sorted(read_missing(run.spark, run.root).collect())


def test_a_checkpoint_that_was_lost_costs_time_only(run):
    writer = Writer(run.landing)
    for _ in range(3):
        writer.land(4)
    shutil.copy(writer.land(2), run.landing / "copy.ndjson.gz")
    run("--max-files", "2")
    before = run.keys()
    shutil.rmtree(run.store.folder("journal").removeprefix("file:") + "/_checkpoint")
    writer.land(1)
    summary = run("--max-files", "2")
    assert (summary["records"], summary["skipped_files"]) == (1, 5)
    assert run.keys() == run.expected()
    assert len(before) == 14


def test_a_batch_that_was_done_is_not_done_again(run):
    """A kill between our commit and Spark's: the batch comes again under its number."""
    writer = Writer(run.landing)
    writer.land(4)
    run()
    checkpoint = run.store.folder("journal").removeprefix("file:") + "/_checkpoint"
    shutil.rmtree(f"{checkpoint}/commits")
    writer.land(2)
    summary = run()
    assert (summary["batches"], summary["records"]) == (1, 2)
    assert run.keys() == run.expected()


def test_files_that_cannot_be_read_at_all_are_told(run):
    writer = Writer(run.landing)
    gone, there = writer.land(3), writer.land(3)
    gone.unlink()
    listed = [LandedFile(f"file:{gone}", 100, 0), LandedFile(f"file:{there}", there.stat().st_size, 0)]
    huge = LandedFile(f"file:{run.landing}/huge.ndjson", LARGEST_BYTES + 1, 0)
    made = BatchWriter(run.store).batch("by-hand", [*listed, huge])
    assert (made.records, made.damaged_files, made.corrupt) == (3, 2, 2)
    assert {(row.src_file, row.reason) for row in run.corrupt()} == {
        (f"file:{gone}", "missing_file"),
        (huge.url, "too_large_file"),
    }
    assert len(BatchWriter(run.store).known.damaged) == 2
    assert BatchWriter(run.store).changed(listed) == [listed[0]], "it is back, as it was"
    only = BatchWriter(run.store).batch("nothing", [LandedFile(f"file:{gone}-2.ndjson", 1, 0)])
    assert (only.records, only.corrupt) == (0, 1)


def test_one_that_is_stopped_says_that_not_all_was_read(run):
    writer = Writer(run.landing)
    for _ in range(15):
        writer.land(1)
    is_over = threading.Event()

    def stop():
        while not (committed(run.store) or is_over.wait(0.01)):
            pass
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop)
    watcher.start()
    try:
        run("--max-files", "1", code=1)
    finally:
        is_over.set()
        watcher.join()
    assert "before everything was read" in run.output
    assert 0 < len(run.keys()) < 15
    run()
    assert run.keys() == run.expected()


def test_an_empty_folder_is_a_journal_of_nothing(run):
    run.landing.mkdir()
    assert run()["batches"] == 0
    run(code=1, command="compact")
    assert "has no dataset journal" in run.output


@pytest.mark.parametrize("kind", ["nothing", "a file", "a URL of nothing"])
def test_a_landing_folder_that_is_not_there_is_wrong_usage(run, kind):
    if kind == "a file":
        run.landing.write_text("")
    if kind == "a URL of nothing":
        run.landing = f"file://{run.landing}"
    run(code=2)
    assert "there is no such folder" in run.output


def test_two_at_the_same_root_are_one_too_many(run):
    run.landing.mkdir()
    with exclusive_lock(run.store.files, f"{run.store.folder('journal')}/_ingest.lock", "ingest"):
        run(code=1)
    assert "Another ingest is at work there (process" in run.output
    run()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_segment_of_several_frames_is_read_whole(tmp_path, compression):
    writer = Writer(tmp_path / "landing", compression=compression)
    path = writer.land(3_000)
    packed = path.read_bytes()
    assert sum(last for _, _, last in Unpacking(compression).plain([packed])) > 3
    found = list(parse_segment_lines(pa.py_buffer(packed)))
    assert [record.seq for record in found if isinstance(record, Record)] == list(range(1, 3_001))
