"""``babelgate top`` and ``babelgate open``: what a person and a program see of a running gateway."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness import program
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import free_port
from tests.harness.terminal import output_of, terminal

pytestmark = pytest.mark.slow

DRAFT = {"job": "urn:babel:test:made", "data": {}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    directory = tmp_path_factory.mktemp("gateway")
    config = {
        "brokers": {"local": f"sqlite:///{directory}/x.db", "gone": "redis://127.0.0.1:1/0"},
        "queues": {"gone.*": {"broker": "gone"}},
        "default": {"broker": "local"},
    }
    with gateway(directory, config) as process:
        yield process


@pytest.fixture
def environ(running: GatewayProcess) -> dict[str, str]:
    hidden = ("BABELGATE_", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return clean | {"BABELGATE_URL": running.url, "TERM": "xterm"}


def publish(running: GatewayProcess, queue: str, times: int) -> None:
    with httpx.Client(base_url=running.url, timeout=60) as client:
        for _ in range(times):
            client.post(f"/queues/{queue}/messages", json=DRAFT).raise_for_status()


def reject(running: GatewayProcess, queue: str) -> None:
    with httpx.Client(base_url=running.url, timeout=60) as client:
        [message] = client.post(f"/queues/{queue}/messages:receive").raise_for_status().json()["messages"]
        asked = {"ack_tokens": [message["ack_token"]]}
        client.post(f"/queues/{queue}/messages:reject", json=asked).raise_for_status()


def test_once_prints_queues_circuits_and_what_needs_attention(running: GatewayProcess, environ: dict[str, str]) -> None:
    publish(running, "once", 3)
    reject(running, "once")
    done = program.run("top", environ=environ)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith(running.url)
    assert "processes: 1 up, 0 silent" in text
    # Queue, broker, three rates, ready, in flight, dead, and an age with its unit.
    assert re.search(r"^once +local +\d+\.\d +\d+\.\d +0\.0 +2 +0 +1 +\S+ \w+$", text, re.MULTILINE), text
    assert "circuits: gone " in text
    assert "! New dead letters of the queue 'once' within the last hour: 1. All of them: 1." in text
    assert program.run("top", "--once", environ=environ).stdout.count(b"once") >= 2


def test_json_is_the_answer_of_the_api(running: GatewayProcess, environ: dict[str, str]) -> None:
    publish(running, "json", 1)
    done = program.run("top", "--json", "--limit", "1", environ=environ)
    shown = json.loads(done.stdout)
    assert len(shown["queues"]) == 1
    assert shown.keys() == httpx.get(f"{running.url}/rates", timeout=60).json().keys()


def test_a_narrow_terminal_gets_all_figures(running: GatewayProcess, environ: dict[str, str]) -> None:
    publish(running, "narrow", 1)
    text = output_of("top", "--once", environ=environ, columns=40).decode()
    assert "queue: narrow" in text
    assert "in flight: 0" in text


def test_a_terminal_shows_what_changes_until_q(
    running: GatewayProcess, environ: dict[str, str], tmp_path: Path
) -> None:
    size = {"COLUMNS": "160", "LINES": "40"}
    with terminal("top", "--every", "0.1", environ=environ | size, directory=tmp_path) as shown:
        shown.until("q quits")
        publish(running, "later", 1)
        shown.until("later")
        shown.types("x")
        publish(running, "latest", 1)
        shown.until("latest")
        assert not shown.edits_lines()
        shown.types("q")
        assert shown.ended() == 0
        assert shown.edits_lines()
        # The screen is that of before.
        assert b"\x1b[?1049h" in shown.written
        assert b"\x1b[?1049l" in shown.written
        assert b"Traceback" not in shown.written


def test_a_gateway_that_goes_away_is_said_and_found_again(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path, {"port": free_port()})
    try:
        environ = {**os.environ, "BABELGATE_URL": process.start().url, "COLUMNS": "160", "LINES": "40", "TERM": "xterm"}
        with terminal("top", "--every", "0.1", environ=environ, directory=tmp_path) as shown:
            shown.until("q quits")
            process.stop()
            shown.until("no answer from")
            process.start()
            publish(process, "again", 1)
            shown.until("again")
            shown.types("q")
            assert shown.ended() == 0
    finally:
        process.close()


def test_open_prints_the_address_without_its_password(environ: dict[str, str]) -> None:
    for url, console in (
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/console"),
        ("https://user:hunter2@gate.example/mq/", "https://gate.example/mq/console"),
    ):
        done = program.run("open", "--url", url, environ=environ)
        assert (done.returncode, done.stdout.decode()) == (0, f"{console}\n")
    assert program.run("open", "--url", "nonsense", environ=environ).returncode == 2


def test_open_starts_a_browser_only_when_asked(environ: dict[str, str], tmp_path: Path) -> None:
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    environ |= {"BROWSER": f"{browser} %s"}
    program.run("open", environ=environ)
    assert not opened.exists()
    done = program.run("open", "--browser", environ=environ)
    assert (done.returncode, opened.read_bytes()) == (0, done.stdout)
    # A command that fails opens nothing.
    done = program.run("open", "--browser", environ=environ | {"BROWSER": "false %s", "PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == b"no browser could be started: open the address yourself\n"
