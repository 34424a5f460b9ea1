"""Runs the examples of the README, of docs/api.md, of docs/configuration.md and of docs/redis.md as they are written.

Only addresses are replaced by those of this test's own servers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from babelqueue import EnvelopeCodec

from babelgate.cli import startup
from babelgate.config import settings
from babelgate.server.wiring import resolve
from tests.brokers.redis.harness import redis_server
from tests.harness.gateway import gateway
from tests.harness.operations import DOCUMENT
from tests.harness.pages import GATEWAY_URL, PAGES, blocks, shell
from tools import openapi_generator

ROOT = Path(__file__).resolve().parents[2]
REDIS_URL = "redis://127.0.0.1:6379/0"


def shape(value: Any) -> Any:
    """A JSON value with its scalars replaced by their types: members and their order remain."""
    if isinstance(value, dict):
        return [(key, shape(member)) for key, member in value.items()]
    return [shape(item) for item in value] if isinstance(value, list) else type(value)


def test_quick_start(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        printed = shell(blocks("Quick start", "sh"), process.url, tmp_path)
    shown = [json.loads(block) for block in blocks("Quick start", "json")]
    published, received, settled = [json.loads(text) for text in printed]
    assert [shape(value) for value in (published, received, settled)] == [shape(value) for value in shown]
    assert received["messages"][0]["envelope"]["meta"]["id"] == published["id"]
    assert settled == shown[2]


def test_the_envelope_is_one() -> None:
    """The SDK writes it so, to the byte."""
    (shown,) = re.findall(r"^```json\n(\{\n.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    envelope = json.loads(shown)
    assert EnvelopeCodec.accepts(envelope)
    assert EnvelopeCodec.encode(envelope) == json.dumps(envelope, separators=(",", ":"))
    assert shape(envelope) == shape(EnvelopeCodec.make(envelope["job"], envelope["data"]))


def test_it_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_from_python(tmp_path: Path) -> None:
    (program,) = blocks("From your language", "python")
    with gateway(tmp_path) as process:
        done = subprocess.run(
            [sys.executable, "-c", program.replace(GATEWAY_URL, process.url)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "clients/python/src")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stdout == "ada@example.com\n", done.stderr
        with process.client() as client:
            assert client.get("/queues/emails").json()["stats"]["in_flight"] == 0


def test_your_brokers(tmp_path: Path) -> None:
    path = tmp_path / "babelgate.yaml"
    path.write_text(blocks("Your brokers", "yaml")[0])
    router = resolve(settings.load(path, {}))
    assert (router.route("orders.new").broker, router.route("orders.new").policy.max_attempts) == ("rabbit", 5)
    assert router.route("anything").broker == "local"


def test_the_walk_through_of_the_api(tmp_path: Path) -> None:
    headings = ("Publish many", "Settle", "Dead letters", "Look before you publish")
    with gateway(tmp_path) as process:
        printed = shell([block for heading in headings for block in blocks(heading, "sh")], process.url, tmp_path)
    published, settled, dead, shown = [json.loads("[" + part.replace("}{", "},{") + "]") for part in printed]
    assert published[0]["accepted"] == 2
    assert [each["settled"] for each in settled] == [1, 1]
    assert [letter["error"] for letter in dead[0]["dead_letters"]] == ["no such mailbox"]
    assert (dead[1]["letter_id"], dead[1]["edited"]) == (dead[0]["dead_letters"][0]["letter_id"], True)
    assert (dead[2]["redriven"], dead[2]["complete"]) == (0, True)
    assert [write["target"]["table"] for write in shown[0]["writes"]] == ["messages", "held"]


def test_it_names_the_generator_that_the_tests_use() -> None:
    assert (
        f"openapi-generator-cli-{openapi_generator.VERSION}.jar generate -g go -i {GATEWAY_URL}/openapi.json" in PAGES
    )


def test_the_lines_that_serve_prints_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What ``make run`` shows is what a newcomer pastes: publish, receive, ack, in this order, without editing."""
    with gateway(tmp_path) as process:
        startup.greet(process.url, settings.load(None, {}))
        greeting = capsys.readouterr().err
        lines = re.findall(r"^\s*(?:publish|receive|ack)\s+(.*curl.*)$", greeting, re.M)
        assert len(lines) == 3, greeting
        published, received, settled = [json.loads(text) for text in shell(lines, process.url, tmp_path)]
    assert received["messages"][0]["envelope"]["meta"]["id"] == published["id"]
    assert settled["settled"] == 1


def test_redis_in_two_minutes(tmp_path: Path) -> None:
    """Published with curl, consumed with the SDK, which publishes what curl receives."""
    heading = "Redis in two minutes"
    publish, receive = blocks(heading, "sh")
    with redis_server() as server:
        config = yaml.safe_load(blocks(heading, "yaml")[0].replace(REDIS_URL, server.url()))
        with gateway(tmp_path, config) as process:
            shell([publish], process.url, tmp_path)
            consumer = blocks(heading, "python")[0].replace(REDIS_URL, server.url())
            consumed = subprocess.run([sys.executable, "-c", consumer], capture_output=True, text=True, timeout=120)
            assert consumed.stdout == "sending to ada@example.com\n", consumed.stderr
            (received,) = shell([receive], process.url, tmp_path)
    (message,) = json.loads(received)["messages"]
    assert message["envelope"]["job"] == "urn:babel:emails:sent"
    assert message["envelope"]["data"] == {"to": "ada@example.com"}


def test_configuration_example(tmp_path: Path) -> None:
    path = tmp_path / "babelgate.yaml"
    path.write_text(blocks("An example", "yaml")[0])
    router = resolve(settings.load(path, {}))
    assert router.route("emails").policy.backoff_seconds == (1, 10, 60)
    assert router.route("orders.new").native.name == "shop.orders.new"
    assert router.route("anything").broker == "local"


def test_the_api_table_and_the_document_name_the_same_paths() -> None:
    (section,) = (part for part in PAGES.split("\n## ") if part.startswith("Paths\n"))
    shown = set(re.findall(r"`(?:(?:GET|POST) )?(/[^`?]*)`", section))
    assert shown == set(DOCUMENT["paths"]) | {"/openapi.json", "/docs"}
