"""The commands that say what happened to a message, against a real gateway with a journal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import program
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import free_port
from tests.harness.terminal import output_of

GONE = f"127.0.0.1:{free_port()}"
LIMIT_SECONDS = 120
Done = subprocess.CompletedProcess[bytes]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    state = tmp_path_factory.mktemp("gateway")
    config = {
        "default": {"broker": "local"},
        "journal": {"landing": str(state / "landed"), "node": "gw", "meta": ["ext.tenant"]},
        "token_keys": [{"id": "k", "secret": "a key that this gateway shares with one that is gone"}],
        "peers": {"listen": f"127.0.0.1:{free_port()}", "addresses": [GONE]},
    }
    with gateway(state, config) as process:
        yield process


def environ(running: GatewayProcess) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    return clean | {"BABELGATE_URL": running.url}


@pytest.fixture
def babelgate(running: GatewayProcess) -> Callable[..., Done]:
    def run(*arguments: str) -> Done:
        done = program.run(*arguments, environ=environ(running))
        assert b"Traceback" not in done.stderr
        return done

    return run


def until(run: Callable[[], Done], condition: Callable[[Done], bool]) -> Done:
    """What ``run`` gives once it meets ``condition``: an event is found a moment after it happened."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition(done := run()):
        assert time.monotonic() < deadline, done
    return done


def is_acked(done: Done) -> bool:
    """Whether ``done`` shows the ack, which is not the ``nacked`` before it."""
    return re.search(rb"\backed\b", done.stdout) is not None


def finished(running: GatewayProcess, queue: str, trace_id: str) -> str:
    """The id of a message that was published to ``queue``, received, given back, received again and acked."""
    with running.client() as client:
        receipt = client.post(f"queues/{queue}/messages", json={"job": "j", "data": {}, "trace_id": trace_id}).json()
        for verb, more in (("nack", {"delay_seconds": 0}), ("ack", {})):
            (message,) = client.post(f"queues/{queue}/messages:receive").json()["messages"]
            settled = {"ack_tokens": [message["ack_token"]], **more}
            client.post(f"queues/{queue}/messages:{verb}", json=settled).raise_for_status()
    return str(receipt["id"])


def test_the_time_line_of_a_message(running: GatewayProcess, babelgate: Callable[..., Done], queue: str) -> None:
    sought = finished(running, queue, "t")
    done = until(lambda: babelgate("message", sought), is_acked)
    assert done.returncode == 0
    message, job, trace, status, empty, heads, *rows = done.stdout.decode().splitlines()
    assert (message, job, trace) == (f"message: {sought}", "job: j", "trace: t")
    assert (status, empty) == (f"status: acked. A consumer of {queue} has finished it.", "")
    assert heads.split("  ")[0] == "TIME (UTC)"
    shown = [row[25:].split() for row in rows]
    assert [[part for part in row if not part.startswith("+") and part not in ("ms", "s")] for row in shown] == [
        ["accepted", queue, "0", "-", "gw"],
        ["delivered", queue, "0", "-", "gw"],
        ["nacked", queue, "0", "-", "gw"],
        ["delivered", queue, "1", "-", "gw"],
        ["acked", queue, "1", "-", "gw"],
    ]
    assert ["+" in row for row in rows] == [False, True, True, True, True], "the time since the event before"
    assert done.stderr.decode() == f"warning: no answer from {GONE}: its events are missing\n"


def test_the_messages_of_a_trace(running: GatewayProcess, babelgate: Callable[..., Done], queue: str) -> None:
    trace_id = f"a trace/of {queue}"
    ids = [finished(running, f"{queue}-{n}", trace_id) for n in range(2)]
    done = until(lambda: babelgate("trace", trace_id), lambda done: done.stdout.count(b"status: acked") == 2)
    lines = done.stdout.decode().splitlines()
    assert lines[:5] == [f"trace: {trace_id}", "messages: 2", "", f"message: {ids[0]}", "job: j"]
    assert f"message: {ids[1]}" in lines
    assert sum(" delivered " in line for line in lines) == 4


@pytest.mark.parametrize("command", ["message", "trace"])
def test_json_is_the_answer(running: GatewayProcess, babelgate: Callable[..., Done], queue: str, command: str) -> None:
    sought = finished(running, queue, trace_id := f"t-{queue}")
    given = (command, sought if command == "message" else trace_id, "--json")
    done = until(lambda: babelgate(*given), is_acked)
    (line,) = done.stdout.splitlines()
    with running.client() as client:
        path = f"messages/{sought}" if command == "message" else f"traces/{trace_id}"
        assert json.loads(line) == client.get(path).json()


def test_events_by_a_member_of_meta(running: GatewayProcess, babelgate: Callable[..., Done], queue: str) -> None:
    with running.client() as client:
        drafts = [{"job": "j", "data": {}, "meta": {"ext": {"tenant": f"{queue} {n % 2}"}}} for n in range(3)]
        answers = [client.post(f"queues/{queue}/messages", json=draft).raise_for_status().json() for draft in drafts]
    given = ("events", "--meta", f"ext.tenant={queue} 0", "--event", "accepted")
    done = until(lambda: babelgate(*given), lambda done: done.stdout.count(b" accepted ") == 2)
    heads, *rows = done.stdout.decode().splitlines()
    assert heads.split() == ["TIME", "(UTC)", "EVENT", "QUEUE", "JOB", "MESSAGE", "GATEWAY"]
    assert [row[25:].split() for row in rows] == [["accepted", queue, "j", answers[n]["id"], "gw"] for n in (2, 0)]
    assert done.stderr.decode() == f"warning: no answer from {GONE}: its events are missing\n"
    (line,) = babelgate(*given, "--limit", "1", "--json").stdout.splitlines()
    assert [each["message_id"] for each in json.loads(line)["events"]] == [answers[2]["id"]]
    refused = babelgate("events", "--meta", "tenant=x")
    assert refused.returncode == 1 and b"journal.meta" in refused.stderr


@pytest.mark.parametrize("sought", ["nobody/has it", ".", "..", "é", "x" * 1_024])
def test_what_is_not_known(babelgate: Callable[..., Done], sought: str) -> None:
    for command in ("message", "trace"):
        done = babelgate(command, sought)
        assert (done.returncode, done.stdout) == (1, b"")
        said = done.stderr.decode()
        assert said.startswith(f"{command}_not_found: No event of the {command} ")
        assert f"babelgate pipeline {command} " in said
        assert f"No answer from {GONE}." in said


def test_a_narrow_terminal_cuts_nothing(running: GatewayProcess, babelgate: Callable[..., Done], queue: str) -> None:
    sought = finished(running, queue, "t")
    until(lambda: babelgate("message", sought), is_acked)
    shown = output_of("message", sought, environ=environ(running), columns=60).decode()
    assert f"queue: {queue}" in shown
    assert shown.count("event: ") == 5


def test_without_a_journal(tmp_path: Path) -> None:
    with gateway(tmp_path, {"default": {"broker": "local"}}) as process:
        done = program.run("message", "x", environ=environ(process))
    assert done.returncode == 1
    assert done.stderr.startswith(b"journal_disabled: ")
