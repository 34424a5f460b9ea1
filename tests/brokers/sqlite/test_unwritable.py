"""A file that cannot be written any more while it is served: readiness finds it, and its end."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.errors import BrokerUnavailable, StorageReadOnly
from tests.brokers.sqlite.support import Line, opened
from tests.harness.ci import missing
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import eventually

DRAFT = {"job": "urn:babel:test:made", "data": {}}

Broken = Callable[[Path], Any]
"""A context in which the file in this directory cannot be used."""


@contextmanager
def immutable(directory: Path) -> Iterator[None]:
    """Nobody can write to the files, root and open descriptors included."""
    files = [str(directory / f"q.db{suffix}") for suffix in ("", "-wal", "-turn")]
    if subprocess.run(["chattr", "+i", *files], capture_output=True).returncode:
        missing("a file system with immutable files", "run the tests as root on ext4, xfs or tmpfs")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], check=True)


@contextmanager
def read_only_mount(directory: Path) -> Iterator[None]:
    """A file system that may only be read, with a copy of the files, takes the place of the directory."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    command = ["mount", "--bind", "--options", "ro", str(copy), str(directory)]
    if subprocess.run(command, capture_output=True).returncode:
        missing("a mount of the test's own", "run the tests as root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextmanager
def removed(directory: Path) -> Iterator[None]:
    away = directory.rename(directory.with_name("away"))
    yield
    away.rename(directory)


@contextmanager
def replaced(directory: Path, make: Callable[[Path], object]) -> Iterator[None]:
    """Another file takes the place of the file, which ``make`` makes."""
    away = directory.rename(directory.with_name("away"))
    directory.mkdir()
    make(directory / "q.db")
    yield
    shutil.rmtree(directory)
    away.rename(directory)


def another_program(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def no_database(directory: Path) -> Any:
    return replaced(directory, lambda path: path.write_bytes(b"no database" * 1000))


def foreign(directory: Path) -> Any:
    return replaced(directory, another_program)


def lines(process: GatewayProcess) -> list[str]:
    """The events that were logged about brokers, without the reminders of a long outage."""
    found = process.logged()
    wanted = [line for line in found if line["logger"] == "babelgate.gateway.outages" or line["level"] == "error"]
    return [line["event"] for line in wanted if "still" not in line["event"]]


@pytest.mark.parametrize("broken", [immutable, read_only_mount, removed, foreign, no_database])
async def test_readiness_finds_it_and_its_end(tmp_path: Path, broken: Broken) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    brokers = {"local": {"url": f"sqlite:///{directory / 'q.db'}", "required": True}}
    config = {"brokers": brokers, "default": {"broker": "local"}}
    with gateway(tmp_path, config) as process, process.client() as client:

        def publish() -> int:
            return client.post("/queues/q/messages", json=DRAFT).status_code

        def is_up() -> bool:
            return 'babelgate_broker_up{broker="local"} 1' in client.get("/metrics").text

        assert publish() == 201
        await eventually(is_up)
        with broken(directory):
            assert publish() in (503, 504)
            await eventually(lambda: not process.is_ready())
            await eventually(lambda: not is_up())
            assert publish() == 503
            assert [event for event in lines(process) if event != "storage refuses"] == ["broker lost"]
        await eventually(process.is_ready)
        await eventually(is_up)
        await eventually(lambda: publish() == 201)
        await eventually(lambda: "broker back" in lines(process))
        assert [event for event in lines(process) if event != "storage refuses"] == ["broker lost", "broker back"]


async def test_a_ping_finds_it_without_a_publish(tmp_path: Path, queue: str) -> None:
    async with opened(tmp_path / "q.db") as binding:
        await Line(binding, queue).publish(b"first")
        with immutable(tmp_path):
            for error in (BrokerUnavailable, StorageReadOnly):
                with pytest.raises(error):
                    await binding.ping()
        await binding.ping()
        await Line(binding, queue).publish(b"second")
        assert await Line(binding, queue).bodies() == [b"first", b"second"]


async def test_a_ping_writes_seldom(tmp_path: Path) -> None:
    async with opened(tmp_path / "q.db") as binding:
        await binding.ping()
        size = (tmp_path / "q.db-wal").stat().st_size
        for _ in range(50):
            await binding.ping()
        assert (tmp_path / "q.db-wal").stat().st_size == size
