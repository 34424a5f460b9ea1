"""Locks exclude others, on files and directories, until they are closed. A directory has one name by any path. What one
process writes to a shared file, each of them reads as a whole."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import msgspec
import pytest

from babelgate.errors import StateUnavailable
from babelgate.runtime.files import FileLock, StateFile, identity


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, create_mode=0o600) as first, FileLock(path, create_mode=0o600) as second:
        assert first.try_acquire() and not second.try_acquire()
    with FileLock(path) as third:
        assert third.try_acquire()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_directory(tmp_path: Path) -> None:
    with FileLock(tmp_path) as first, FileLock(tmp_path) as second:
        first.acquire()
        assert not second.try_acquire()


def test_acquire_waits(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path), FileLock(tmp_path)
    first.acquire()
    waiting = threading.Thread(target=second.acquire)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    first.close()
    waiting.join(60)
    assert not waiting.is_alive()
    second.close()


def test_a_missing_path_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_removed_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, create_mode=0o600) as lock:
        assert lock.is_current()
        path.unlink()
        assert not lock.is_current()
        path.touch()
        assert not lock.is_current()


def test_a_directory_has_one_name_by_any_path(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(one)
    assert identity(one) == identity(tmp_path / "link") == identity(other / ".." / "one")
    assert identity(one) != identity(other)


def test_a_directory_that_is_not_there_has_a_name(tmp_path: Path) -> None:
    assert identity(tmp_path / "a") == identity(tmp_path / "a") != identity(tmp_path / "b")


def state_file(tmp_path: Path) -> StateFile[list[int]]:
    return StateFile(
        tmp_path / "state" / "numbers.json", msgspec.json.Decoder(list[int]), list, "is no list of numbers"
    )


def test_a_change_is_news_to_each_process(tmp_path: Path) -> None:
    one, other = state_file(tmp_path), state_file(tmp_path)
    assert (one.read(), one.news()) == ([], None)
    assert one.change(lambda numbers: [*numbers, 1]) == [1]
    assert (tmp_path / "state" / "numbers.json").stat().st_mode & 0o777 == 0o600
    assert other.change(lambda numbers: [*numbers, 2]) == [1, 2]
    for file in (one, other):
        assert (file.news(), file.news()) == ([1, 2], None)
    one.change(lambda numbers: numbers)
    assert other.news() is None, "nothing new was written"
    (tmp_path / "state" / "numbers.json").unlink()
    assert (one.news(), one.news()) == ([], None)


def test_a_change_that_raises_leaves_the_file(tmp_path: Path) -> None:
    file = state_file(tmp_path)
    file.change(lambda numbers: [1])

    def fail(numbers: list[int]) -> list[int]:
        numbers.append(2)
        raise KeyError

    with pytest.raises(KeyError):
        file.change(fail)
    assert file.change(lambda numbers: numbers) == [1]


def test_what_was_not_read_well_is_news_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, path = state_file(tmp_path), tmp_path / "state" / "numbers.json"
    file.change(lambda numbers: [1])

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        for read in (file.read, file.news):
            with pytest.raises(StateUnavailable, match="Input/output error"):
                read()
    assert (file.news(), file.news()) == ([1], None)
    for damaged in ("[1", '["a"]', "[" * 10_000):
        path.write_text(damaged)
        for _ in range(2):
            with pytest.raises(StateUnavailable, match=r"numbers\.json is no list of numbers: "):
                file.news()
    path.write_text("[2]")
    assert file.news() == [2]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateUnavailable):
        state_file(tmp_path).change(lambda numbers: [1])
