"""kill -9 while messages are sent: of the command, of its Python workers, of the gateway. Every message arrives once.

``BABELGATE_TEST_KILLS=10`` kills ten times per test; the default is once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from tests.harness.gateway import GatewayProcess, gateway
from tests.pipeline.conftest import CONF
from tests.pipeline.sending import Sends, body, drained, write

KILLS = int(os.environ.get("BABELGATE_TEST_KILLS", "1"))
RATE = 100
AT_ONCE = 3
"""So many blows a job survives that hit its workers: a task that was tried four times fails it."""


def enough(blows: int) -> int:
    """Messages that take long enough for so many blows."""
    return RATE * 5 + RATE * 3 * (blows - 1)


COUNT = enough(KILLS)

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900 + 300 * KILLS)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway(tmp_path) as process:
        yield process


def given(tmp_path: Path, count: int = COUNT) -> list[str]:
    """Arguments of a run that lasts."""
    path = write(tmp_path / "in", *(body(number) for number in range(count)))
    return ["backfill", str(path), "--from", "bodies", "--max-rate", str(RATE), "--parallelism", "2"]


def arrived(gateway: GatewayProcess) -> int:
    with gateway.client() as client:
        return int(client.get("/queues/q").json()["stats"]["depth"])


def wait_for(gateway: GatewayProcess, more_than: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """Until more than so many have arrived."""
    deadline = time.monotonic() + 300
    while arrived(gateway) <= more_than:
        assert time.monotonic() < deadline, "nothing arrives"
        assert process is None or process.poll() is None, "it has ended"
        time.sleep(0.05)


def missed(gateway: GatewayProcess) -> None:
    """Until somebody has called the gateway that is gone; it could be back between two calls."""
    with socket.create_server(("127.0.0.1", httpx.URL(gateway.url).port or 0)) as nobody:
        nobody.settimeout(120)
        nobody.accept()[0].close()


def test_of_the_command(running: GatewayProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "babelgate", "pipeline", *given(tmp_path), "--url", running.url]
    command += ["--lake", str(tmp_path / "out"), "--master", "local[2]"]
    command += [part for key, value in CONF.items() for part in ("--conf", f"{key}={value}")]
    for _ in range(KILLS):
        before = arrived(running)
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(running, before + RATE // 2, process)
            time.sleep(random.uniform(0, 0.3))
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
            process.wait()
    at_the_end = arrived(running)
    assert at_the_end < COUNT, "it was killed too late"
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"{COUNT} messages: " in ended.stdout
    assert drained(running, "q") == {f"id-{number}": 1 for number in range(COUNT)}


def test_of_its_workers(spark, running: GatewayProcess, tmp_path: Path) -> None:
    sends = Sends(spark, tmp_path)
    sends.url = running.url
    struck = []

    def strike() -> None:
        before = arrived(running)
        wait_for(running, before + RATE // 4)
        # Those that are at work, and perhaps one that waits for work.
        for victim in workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                struck.append(victim.pid)

    for number, blows in enumerate(min(KILLS - dealt, AT_ONCE) for dealt in range(0, KILLS, AT_ONCE)):
        count = enough(blows)
        _while(strike, partial(sends, *given(tmp_path, count), "--run-id", f"run-{number}"), blows)
        assert sum(line["status"] in ("accepted", "replayed") for line in sends.ledger()) == count
        assert drained(running, "q") == {f"id-{number}": 1 for number in range(count)}
    assert len(struck) >= KILLS


def test_of_the_gateway(spark, running: GatewayProcess, tmp_path: Path) -> None:
    sends = Sends(spark, tmp_path)
    sends.url = running.url

    def strike() -> None:
        before = arrived(running)
        wait_for(running, before + RATE // 4)
        time.sleep(random.uniform(0, 0.3))
        running.kill()
        missed(running)
        running.start()

    _while(strike, lambda: sends(*given(tmp_path)))
    lines = sends.ledger()
    assert {line["status"] for line in lines} <= {"accepted", "replayed"}
    assert any(line["attempts"] > 1 for line in lines), "the blow hit nothing"
    assert drained(running, "q") == {f"id-{number}": 1 for number in range(COUNT)}


def _while(strike: Callable[[], None], run: Callable[[], object], blows: int = KILLS) -> None:
    """``strike`` so often while ``run`` runs, which has to end well."""

    def strike_all() -> None:
        for _ in range(blows):
            strike()

    with ThreadPoolExecutor(1) as pool:
        striking = pool.submit(strike_all)
        run()
        assert striking.done(), "the blows came too late"
        striking.result()


def workers() -> list[psutil.Process]:
    """Spark's Python workers of this process: the children of its daemons."""
    below = psutil.Process().children(recursive=True)
    daemons = [each for each in below if _is_daemon(each)]
    pids = {each.pid for each in daemons}
    return [each for each in daemons if each.ppid() in pids]


def _is_daemon(process: psutil.Process) -> bool:
    # One that has just ended has no command line.
    with contextlib.suppress(psutil.NoSuchProcess):
        return "pyspark.daemon" in " ".join(process.cmdline())
    return False
