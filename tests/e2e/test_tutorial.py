"""The tutorial with curl and with Python, as its pages are written, and what its pages must have.

tests/clients has the other languages, and tests/console the page of the console.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness import tutorial
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.pages import shell
from tests.harness.tutorial import ADA, FOLDER, NAMES, RABBIT_URL, Reader

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(FOLDER.glob("[0-9]-*.md"))
LABELS = ["curl", "Python", "TypeScript", "Go", "Java", "C#", "PHP"]
_TABS = re.compile(r"(?:<details(?: open)?><summary>[^<]+</summary>\n\n```\w+\n.*?^```\n\n</details>\n)+", re.M | re.S)
_TAB = re.compile(r"<details(?P<open> open)?><summary>(?P<label>[^<]+)</summary>")


def _reader(process: GatewayProcess, folder: Path) -> Reader:
    commands: dict[str, list[str | Path]] = {}
    for name, text in tutorial.programs("python", process.url).items():
        (folder / f"{name}.py").write_text(text)
        commands[name] = [sys.executable, folder / f"{name}.py"]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "clients/python/src"), "PYTHONUNBUFFERED": "1"}
    return Reader(commands, folder, environ, process.url)


def _answers(printed: str) -> list[dict[str, Any]]:
    """The JSON objects that a block has printed, one after the other."""
    decoder, found = json.JSONDecoder(), []
    while printed := printed.strip():
        answer, end = decoder.raw_decode(printed)
        found.append(answer)
        printed = printed[end:]
    return found


@pytest.fixture
def process(tmp_path: Path) -> Iterator[GatewayProcess]:
    (tmp_path / "state").mkdir()
    with gateway(tmp_path / "state") as started:
        yield started


def test_python(process: GatewayProcess, tmp_path: Path) -> None:
    reader = _reader(process, tmp_path)
    try:
        reader.first_message()
        reader.crash()
        reader.dead_letter()
    finally:
        reader.close()


def test_a_first_message_with_curl_and_from_the_command_line(process: GatewayProcess, tmp_path: Path) -> None:
    published, received, printed = shell(tutorial.blocks("1-first-message", "sh"), process.url, tmp_path)
    message, settled = _answers(received)
    assert message["messages"][0]["envelope"]["meta"]["id"] == json.loads(published)["id"]
    assert settled["settled"] == 1
    assert "grace@example.com" in printed


def test_a_crash_with_curl(process: GatewayProcess, tmp_path: Path) -> None:
    crashed, again = shell(tutorial.blocks("2-crash", "sh"), process.url, tmp_path)
    (_, lost), (found, settled) = _answers(crashed), _answers(again)
    (first,), (second,) = lost["messages"], found["messages"]
    assert (first["attempts"], second["attempts"]) == (0, 1)
    assert first["envelope"]["meta"] == second["envelope"]["meta"]
    assert settled["settled"] == 1


def test_a_dead_letter_with_curl(process: GatewayProcess, tmp_path: Path) -> None:
    _, shown, back = shell(tutorial.blocks("3-dead-letter", "sh"), process.url, tmp_path)
    (letter,) = _answers(shown)
    assert (letter["reason"], letter["error"]) == ("failed", "ada is no address")
    assert letter["record"]["data"] == {"to": "ada"}
    redriven, received, settled = _answers(back)
    assert (redriven["letter_id"], redriven["edited"]) == (letter["letter_id"], True)
    assert received["messages"][0]["envelope"]["data"] == {"to": ADA}
    assert settled["settled"] == 1


@pytest.mark.rabbitmq
def test_the_same_on_rabbitmq(rabbit: RabbitServer, tmp_path: Path) -> None:
    """Published with curl, consumed with the SDK, which publishes what curl receives."""
    name = f"tutorial-{uuid.uuid4().hex}"
    rabbit.add_vhost(name)
    try:
        (config,) = tutorial.blocks("4-rabbitmq", "yaml")
        given = yaml.safe_load(config.replace(RABBIT_URL, rabbit.url(name)))
        given["brokers"]["local"] = f"sqlite:///{tmp_path}/babelgate.db"
        publish, receive = tutorial.blocks("4-rabbitmq", "sh")
        (program,) = tutorial.blocks("4-rabbitmq", "python")
        with gateway(tmp_path, given) as process:
            _reader(process, tmp_path).first_message()
            assert shell([publish], process.url, tmp_path) == ["rabbit"]
            consumer = program.replace(RABBIT_URL, rabbit.url(name))
            done = subprocess.run([sys.executable, "-c", consumer], capture_output=True, text=True, timeout=120)
            assert done.stdout == f"sending to {ADA}\n", done.stderr
            (received,) = shell([receive], process.url, tmp_path)
        (message,) = json.loads(received)["messages"]
        assert (message["envelope"]["job"], message["envelope"]["data"]) == ("urn:babel:emails:sent", {"to": ADA})
    finally:
        if rabbit.is_running:
            rabbit.delete_vhost(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_for_whom_it_is_and_what_one_has_in_the_end(page: Path) -> None:
    beginning = " ".join(page.read_text("utf-8").splitlines()[2:6])
    assert "**For** " in beginning and "**In the end** " in beginning


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tabs_have_all_languages_and_the_first_one_is_open(page: Path) -> None:
    text = page.read_text("utf-8")
    groups = [_TAB.findall(group) for group in _TABS.findall(text)]
    assert [label for group in groups for _, label in group] == [label for _, label in _TAB.findall(text)]
    for group in groups:
        assert [label for _, label in group] == LABELS
        assert [bool(opened) for opened, _ in group] == [True] + [False] * (len(LABELS) - 1)


@pytest.mark.parametrize("page", [FOLDER / "README.md", *PAGES], ids=lambda page: page.stem)
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert [line for line in lines if len(line) > 100] == []


def test_each_language_has_all_programs() -> None:
    for kind in ("python", "typescript", "go", "java", "csharp", "php"):
        assert tuple(tutorial.programs(kind, "http://127.0.0.1:1")) == NAMES
