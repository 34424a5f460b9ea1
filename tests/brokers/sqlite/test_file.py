"""Opening a file: whose it is, what version it has, whether it can be written; and the URL that names it."""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.binding import Binding, DeadLetters, Lists, NativeQueue, Outgoing, Peeks, Purges
from babelgate.brokers.sqlite.binding import connect
from babelgate.brokers.sqlite.file import ENCRYPTED, SQL
from babelgate.clock import now_ms
from babelgate.errors import BrokerError, BrokerUnavailable, ConfigError, StorageReadOnly
from tests.brokers.sqlite.support import Line, opened


def binding_of(path: Path, **options: Any) -> Any:
    return connect("local", f"sqlite:///{path}", options, now_ms)


@contextmanager
def nobody() -> Iterator[None]:
    """Without root's power to write everywhere, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may enter, and only its owner may write."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
        directory.chmod(0o755)


@pytest.fixture
def sealed(public: Path) -> Path:
    """A directory that nobody may write."""
    public.chmod(0o555)
    return public


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_it_implements_what_it_promises(tmp_path: Path) -> None:
    binding: Binding = binding_of(tmp_path / "q.db")
    assert all(isinstance(binding, protocol) for protocol in (Peeks, Purges, DeadLetters, Lists))
    assert names(tmp_path) == []


async def test_a_newer_file_is_refused(tmp_path: Path, queue: str) -> None:
    async with opened(tmp_path / "q.db") as binding:
        await Line(binding, queue).publish(b"a")
    newer = ENCRYPTED + 1
    with closing(sqlite3.connect(tmp_path / "q.db")) as other:
        other.execute(f"PRAGMA user_version = {newer}")
    refused = binding_of(tmp_path / "q.db")
    with pytest.raises(ConfigError, match=r"brokers\.local: .*newer than") as caught:
        await refused.open()
    await refused.close()
    assert caught.value.key == "brokers.local"
    with closing(sqlite3.connect(tmp_path / "q.db")) as other:
        assert other.execute("SELECT count(*) FROM messages").fetchone() == (1,)


async def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (a)")
        other.commit()
    before = path.read_bytes()
    refused = binding_of(path)
    with pytest.raises(ConfigError, match="another program"):
        await refused.open()
    await refused.close()
    assert path.read_bytes() == before


async def test_what_is_no_database_is_not_available(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are notes " * 500)
    refused = binding_of(path)
    with pytest.raises(BrokerUnavailable, match="not a database"):
        await refused.open()
    await refused.close()


async def test_a_missing_directory_can_appear_later(tmp_path: Path, queue: str) -> None:
    late = binding_of(tmp_path / "later" / "q.db")
    with pytest.raises(BrokerUnavailable, match="No such file"):
        await late.open()
    (tmp_path / "later").mkdir()
    assert await late.publish(NativeQueue(queue), [Outgoing(b"a")]) == [None]
    await late.close()


async def test_a_read_only_directory(sealed: Path) -> None:
    refused = binding_of(sealed / "q.db")
    with nobody(), pytest.raises(StorageReadOnly):
        await refused.open()
    await refused.close()


async def test_a_read_only_file(public: Path, queue: str) -> None:
    path = public / "q.db"
    async with opened(path) as binding:
        await Line(binding, queue).publish(b"a")
    path.chmod(0o444)
    (public / "q.db-turn").chmod(0o666)
    refused = binding_of(path)
    with nobody():
        with pytest.raises(StorageReadOnly):
            await refused.open()
        with pytest.raises(StorageReadOnly):
            await refused.publish(NativeQueue(queue), [Outgoing(b"b")])
    await refused.close()


async def test_open_and_close_are_idempotent_and_close_leaves_one_file(tmp_path: Path, queue: str) -> None:
    binding = binding_of(tmp_path / "q.db")
    await binding.close()
    await binding.open()
    await binding.open()
    await binding.publish(NativeQueue(queue), [Outgoing(b"a")])
    await binding.stats(NativeQueue(queue))
    await binding.close()
    await binding.close()
    assert names(tmp_path) == ["q.db", "q.db-turn"]
    await binding.open()
    assert (await binding.stats(NativeQueue(queue))).depth == 1
    await binding.close()


async def test_reading_never_creates_a_file(tmp_path: Path, queue: str) -> None:
    binding = binding_of(tmp_path / "q.db")
    with pytest.raises(BrokerError):
        await binding.stats(NativeQueue(queue))
    await binding.close()
    assert names(tmp_path) == []


@pytest.mark.parametrize(("synchronous", "level"), [("full", 0), ("normal", 1)])
async def test_less_than_full_synchronous_is_warned_of(tmp_path: Path, synchronous: str, level: int) -> None:
    binding = binding_of(tmp_path / "q.db", synchronous=synchronous)
    assert len(await binding.warnings()) == level


@pytest.mark.parametrize(
    ("url", "options", "key"),
    [
        ("sqlite://host/q.db", {}, "url"),
        ("sqlite://", {}, "url"),
        ("sqlite:///", {}, "url"),
        ("sqlite:///:memory:", {}, "url"),
        ("sqlite:///q.db?mode=ro", {}, "url"),
        ("sqlite:////srv/", {}, "url"),
        ("sqlite:///q.db", {"journal": "off"}, "journal"),
        ("sqlite:///q.db", {"synchronous": "off"}, "synchronous"),
        ("sqlite:///q.db", {"busy_timeout_seconds": True}, "busy_timeout_seconds"),
        ("sqlite:///q.db", {"busy_timeout_seconds": 0}, "busy_timeout_seconds"),
        ("sqlite:///q.db", {"busy_timeout_seconds": "5"}, "busy_timeout_seconds"),
    ],
)
def test_a_bad_url_or_option_is_refused(url: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect("local", url, options, now_ms)
    assert caught.value.key == key


def test_a_queue_has_no_options(tmp_path: Path) -> None:
    binding = binding_of(tmp_path / "q.db")
    assert binding.native_queue("emails", {}) == NativeQueue("emails")
    with pytest.raises(ConfigError) as caught:
        binding.native_queue("emails", {"layout": "list"})
    assert caught.value.key == "layout"


async def test_a_relative_path_is_that_of_the_start_and_escapes_are_undone(tmp_path: Path) -> None:
    with chdir(tmp_path):
        binding = connect("local", "sqlite:///with%20space.db", {}, now_ms)
    await binding.open()
    await binding.close()
    assert "with space.db" in names(tmp_path)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that takes away nothing."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def owners(directory: Path) -> set[int]:
    return {path.stat().st_uid for path in directory.iterdir()}


def make(path: Path, mode: int, owner: int) -> None:
    path.touch()
    path.chmod(mode)
    os.chown(path, owner, -1)


NAMES = ("q.db", "q.db-shm", "q.db-turn", "q.db-wal")


@pytest.mark.usefixtures("open_umask")
async def test_new_files_are_for_one_user(tmp_path: Path) -> None:
    async with opened(tmp_path / "q.db") as binding:
        await binding.publish(NativeQueue("q"), [Outgoing(b"{}")])
        assert modes(tmp_path) == dict.fromkeys(NAMES, 0o600)


@pytest.mark.parametrize("mode", [0o644, 0o660])
async def test_a_file_that_is_there_keeps_its_mode_and_gives_it_to_the_others(tmp_path: Path, mode: int) -> None:
    """An empty file with another mode is how several users share one."""
    make(tmp_path / "q.db", mode, os.geteuid())
    async with opened(tmp_path / "q.db") as binding:
        await binding.publish(NativeQueue("q"), [Outgoing(b"{}")])
        assert modes(tmp_path) == dict.fromkeys(NAMES, mode)


async def test_what_root_creates_beside_a_file_belongs_to_its_owner(tmp_path: Path) -> None:
    owner = 65534 if os.geteuid() == 0 else os.geteuid()
    make(tmp_path / "q.db", 0o600, owner)
    async with opened(tmp_path / "q.db"):
        assert owners(tmp_path) == {owner}


def test_no_placeholder_has_a_number():
    """Python 3.12.0 to 3.12.3 takes a numbered one for a named one, and warns: values of such come by name."""
    assert [name for name, statement in SQL.items() if re.search(r"\?\d", statement)] == []
