"""Servers that all workers share: who may, what they must not do, and that no server is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness import sharing
from tests.harness.local import eventually


@dataclass
class Toy:
    """A server that another process can use."""

    home: Path
    port: int = 1

    def stop(self) -> None:
        """End it."""


def toy(name: str, reason: BaseException | None = None) -> Any:
    """A broker whose server notes its end in its directory; or that does not start, for a reason."""

    class ToyBroker:
        kind = name

        @staticmethod
        @contextmanager
        def serve(directory: Path, *, durable: bool = False) -> Iterator[Toy]:
            if reason is not None:
                raise reason
            yield Toy(directory)
            ended.append(name)

    return ToyBroker


ended: list[str] = []


@pytest.mark.parametrize(
    ("nodeid", "shares"),
    [
        ("tests/brokers/kafka/test_contract.py::TestSettle::test_an_ack[kafka]", True),
        ("tests/brokers/sqs/test_contract.py::TestSettle::test_an_ack[sqs]", True),
        ("tests/brokers/sqs/test_contract.py::TestSettle::test_an_ack[sqs-moto]", False),
        ("tests/brokers/kafka/test_contract.py::TestHung::test_a_call_ends_in_its_time[kafka]", False),
        ("tests/brokers/kafka/test_contract.py::TestLife::test_an_outage_is_seen[kafka]", False),
        ("tests/brokers/kafka/test_message.py::test_a", True),
        ("tests/brokers/pulsar/test_browse.py::test_a", True),
        ("tests/brokers/kafka/test_retry.py::test_a", False),
        ("tests/brokers/test_network.py::TestNetwork::test_a[kafka]", False),
        ("tests/e2e/test_kill.py::test_one_gateway[pulsar]", True),
        ("tests/e2e/test_outages.py::test_a[pulsar]", False),
    ],
)
def test_who_shares(nodeid: str, shares: bool) -> None:
    assert sharing.shares(nodeid) == shares


def test_a_server_is_found_by_others_and_ends_with_all() -> None:
    ended.clear()
    servers = sharing.SharedServers()
    try:
        assert sharing.find(servers.directory, "kafka") is None
        servers.start([toy("sqs"), toy("kafka")])
        found = sharing.find(servers.directory, "kafka")
        assert found is not None and found.port == 1
        assert servers.is_ready("kafka") and servers.is_ready("sqs")
        assert sharing.find(servers.directory, "pulsar") is None
        with pytest.raises(AssertionError, match=r"stop\(\) disturbs tests that share the server"):
            found.stop()
        assert ended == []
    finally:
        servers.close()
    assert ended == ["kafka", "sqs"]
    assert not servers.directory.exists()


@pytest.mark.parametrize("reason", [RuntimeError("it did not start"), pytest.skip.Exception("no JRE")])
def test_why_there_is_no_server_is_what_a_test_is_told(reason: BaseException) -> None:
    servers = sharing.SharedServers()
    try:
        servers.start([toy("kafka", reason), toy("sqs")])
        for _ in range(2):
            with pytest.raises(type(reason), match=str(reason)):
                sharing.find(servers.directory, "kafka")
        assert sharing.find(servers.directory, "sqs") is not None
    finally:
        servers.close()


def interruptible(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """A process that SIGINT interrupts, whatever this one does."""
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with output.open("wb") as log:
            root = Path(__file__).parents[2]
            return subprocess.Popen(command, cwd=root, stdout=log, stderr=subprocess.STDOUT)
    finally:
        signal.signal(signal.SIGINT, ignored)


def command_of(process: psutil.Process) -> str:
    """Its command line; empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_no_server_is_left_by_a_run_that_is_interrupted(sent: signal.Signals, tmp_path: Path) -> None:
    tests = "tests/brokers/servicebus/test_contract.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n2",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path}/base",
        tests,
    ]
    run = interruptible(command, tmp_path / "output")
    found: Mapping[int, psutil.Process] = {}

    def has_server() -> bool:
        nonlocal found
        assert run.poll() is None
        children = psutil.Process(run.pid).children(recursive=True)
        found = {each.pid: each for each in children}
        return any("tools.servicebus_emulator" in command_of(each) for each in children)

    try:
        await eventually(has_server)
        os.kill(run.pid, sent)
        await asyncio.to_thread(run.wait)
        await eventually(lambda: not any(each.is_running() for each in found.values()))
    finally:
        for each in found.values():
            if each.is_running():
                each.kill()
        run.kill()
        run.wait()
