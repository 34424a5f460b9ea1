"""The files of open segments: whole lines only, whoever dies when; and whose they are."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from babelgate.observe.events import Facts
from babelgate.observe.journal.buffer import Buffer
from babelgate.observe.journal.record import new_epoch, parse_segment
from babelgate.observe.journal.segments import SegmentLock, Segments, first_at, orphans, trim
from tests.harness.journal import happened, kept, numbers, records

EPOCH = new_epoch(1_700_000_000_000, b"abcd")
OWNER = f"a-{EPOCH}"


def some_lines(count: int = 3) -> bytes:
    buffer = Buffer("a", EPOCH, 1_000_000, lambda: 1_700_000_000_000)
    buffer.observe(happened("acked", *[Facts(message_id=str(number)) for number in range(count)]))
    return bytes(buffer.take())


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows larger: a disk that is full, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Writing:
    """Segments over a directory, and a clock in seconds that the test sets."""

    def __init__(self, directory: Path) -> None:
        self.now = 0.0
        self.closed: list[str] = []
        self.segments = Segments(
            directory, "a", EPOCH, 1_000, 60, lambda path: self.closed.append(path.name), lambda: self.now
        )


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "open")


def test_a_file_is_closed_by_its_size(tmp_path: Path, writing: Writing) -> None:
    for _ in range(3):
        writing.segments.append(some_lines(2))
        writing.segments.close_due()
    assert writing.closed == [f"{OWNER}-000001.ndjson"]
    assert [path.name for path in kept(tmp_path / "open")] == [
        f"{OWNER}-000001.ndjson",
        f"{OWNER}-000002.ndjson.open",
    ]
    assert len(records(tmp_path / "open" / f"{OWNER}-000001.ndjson")) == 4


def test_a_file_is_closed_by_its_age_and_an_idle_process_has_none(tmp_path: Path, writing: Writing) -> None:
    writing.segments.append(some_lines())
    writing.now = 59.9
    writing.segments.close_due()
    assert writing.closed == []
    writing.now = 60
    for _ in range(2):
        writing.segments.close_due()
    writing.segments.close()
    assert [path.name for path in kept(tmp_path / "open")] == writing.closed == [f"{OWNER}-000001.ndjson"]


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, writing: Writing) -> None:
    writing.segments.append(some_lines())
    size = len(some_lines())
    for _ in range(2):
        with files_of_at_most(size + 100), pytest.raises(OSError):
            writing.segments.append(some_lines())
    (path,) = kept(tmp_path / "open")
    assert path.read_bytes() == some_lines()
    writing.segments.append(some_lines())
    assert path.read_bytes() == some_lines() * 2


def test_a_disk_that_was_full_from_the_start_leaves_no_empty_segment(tmp_path: Path, writing: Writing) -> None:
    with files_of_at_most(100), pytest.raises(OSError):
        writing.segments.append(some_lines())
    writing.now = 60
    writing.segments.close_due()
    assert writing.closed == [] and kept(tmp_path / "open") == []
    writing.segments.append(some_lines())
    writing.segments.close()
    assert writing.closed == [f"{OWNER}-000002.ndjson"]


def test_a_file_that_cannot_be_closed_does_not_end_the_journal(tmp_path: Path, writing: Writing) -> None:
    """close(2) may tell of an earlier write that failed."""
    writing.segments.append(some_lines())
    (path,) = kept(tmp_path / "open")
    os.close(next(int(each.name) for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each) == str(path)))
    with pytest.raises(OSError):
        writing.segments.close()
    writing.segments.append(some_lines())
    writing.segments.close()
    assert writing.closed == [f"{OWNER}-000002.ndjson"]
    assert numbers(records(path)) == [1, 2, 3], "it lands with the next start"


def test_only_its_owner_reads_an_open_file(tmp_path: Path, writing: Writing) -> None:
    writing.segments.append(some_lines())
    (path,) = kept(tmp_path / "open")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize(
    ("end", "cut"),
    [
        (b"", 0),
        (b'{"v":1,"node":"a"', 17),
        (b"\0" * 4096, 4096),
        (b"\0" * 100 + b"\n" + b"\xff\n" + b"torn", 107),
        (some_lines(1)[5:], len(some_lines(1)) - 5),
    ],
)
def test_the_end_is_cut_off_behind_the_last_record(tmp_path: Path, end: bytes, cut: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(some_lines() + end)
    assert trim(path) == cut
    assert path.read_bytes() == some_lines()


@pytest.mark.parametrize("text", [b"", b"torn", b"\0" * 4096, b"no record\n"])
def test_nothing_is_left_where_nothing_is_whole(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(text)
    assert trim(path) == len(text)
    assert path.read_bytes() == b""


def test_garbage_before_a_record_stays_for_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"garbage\n" + some_lines())
    assert trim(path) == 0
    segment = parse_segment(f"{OWNER}-000001.ndjson")
    assert segment is not None and first_at(path, segment) == 1_700_000_000_000, "that of the start of the process"


def test_what_a_dead_process_left_is_closed(tmp_path: Path) -> None:
    first, second, third, part = (
        tmp_path / f"{OWNER}-{name}"
        for name in ("000001.ndjson", "000002.ndjson.open", "000003.ndjson.open", "000001.ndjson.gz.part")
    )
    first.write_bytes(some_lines())
    second.write_bytes(some_lines() + b"torn")
    third.write_bytes(b"")
    part.write_bytes(b"half")
    ((claim, paths),) = orphans(tmp_path)
    assert claim.owner == OWNER
    assert [path.name for path in paths] == [first.name, f"{OWNER}-000002.ndjson"]
    assert [numbers(records(path)) for path in paths] == [[1, 2, 3]] * 2
    assert list(orphans(tmp_path)) == [], "one adopts it, and no other"
    for path in paths:
        path.unlink()
    claim.release()
    assert list(tmp_path.iterdir()) == []


def test_a_living_process_keeps_its_files(tmp_path: Path) -> None:
    claim = SegmentLock.take(tmp_path, OWNER)
    path = tmp_path / f"{OWNER}-000001.ndjson.open"
    path.write_bytes(some_lines() + b"under way")
    assert claim is not None
    assert list(orphans(tmp_path)) == []
    assert path.read_bytes().endswith(b"under way")


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys, signal; from pathlib import Path; from babelgate.observe.journal.segments import SegmentLock\n"
        f"assert SegmentLock.take(Path(sys.argv[1]), {OWNER!r}); print('taken', flush=True); signal.pause()"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"taken\n"
        assert SegmentLock.take(tmp_path, OWNER) is None
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    claim = SegmentLock.take(tmp_path, OWNER)
    assert claim is not None
    claim.release()


def test_the_lock_of_a_process_that_left_nothing_goes_away(tmp_path: Path) -> None:
    (tmp_path / f"{OWNER}.lock").touch()
    (tmp_path / "somebody else's").touch()
    assert list(orphans(tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["somebody else's"]


def test_a_lock_file_that_was_removed_meanwhile_is_nobodys(tmp_path: Path) -> None:
    first = SegmentLock.take(tmp_path, OWNER)
    assert first is not None
    os.unlink(tmp_path / f"{OWNER}.lock")
    second = SegmentLock.take(tmp_path, OWNER)
    assert second is not None
    assert SegmentLock.take(tmp_path, OWNER) is None


def test_a_process_that_starts_gets_its_claim_whoever_looks_for_orphans(tmp_path: Path) -> None:
    """Another may find the lock's file before it is locked, hold it, and remove it because nothing was written yet."""
    looking = SegmentLock.take(tmp_path, OWNER)
    assert looking is not None
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(SegmentLock.own, tmp_path, OWNER)
        assert not wait([starting], 0.05).done, "it waits, and does not go on without"
        looking.release()
        claim = starting.result(60)
    (tmp_path / f"{OWNER}-000001.ndjson.open").write_bytes(some_lines())
    assert list(orphans(tmp_path)) == [], "what it writes is nobody else's"
    claim.release()
