"""The jobs of the profile ``pipeline`` run beside a gateway as the compose file says, and make a report.

Gateway and jobs are processes, with the environment and the commands of their containers. Only the folder of the shared
volume is another one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.harness import spark_jvm
from tests.harness.gateway import gateway
from tools import compose

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "docker" / "pipeline"
JOBS = ("ingest", "metrics", "report")
DAILY = {"compact": "Compacted ", "maintain": "Removed "}
"""What each of the daily jobs prints in its first run."""
PATIENCE_SECONDS = 480
MESSAGES = 7


@contextmanager
def container(words: list[str], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The entry point of the image with these words, in a session of its own; killed with the block, or with the
    process that runs the tests."""
    command = ["setpriv", "--pdeathsig", "KILL", str(ENTRY), *words]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=os.environ | environ, stdout=file, stderr=file, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(condition: Callable[[], bool], *logs: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [log.read_text() for log in logs]
        time.sleep(0.2)


def program(directory: Path, script: str) -> dict[str, str]:
    """An environment in which ``babelgate`` is this shell script."""
    path = directory / "babelgate"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


def test_a_command_is_repeated_also_after_a_failure_until_it_is_stopped(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    environ = program(tmp_path, f'echo "$@" >>{runs}; exit 1')
    log = tmp_path / "log"
    with container(["every", "0.01", "report", "--lake", "a b"], environ, log) as process:
        until(lambda: runs.is_file() and len(runs.read_text().splitlines()) >= 3, log)
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert set(runs.read_text().splitlines()) == {"pipeline report --lake a b"}


def test_the_end_waits_for_the_command_that_runs(tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"
    script = f"trap 'touch {ended}; exit 0' TERM; touch {started}; while :; do sleep 0.05; done"
    log = tmp_path / "log"
    with container(["every", "1", "metrics"], program(tmp_path, script), log) as process:
        until(started.exists, log)
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert ended.exists()


@pytest.mark.slow
@pytest.mark.spark
def test_the_profile_measures_what_passes_the_gateway(tmp_path: Path) -> None:
    found = compose.services("docker-compose.yml", profiles=("pipeline",))
    variables = {
        name: value.replace("/data/", f"{tmp_path}/data/")
        for name, value in found["gateway"]["environment"].items()
        if name.startswith(("BABELGATE_JOURNAL__", "BABELGATE_CONSOLE__"))
    }
    scripts = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JDK_JAVA_OPTIONS": spark_jvm.OPTIONS,
    }
    own = tmp_path / "state"
    own.mkdir()
    with gateway(own, environ=variables) as process, process.client() as client:
        for number in range(MESSAGES):
            draft = {"job": "urn:babel:orders:placed", "data": {"number": number}}
            assert client.post("/queues/compose-profile/messages", json=draft).status_code == 201
        commands = {
            name: [re.sub("^60$", "20", word).replace("/data/", f"{tmp_path}/data/") for word in found[name]["command"]]
            for name in (*JOBS, *DAILY)
        }
        logs = [tmp_path / f"{name}.log" for name in JOBS]
        first, second, third = (container(commands[name], scripts, log) for name, log in zip(JOBS, logs, strict=True))
        with first as ingest, second as metrics, third as reports:
            until(lambda: "compose-profile" in client.get("/console/report").text, *logs)
            for job in (ingest, metrics, reports):
                job.terminate()
            assert [job.wait(PATIENCE_SECONDS) for job in (ingest, metrics, reports)] == [0, 0, 0]
    for name, printed in DAILY.items():
        assert commands[name][0] == "every" and 86_400 <= int(commands[name][1]) <= 90_000
        log = tmp_path / f"{name}.log"
        with container(commands[name], scripts, log) as job:
            until(partial(_has, log, printed), log)
            job.terminate()
            assert job.wait(PATIENCE_SECONDS) == 0


def _has(log: Path, printed: str) -> bool:
    return printed in log.read_text()
