"""No text of others controls a terminal: each command shows hostile answers, arguments and files."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx
import pytest
from rich.console import Console

from babelgate.cli.main import cli
from babelgate.cli.top import screen_of as screen_of_top
from babelgate.pipeline.find.render import render_message, render_trace
from babelgate.pipeline.find.search import (
    FoundMessage,
    MessageEvent,
    MissingRecords,
    QueueState,
    SearchResult,
    SearchScope,
)
from tests.harness import program
from tests.harness.hostile_text import FORGED, HOSTILE, assert_harmless
from tests.harness.local import free_port
from tests.harness.terminal import output_of, terminal

pytestmark = pytest.mark.slow

X = HOSTILE
_LETTER = dict.fromkeys(("letter_id", "id", "job", "reason", "error", "queue"), X) | {"failed_at": 1, "attempts": X}
_JOB = dict.fromkeys(("id", "state", "to_queue", X), X) | {"redriven": X, "failed": 0, "started_at": 1, "updated_at": 2}
_FAILED = {"letter_id": X, "index": 0, "status": 409, "code": X, "detail": X}
_MESSAGE = {
    "ack_token": X,
    "headers": {X: X},
    "attempts": 1,
    "envelope": {"job": X, "data": {X: [X]}, "meta": {"id": X}, "attempts": 1},
}
_EVENT = dict.fromkeys(("event", "queue", "attempts", "outcome", "to_queue", "node"), X) | {"at": 1}
_STATUS = dict.fromkeys(("message_id", "trace_id", "job", "status", "detail"), X) | {"events": [_EVENT, _EVENT]}
_SEARCHED = {"next_cursor": X, "searched": {"silent": [X]}}
_FIGURES = dict.fromkeys(("published", "dead_lettered", "lease_expired", "broker_errors"), X) | {
    "publish_p99_seconds": None,
    "delivery_p99_seconds": 0.1,
}
_SPEEDS = dict.fromkeys((f"{name}_per_second" for name in ("published", "delivered", "acked")), 1.5)
_COUNTS = dict.fromkeys(("depth", "in_flight", "dead"), X) | {"oldest_age_seconds": 1.5}
RATES: dict[str, Any] = {
    **_SPEEDS,
    "processes": {"up": X, "silent": X},
    "hour": _FIGURES,
    "queues": [{**_SPEEDS, "queue": X, "broker": X, "stats": _COUNTS}],
    "brokers": [{"broker": X, "circuit": X}],
    "attention": [{"detail": X}],
}
ANSWERS: dict[str, Any] = {
    "/messages": {"id": X, "trace_id": X, "queue": X, "broker": X},
    "/messages:batch": {"accepted": 0, "failed": 1, "results": [_FAILED]},
    "/messages:validate": {X: X, "headers": {X: {X: [X, {X: X}]}}},
    "/messages:receive": {"messages": [_MESSAGE]},
    "/messages:peek": {"messages": [_MESSAGE]},
    "/messages:settle": {"settled": 0, "failed": 1, "results": [_FAILED]},
    "/queues": {"queues": [{"queue": X, "broker": X, "source": X, "stats": {"depth": X}}]},
    "/messages/": _STATUS | _SEARCHED,
    "/traces/": {"trace_id": X, "messages": [_STATUS]} | _SEARCHED,
    "/brokers": {
        "brokers": [dict.fromkeys(("broker", "kind", "url", "detail"), X) | {"up": 0, "required": 1, "warnings": [X]}]
    },
    "/rates": RATES,
    ":purge": {"removed": X},
    "/dead-letters:purge": {"removed": X},
    "/dead-letters": {"dead_letters": [_LETTER], "next_cursor": None},
    "/dead-letters/": {X: X, "record": {X: {X: [X]}}},
    "/dead-letters:delete": {"removed": X, "failed": 1, "results": [_FAILED]},
    "/dead-letters:redrive": {
        "dry_run": False,
        "matched": X,
        "redriven": X,
        "failed": 1,
        "errors": [_FAILED],
        "errors_omitted": X,
    },
    ":redrive": {"to_queue": X, "id": X},
    "/redrives": {"redrives": [_JOB]},
    "/redrives/": _JOB,
}
"""Answers by what follows the queue in the path."""
PROBLEM = {"code": X, "detail": X, "errors": [{"pointer": X, "code": X, "detail": X + "."}]}


def encoded(value: object) -> bytes:
    """JSON with DEL, C1 and format characters as they are, which JSON permits."""
    return json.dumps(value, ensure_ascii=False).encode()


class Hostile(BaseHTTPRequestHandler):
    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        status, content = 422, encoded(PROBLEM)
        if not path.startswith("/refuses/"):
            action = path.removeprefix(f"/queues/{quote(X, safe='')}")
            if action.startswith("/dead-letters/"):
                action = ":redrive" if action.endswith(":redrive") else "/dead-letters/"
            elif action.startswith(("/redrives/", "/messages/", "/traces/")):
                action = f"/{action.split('/')[1]}/"
            status, content = 200, encoded(ANSWERS[action])
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def leaves(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, *path, name)
    else:
        yield path, command


COMMANDS = dict(leaves(cli))
ENDS: dict[tuple[str, ...], list[str]] = {("tail",): ["--max", "1"], ("purge",): ["--yes"], ("top",): ["--once"]}
"""Options without which a command waits."""


def with_a_file(parameter: click.Parameter) -> bool:
    return isinstance(parameter.type, click.File | click.Path)


def runs(path: tuple[str, ...], command: click.Command, file: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Ways to call a command, in which each value is hostile: those that run it, and those that may be wrong usage."""
    given = [*path, *ENDS.get(path, ())]
    options = [each for each in command.params if isinstance(each, click.Option) and not each.is_flag]
    for option in options:
        if option.name in ("config", "lake"):
            given += [option.opts[0], str(file)]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    values = [str(file) if with_a_file(each) else X for each in arguments]
    required = [value for each, value in zip(arguments, values, strict=True) if each.required or with_a_file(each)]
    right = [[*given, "--", *required]]
    if values != required:
        right.append([*given, "--", *values])
    if any("--json" in each.opts for each in command.params):
        right.append([*given, "--json", "--", *required])
    texts = [each for each in options if each.type is click.STRING and each.name not in ("config", "lake", "url")]
    wrong = [[*given, *(part for each in texts for part in (each.opts[0], X)), "--", *required]]
    wrong += [[*given, option.opts[0], X, "--", *required] for option in options if option not in texts]
    wrong += [[*given, f"--{X}", "--", *required], [*given, "--", *values, X, X]]
    return right, wrong


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_command_shows_text_only(url: str, path: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / X
    file.parent.mkdir()
    file.write_bytes(encoded({"job": X, "data": {X: X}}) + b"\n" + encoded({"job": X, "data": {X: X}}) + b"\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    right, wrong = runs(path, COMMANDS[path], file)
    # The commands of the pipeline start Spark only with a URL of HTTP.
    ways = {f"ftp://{X}": right + wrong}
    if path[0] != "pipeline":
        ways = {url: right + wrong, f"{url}/refuses": right, "http://127.0.0.1:1": right[:1]}
    for base, calls in ways.items():
        for arguments in calls:
            assert_harmless(output_of(*arguments, environ=clean | {"BABELGATE_URL": base, "TERM": "xterm"}))


def test_groups_show_text_only() -> None:
    for arguments in ([X], [f"--{X}"], ["pipeline", X], ["dead-letters", f"--{X}"], ["dead-letters", X]):
        written = output_of(*arguments, environ=dict(os.environ))
        assert FORGED in written.decode()
        assert_harmless(written)


def test_values_of_messages_are_shown(url: str) -> None:
    written = output_of("dead-letters", "show", X, X, environ={**os.environ, "BABELGATE_URL": url}).decode()
    for escape in (
        r"\u001b]0;title\u0007\u009b2J",
        r"\u007f",
        r"\u202e",
        r"\u2066",
        r"\u2028",
        r"\u061c",
        "[red]x[/red]",
    ):
        assert escape in written


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 60), (20, 5)])
def test_the_screen_of_top_shows_text_only(columns: int, lines: int) -> None:
    shown = io.StringIO()
    screen = Console(file=shown, force_terminal=True, width=columns, height=lines)
    screen.print(screen_of_top(X, RATES, X, lines))
    assert_harmless(shown.getvalue().replace("\n", "\r\n").encode())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["receive", X], _MESSAGE),
        (["receive", X, "--envelope"], _MESSAGE["envelope"]),
        (["dead-letters", "list", X], _LETTER),
        (["dead-letters", "show", X, X], ANSWERS["/dead-letters/"]),
        (["queues"], ANSWERS["/queues"]["queues"][0]),
    ],
    ids=["message", "envelope", "letters", "letter", "queues"],
)
def test_json_on_a_terminal_is_the_json_of_a_pipe(url: str, arguments: list[str], expected: object) -> None:
    environ = {**os.environ, "BABELGATE_URL": url}
    piped = program.run(*arguments, "--json", environ=environ)
    assert piped.stdout == encoded(expected) + b"\n"
    written = output_of(*arguments, "--json", environ=environ)
    assert json.loads(written) == expected
    assert_harmless(written)


