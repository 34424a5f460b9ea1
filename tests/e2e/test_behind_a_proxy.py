"""The configurations of docs/how-to/behind-a-proxy.md in the real proxies: all that a gateway serves passes through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from tests.harness import proxies
from tests.harness.gateway import gateway

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/behind-a-proxy.md"
DRAFT = {"job": "urn:shop:order", "data": {"n": 1}}
HEADERS = {"authorization": "Bearer shop-token"}


def _block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    return str(found)


@pytest.fixture(params=["nginx", "haproxy"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a proxy, in front of a gateway with the configuration of the page; it takes larger bodies than usual."""
    config = yaml.safe_load(_block("yaml").replace("sqlite:///", f"sqlite:///{tmp_path}/"))
    del config["host"], config["port"]
    serve = {"nginx": proxies.nginx, "haproxy": proxies.haproxy}[request.param]
    with gateway(tmp_path, {**config, "limits": {"max_message_bytes": 4_000_000}}) as process:
        address = process.url.removeprefix("http://")
        with serve(tmp_path, _block(request.param), address) as found:
            yield found


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/queues/orders", headers=HEADERS, timeout=120) as opened:
        yield opened


def test_a_large_body_and_a_long_poll(client: httpx.Client) -> None:
    assert client.post("/messages:receive", json={"wait_seconds": 2}).json() == {"messages": []}
    large = {"job": "urn:shop:order", "data": {"text": "x" * 3_000_000}}
    assert client.post("/messages", json=large).status_code == 201
    (message,) = client.post("/messages:receive", json={"wait_seconds": 30}).json()["messages"]
    assert message["envelope"]["data"] == large["data"]
    settled = client.post("/messages:ack", json={"ack_tokens": [message["ack_token"]]}).json()
    assert settled["settled"] == 1


def test_an_event_of_a_stream_comes_at_once(client: httpx.Client) -> None:
    with client.stream("POST", "/messages:stream", headers={"accept": "application/x-ndjson"}, json={}) as stream:
        # It is published while the stream is open, and the stream does not end.
        assert client.post("/messages", json=DRAFT).status_code == 201
        events = (json.loads(line) for line in stream.iter_lines() if line)
        event = next(event for event in events if event["event"] == "message")
    assert event["data"]["envelope"]["data"] == {"n": 1}


def test_a_websocket(client: httpx.Client, url: str) -> None:
    address = f"{url.replace('http:', 'ws:')}/queues/orders/messages:stream"
    with connect(address, subprotocols=["babelgate.v1"], additional_headers=HEADERS, open_timeout=120) as socket:  # type: ignore[list-item]
        assert client.post("/messages", json=DRAFT).status_code == 201
        event = json.loads(socket.recv(timeout=120))
        assert (event["event"], event["data"]["envelope"]["data"]) == ("message", {"n": 1})
        socket.send(json.dumps({"acks": [event["data"]["ack_token"]]}))
        assert "settled" in str(socket.recv(timeout=120))


def test_refusals_of_the_gateway_pass_through(client: httpx.Client) -> None:
    refused = client.post("/messages", json={"job": " "}, headers={"authorization": "Bearer other"})
    assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
