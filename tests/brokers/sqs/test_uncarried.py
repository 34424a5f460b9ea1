"""What Amazon SQS cannot carry is refused as the client's mistake, with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.sqs.message import entry
from babelgate.brokers.sqs.queue import queue_of
from babelgate.config import settings
from babelgate.errors import UnsupportedByBroker
from babelgate.server.server import uvicorn_config
from tests.harness.broker import Server
from tests.harness.sockets import serving
from tests.harness.ways import Served

pytestmark = pytest.mark.sqs

DRAFT: dict[str, Any] = {"job": "urn:babel:orders:created", "data": {}}


@pytest.fixture(params=[True, False], ids=["direct", "application"])
def caller(request: pytest.FixtureRequest, elastic: Server, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a gateway with the queues of SQS, and ``local.*`` on SQLite."""
    path = tmp_path / "babelgate.yaml"
    brokers = {
        "aws": {"url": elastic.url(), "timeout_seconds": 30},
        "local": {"url": f"sqlite:///{tmp_path}/a.db", "timeout_seconds": 30},
    }
    routes = {"local.*": {"broker": "local"}}
    config = {"brokers": brokers, "queues": routes, "default": {"broker": "aws", "create": "missing"}}
    path.write_text(yaml.safe_dump(config | {"state_dir": str(tmp_path)}))
    found = settings.load(path, {})
    with (
        serving(uvicorn_config(Served(found, direct=request.param).build, found)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}/queues", timeout=60) as client,
    ):
        yield client


def refused(answer: httpx.Response, code: str, pointer: str) -> str:
    """Check a refusal; the sentence."""
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (422, code, False), answer.text
    assert [each["pointer"] for each in problem["errors"]] == [pointer]
    detail: str = problem["detail"]
    return detail


def with_data(data: object) -> dict[str, Any]:
    return DRAFT | {"data": data}


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        ({"note": "a\ufffeb"}, "/data/note"),
        ({"list": [{"a": 1}, {"deep/er": ["x", "\uffff"]}]}, "/data/list/1/deep~1er/1"),
        ({"huge": 10**40, "one": "\uffff", "two": "\ufffe"}, "/data/one"),
        ({"plain": 1, "na\ufffeme": 2}, "/data/na\ufffeme"),
    ],
)
def test_a_character_that_xml_does_not_allow(
    caller: httpx.Client, queue: str, data: dict[str, Any], pointer: str
) -> None:
    character = "U+FFFF" if "\uffff" in json.dumps(data, ensure_ascii=False) else "U+FFFE"
    for verb in ("", ":validate"):
        answer = caller.post(f"/{queue}/messages{verb}", json=with_data(data))
        assert character in refused(answer, "character_unsupported", pointer)
        wrapped = caller.post(f"/{queue}/messages{verb}", json={"envelope": with_data(data), "delay_seconds": 1})
        assert character in refused(wrapped, "character_unsupported", f"/envelope{pointer}")
    assert caller.post(f"/{queue}/messages", json=with_data({"tab": "\t\x01\x7f"})).status_code == 201
    (kept,) = caller.post(f"/{queue}/messages:receive?wait_seconds=10").json()["messages"]
    assert kept["envelope"]["data"] == {"tab": "\t\x01\x7f"}, "controls are escaped in JSON"


def test_a_batch_refuses_the_entry_alone(caller: httpx.Client, queue: str) -> None:
    bad = with_data({"x": "\ufffe"})
    entries = [DRAFT, bad, {"envelope": DRAFT, "headers": {"a": "\uffff"}}, {"envelope": bad}, DRAFT]
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in entries)
    for answer in (
        caller.post(f"/{queue}/messages:batch", json=entries),
        caller.post(
            f"/{queue}/messages:batch", content=lines.encode(), headers={"Content-Type": "application/x-ndjson"}
        ),
    ):
        results = answer.json()["results"]
        assert [each["status"] for each in results] == [201, 422, 422, 422, 201]
        assert [each["errors"][0]["pointer"] for each in results[1:4]] == ["/data/x", "/headers/a", "/envelope/data/x"]
        assert [each["code"] for each in results[1:4]] == ["character_unsupported"] * 3


@pytest.mark.parametrize(
    ("headers", "code", "name"),
    [
        ({"ok": "x", "bad name": "x"}, "header_unsupported", "bad name"),
        ({"AWS.x": "y"}, "header_unsupported", "AWS.x"),
        ({"mark": "\ufffe"}, "character_unsupported", "mark"),
    ],
)
def test_a_header_that_is_no_attribute(
    caller: httpx.Client, queue: str, headers: dict[str, str], code: str, name: str
) -> None:
    answer = caller.post(f"/{queue}/messages", json={"envelope": DRAFT, "headers": headers})
    refused(answer, code, f"/headers/{name}")


def test_a_letter_that_is_sent_on_stays_where_it_is(caller: httpx.Client, queue: str) -> None:
    source = f"local.{queue}"
    caller.post(f"/{source}/messages", json=with_data({"x": "\ufffe"})).raise_for_status()
    (message,) = caller.post(f"/{source}/messages:receive?wait_seconds=10").json()["messages"]
    caller.post(f"/{source}/messages:reject", json={"ack_tokens": [message["ack_token"]]}).raise_for_status()
    result = caller.post(f"/{source}/dead-letters:redrive", json={"to_queue": queue}).json()
    assert (result["redriven"], result["failed"]) == (0, 1)
    assert [each["code"] for each in result["errors"]] == ["character_unsupported"]
    assert len(caller.get(f"/{source}/dead-letters").json()["dead_letters"]) == 1


@pytest.mark.parametrize(
    ("edit", "pointer"),
    [
        ({"data": {"x": "\ufffe"}}, "/edit/data/x"),
        ({"body": with_data({"x": "\ufffe"})}, "/edit/body/data/x"),
        ({"body": {"envelope": with_data({"x": "\ufffe"})}}, "/edit/body/envelope/data/x"),
    ],
)
def test_an_edited_letter_is_refused_with_the_place_in_its_edit(
    caller: httpx.Client, queue: str, edit: dict[str, Any], pointer: str
) -> None:
    caller.post(f"/{queue}/messages", json=DRAFT).raise_for_status()
    (message,) = caller.post(f"/{queue}/messages:receive?wait_seconds=10").json()["messages"]
    caller.post(f"/{queue}/messages:reject", json={"ack_tokens": [message["ack_token"]]}).raise_for_status()
    (letter,) = caller.get(f"/{queue}/dead-letters").json()["dead_letters"]
    answer = caller.post(f"/{queue}/dead-letters/{letter['letter_id']}:redrive", json={"edit": edit})
    refused(answer, "character_unsupported", pointer)


def test_a_body_that_is_no_json_has_no_place() -> None:
    foreign = Outgoing('{"a": \ufffe'.encode(), is_envelope=False)
    with pytest.raises(UnsupportedByBroker) as refusal:
        entry(queue_of("q", {}), foreign)
    assert refusal.value.facts["pointer"] == ""