@pytest.mark.parametrize(("log_format", "workers"), [("console", 1), ("console", 2), ("json", 1), ("json", 2)])
def test_the_log_of_a_server_shows_text_only(tmp_path: Path, log_format: str, workers: int) -> None:
    port = free_port()
    name = f"\x1b]0;title\x07\x9b2J\x1b[8;5m\x7f\u202e\u2028\n{FORGED}"
    token = {"name": name, "sha256": sha256(b"a-token").hexdigest(), "rights": {"*": ["send"]}}
    config = {"port": port, "workers": workers, "auth": {"tokens": [token]}}
    config |= {"log_format": log_format, "access_log": True}
    path = tmp_path / "babelgate.yaml"
    path.write_text(json.dumps(config))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    with terminal("serve", "--config", str(path), environ=environ, directory=tmp_path) as shown:
        shown.until("starting")
        for asked in (f"/{quote(X)}", f"/queues/{quote(X)}/messages:peek", "/queues/last"):
            httpx.get(f"http://127.0.0.1:{port}{asked}", headers={"authorization": "Bearer a-token"})
        shown.until("/queues/last")
        shown.process.send_signal(signal.SIGINT)
        shown.ended()
    assert FORGED in shown.shown
    assert_harmless(shown.written)


def test_an_unexpected_error_shows_text_only() -> None:
    """A traceback quotes the error, and a warning its text."""
    code = (
        "import warnings\nfrom babelgate.terminal import guard_output\n"
        f"guard_output()\nwarnings.warn({X!r})\nraise OSError({X!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=120)
    assert done.stderr.count(b"[red]x[/red]\\u001b[8;5m") == 2
    assert done.stderr.replace(b"\n", b"").decode().isprintable()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("state", ["waiting", X])
def test_found_messages_show_text_only(state: str) -> None:
    """What the journal has is shown in colours, past the guard of the streams."""
    event = MessageEvent(0, 1, X, X, X, 1, 1.0, X, f"{X}.", X)
    found = FoundMessage(X, X, X, X, 0, 1, [QueueState(X, state, 0, 1, X)], [event])
    answer = SearchResult([found], SearchScope(1, 1, 0, 1), True, [MissingRecords(X, X, 1, 0, 1)], True)
    screen = Screen()
    render_message(answer, screen)
    render_trace(answer, X, screen)
    assert "\x1b[1m" in screen.getvalue()
    assert "[red]x[/red]" in screen.getvalue()
    assert_harmless(screen.getvalue().encode())
