"""What a person at a terminal sees of ``serve``: a summary when it starts, and one line when it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.brokers.redis.harness import redis_server
from tests.harness.local import free_port
from tests.harness.pages import commands_work
from tests.harness.terminal import Terminal, terminal

pytestmark = pytest.mark.slow


@contextmanager
def serve(directory: Path, config: object, *arguments: str, **variables: str) -> Iterator[Terminal]:
    path = directory / "babelgate.yaml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False))
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BABELGATE_")} | variables
    with terminal("serve", "--config", str(path), *arguments, environ=environ, directory=directory) as shown:
        yield shown


def refused(shown: Terminal) -> str:
    """The only line that a start that failed has printed."""
    assert shown.ended() == 1, shown.shown
    (line,) = shown.shown.splitlines()
    return line


@pytest.mark.redis
@pytest.mark.parametrize("workers", [1, 2])
def test_the_summary_says_what_runs_and_what_to_try(tmp_path: Path, workers: int) -> None:
    port = free_port()
    with redis_server() as redis:
        config = {
            "brokers": {"local": "sqlite:///x.db", "cache": redis.url(), "gone": "redis://user:hunter2@127.0.0.1:1/0"},
            "queues": {"emails": {"broker": "cache", "lease_seconds": 30}, "gone.*": {"broker": "gone"}},
            "default": {"broker": "local"},
            "port": port,
            "workers": workers,
        }
        with serve(tmp_path, config) as shown:
            text = shown.until("starting")
            url = f"http://127.0.0.1:{port}"
            for expected in (
                rf"console +{url}/console\n",
                rf"docs +{url}/docs\n",
                rf"metrics +{url}/metrics\n",
                r"local +sqlite:///x.db +SQLite \d+\.\d+\S* +up\n",
                r"cache +redis://\S+ +Redis \d+\.\d+\S* +up\n",
                r"gone +redis://\S+ +down: .*127.0.0.1:1",
                r"emails +→ +cache +lease 30 s, 10 attempts\n",
                r"gone\.\* +→ +gone ",
                r"\(any other\) +→ +local ",
                r"no auth is configured",
                r"cache: .*appendfsync",
            ):
                assert re.search(expected, text), text
            assert "hunter2" not in text
            assert "Waiting for application startup" not in text
            commands = [line.split(None, 1)[1] for line in text.splitlines() if " curl " in line]
            commands_work(commands, tmp_path)
            shown.process.send_signal(signal.SIGINT)
            assert shown.ended() == 0


def test_many_routes_are_not_all_shown(tmp_path: Path) -> None:
    config = {"queues": {f"q{number}": {"broker": "local"} for number in range(30)}, "port": 0}
    with serve(tmp_path, config) as shown:
        text = shown.until("starting")
    assert "q19 " in text
    assert "q20 " not in text
    assert "… and 10 more" in text


def test_quiet_prints_no_summary(tmp_path: Path) -> None:
    with serve(tmp_path, {"port": 0}, "--quiet") as shown:
        assert "Brokers" not in shown.until("starting")


def test_a_second_instance_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serve(tmp_path, {"port": port}) as shown:
            line = refused(shown)
    assert line.startswith(f"host: cannot listen on 127.0.0.1:{port}: Address already in use. End the program")
    assert "--port" in line


def test_a_locked_file_says_what_to_do(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "babelgate.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        local = {"url": "sqlite:///babelgate.db", "timeout_seconds": 1}
        with serve(tmp_path, {"brokers": {"local": local}, "port": 0}) as shown:
            line = refused(shown)
    finally:
        other.close()
    assert line.startswith("brokers.local.url: other processes kept the file locked for 1 s. End the program")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("${env:NOT_THERE}", "the environment variable NOT_THERE is not set; set it, or write the value here"),
        ("${file:/nowhere/secret}", "the file /nowhere/secret cannot be read: No such file or directory; create it"),
    ],
)
def test_a_missing_secret_says_what_to_do(tmp_path: Path, reference: str, words: str) -> None:
    with serve(tmp_path, f"brokers:\n  r: 'redis://:{reference}@h'\n") as shown:
        line = refused(shown)
    assert line.startswith(f"brokers.r: {words}")
