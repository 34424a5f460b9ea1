"""Locks exclude others, on files and directories, until they are closed. A directory has one name by any path."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from babelgate.runtime.files import FileLock, identity


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
    waiting.join(5)
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
