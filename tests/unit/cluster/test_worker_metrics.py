"""What workers leave behind: added up for ever, in a bounded number of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.worker_metrics import KEPT_FILES, Workers
from babelgate.gateway.rates import RatesQuery
from babelgate.observe.events import Event
from babelgate.observe.metrics import catalogue
from babelgate.observe.metrics.instruments import Snapshot, encode, merged
from babelgate.observe.metrics.recorder import Metrics
from tests.harness.world import SIGNER


def snapshot(published: int) -> Snapshot:
    made = Metrics()
    made.observe(Event("accepted", "q", "b", published))
    return made.snapshot() | {catalogue.RECEIVE_WAITERS.otel: {("q", "b"): 5.0}}


@pytest.fixture(scope="module")
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def siblings(tmp_path: Path) -> Workers:
    sockets = SocketDirectory(tmp_path / "peers")
    sockets.open()
    (tmp_path / "workers").mkdir()
    return Workers("f" * 16, tmp_path / "workers", sockets, SIGNER)


async def published(siblings: Workers) -> object:
    """The sum over the others; none of them is there."""
    told = await siblings.read()
    assert (told.up, told.silent) == (0, 0)
    total = merged(told.snapshots)
    assert total.get(catalogue.RECEIVE_WAITERS.otel) is None, "nobody waits at a process that is gone"
    return total.get(catalogue.PUBLISHED.otel, {}).get(("q", "b"), 0.0)


async def test_many_deaths_make_few_files_and_the_sum_stays(siblings: Workers, tmp_path: Path, dead_pid: int) -> None:
    files = tmp_path / "workers"
    total = 0
    for number in range(3 * KEPT_FILES):
        (files / f"{number:016x}-{dead_pid}").write_bytes(encode(snapshot(number)))
        total += number
        assert await published(siblings) == total
        assert await published(siblings) == total
        assert len(list(files.iterdir())) <= KEPT_FILES + 3
    await siblings.close()


async def test_a_death_between_the_sum_and_the_removal_counts_nothing_twice(
    siblings: Workers, tmp_path: Path, dead_pid: int
) -> None:
    files = tmp_path / "workers"
    names = [f"{number:016x}-{dead_pid}" for number in range(KEPT_FILES + 1)]
    for name in names:
        (files / name).write_bytes(encode(snapshot(1)))
    assert await published(siblings) == len(names)
    # As if whoever folded had been killed before it removed the last of them.
    (files / names[-1]).write_bytes(encode(snapshot(1)))
    for _ in range(2):
        assert await published(siblings) == len(names)
    for number in range(KEPT_FILES + 1):
        (files / f"a{number:015x}-{dead_pid}").write_bytes(encode(snapshot(1)))
    for _ in range(2):
        assert await published(siblings) == len(names) + KEPT_FILES + 1
    assert not (files / names[-1]).exists()
    await siblings.close()


async def test_who_still_runs_keeps_its_file(siblings: Workers, tmp_path: Path) -> None:
    """Its socket is gone because it stops; its last numbers are still to come."""
    files = tmp_path / "workers"
    for number in range(KEPT_FILES + 1):
        (files / f"{number:016x}-{os.getpid()}").write_bytes(encode(snapshot(1)))
    assert await published(siblings) == KEPT_FILES + 1
    assert len(list(files.iterdir())) == KEPT_FILES + 1
    await siblings.close()


async def test_what_is_not_readable_is_left_out(siblings: Workers, tmp_path: Path, dead_pid: int) -> None:
    (tmp_path / "workers" / f"{1:016x}-{dead_pid}").write_bytes(b"[[")
    (tmp_path / "workers" / f"{2:016x}-{dead_pid}").write_bytes(encode(snapshot(2)))
    (tmp_path / "workers" / "something else").write_bytes(b"")
    assert await published(siblings) == 2
    await siblings.close()


async def test_without_its_directory_a_worker_is_alone(siblings: Workers, tmp_path: Path) -> None:
    (tmp_path / "workers").rmdir()
    await siblings.write_own(b"[]")
    assert await published(siblings) == 0
    await siblings.close()


async def test_the_rates_of_the_dead_are_missing_and_those_of_who_hangs_are_silent(
    siblings: Workers, tmp_path: Path, dead_pid: int
) -> None:
    files, hanging = tmp_path / "workers", "a" * 16
    assert await siblings.rates(RatesQuery("q")) == ([], 0)
    (files / f"{'d' * 16}-{dead_pid}").write_bytes(encode(snapshot(1)))
    assert await siblings.rates(RatesQuery("q")) == ([], 0)
    # It listens and does not answer.
    other = SocketDirectory(tmp_path / "peers")
    other.open()
    with other.bind(hanging):
        (files / f"{hanging}-{os.getpid()}").write_bytes(encode({}))
        assert await siblings.rates(RatesQuery("q")) == ([], 1)
        # Workers that are dead and had the same process id.
        for number in range(40):
            (files / f"{number:016x}-{os.getpid()}").write_bytes(encode({}))
        assert await siblings.rates(RatesQuery("q")) == ([], 1)
    await siblings.close()


async def test_a_process_without_metrics_is_known_to_the_others(siblings: Workers, tmp_path: Path) -> None:
    await siblings.start()
    assert [path.read_bytes() for path in (tmp_path / "workers").iterdir()] == [encode({})]
    await siblings.close()
