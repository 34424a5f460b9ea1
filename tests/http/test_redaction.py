"""Redaction by HTTP: who looks sees a marker, on both ways, and who receives gets the body."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.privacy.redaction import MARKER
from babelgate.server.server import uvicorn_config
from tests.harness.journal import read
from tests.harness.local import authorities, wait_for
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served

SECRET = "4111-1111-1111-1111"
BODY: dict[str, Any] = {"job": "pay", "data": {"card": {"number": SECRET, "kind": "visa"}, "n": 1}}
HIDDEN: dict[str, Any] = {"card": {"number": MARKER, "kind": "visa"}, "n": 1}


@pytest.fixture(scope="module", params=["direct", "application"])
def state(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("state")
    file = {"url": f"sqlite:///{directory}/babelgate.db", "timeout_seconds": 30}
    route = {"broker": "local", "redact": ["/data/card/number", "/meta/ext/shop/person"], "max_attempts": 1}
    config = {
        "state_dir": str(directory),
        "brokers": {"local": file},
        "queues": {"pay*": route, "*": {"broker": "local"}},
        "journal": {"landing": str(directory / "landing"), "bodies": True, "meta": ["ext.shop.person"]},
    }
    path = directory / "babelgate.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    loaded = settings.load(path, {})
    served = Served(loaded, direct=request.param == "direct")
    with (
        serving(uvicorn_config(served.build, loaded)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", timeout=60, verify=authorities()) as client,
    ):
        yield client, directory


@pytest.fixture
def gateway(state):
    return state[0]


def publish(gateway, queue, body=BODY):
    return gateway.post(f"/queues/{queue}/messages", json=body).raise_for_status().json()["id"]


def receive(gateway, queue):
    (message,) = gateway.post(f"/queues/{queue}/messages:receive", json={}).raise_for_status().json()["messages"]
    return message


def bury(gateway, queue):
    """A dead letter of a message with the secret; returns its id."""
    publish(gateway, queue)
    token = receive(gateway, queue)["ack_token"]
    gateway.post(f"/queues/{queue}/messages:reject", json={"ack_tokens": [token]}).raise_for_status()
    (letter,) = gateway.get(f"/queues/{queue}/dead-letters").raise_for_status().json()["dead_letters"]
    assert letter["record"]["data"] == HIDDEN
    return letter["letter_id"]


def test_a_peek_is_redacted_and_a_receive_is_not(gateway):
    publish(gateway, "pay-1")
    (seen,) = gateway.get("/queues/pay-1/messages:peek").json()["messages"]
    assert seen["envelope"]["data"] == HIDDEN
    message = receive(gateway, "pay-1")
    assert message["envelope"]["data"] == BODY["data"]
    page = gateway.get("/console/queues/pay-1").text
    assert SECRET not in page
    publish(gateway, "other")
    assert gateway.get("/queues/other/messages:peek").json()["messages"][0]["envelope"]["data"] == BODY["data"]


def test_an_edit_of_other_members_keeps_the_value(gateway):
    letter = f"/queues/pay-2/dead-letters/{bury(gateway, 'pay-2')}"
    assert gateway.get(letter).json()["record"]["data"] == HIDDEN
    assert gateway.post(f"{letter}:redrive", json={"edit": {"data": HIDDEN | {"n": 2}}}).status_code == 200
    assert receive(gateway, "pay-2")["envelope"]["data"] == BODY["data"] | {"n": 2}
    letter = f"/queues/pay-3/dead-letters/{bury(gateway, 'pay-3')}"
    whole = gateway.get(letter).json()["record"]
    del whole["dead_letter"]
    whole["data"]["n"] = 3
    assert gateway.post(f"{letter}:redrive", json={"edit": {"body": whole}}).status_code == 200
    assert receive(gateway, "pay-3")["envelope"]["data"] == BODY["data"] | {"n": 3}


def test_a_marker_that_stands_for_nothing_is_refused(gateway):
    publish(gateway, "pay-4", {"job": "pay", "data": {"n": 1}})
    token = receive(gateway, "pay-4")["ack_token"]
    gateway.post("/queues/pay-4/messages:reject", json={"ack_tokens": [token]}).raise_for_status()
    (found,) = gateway.get("/queues/pay-4/dead-letters").json()["dead_letters"]
    letter = f"/queues/pay-4/dead-letters/{found['letter_id']}"
    for edit, place in (({"data": HIDDEN}, "/edit/data"), ({"body": BODY | {"data": HIDDEN}}, "/edit/body/data")):
        answer = problem(gateway.post(f"{letter}:redrive", json={"edit": edit}), 422, "redacted_value")
        assert [each["pointer"] for each in answer["errors"]] == [f"{place}/card/number"]
    assert gateway.get(letter).status_code == 200


def test_pages_of_the_console_have_no_redacted_value(gateway):
    publish(gateway, "pay-5")
    letter = bury(gateway, "pay-6")
    pages = [
        "/console/queues/pay-5",
        "/console/queues/pay-5/publish",
        "/console/queues/pay-6/dead-letters",
        f"/console/queues/pay-6/dead-letters/{letter}",
        f"/console/queues/pay-6/dead-letters/{letter}/edit",
    ]
    texts = [gateway.get(page).raise_for_status().text for page in pages]
    assert [page for page, text in zip(pages, texts, strict=True) if SECRET in text] == []
    assert MARKER in texts[-1]


def test_the_journal_has_no_redacted_value(state):
    gateway, directory = state
    id = publish(gateway, "pay-7", BODY | {"meta": {"ext": {"shop": {"person": SECRET}}}})
    receive(gateway, "pay-7")

    def records():
        return [each for each in read(directory / "journal", directory / "landing") if each.message_id == id]

    wait_for(lambda: len(records()) == 2)
    for record in records():
        envelope = json.loads(bytes(record.envelope))
        assert (envelope["data"], envelope["meta"]["ext"]) == (HIDDEN, {"shop": {"person": MARKER}})
        assert record.meta == {"ext.shop.person": MARKER}


@pytest.mark.parametrize("place", ["/job", "/data", "data/card", "/meta/id"])
def test_a_place_that_cannot_be_redacted_is_refused(tmp_path, place):
    path = tmp_path / "babelgate.yaml"
    path.write_text(yaml.safe_dump({"queues": {"pay": {"broker": "local", "redact": ["/data/ok", place]}}}))
    with pytest.raises(ConfigError) as raised:
        settings.load(path, {})
    assert raised.value.facts["key"] == "queues.pay.redact.1"
    assert "below /data or /meta/ext" in raised.value.facts["reason"]
