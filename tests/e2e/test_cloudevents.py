"""CloudEvents between the official SDKs for Python, JavaScript and Go, through a real gateway: each with each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import unquote

import pytest

from tests.harness.gateway import gateway
from tests.harness.webhooks import SECRET
from tests.official.events import COUNTS, LANGUAGES, MODES, Event, data_of, receive, send

_HEAD: dict[str, Any] = {
    "specversion": "1.0",
    "source": "https://example.com/shop",
    "type": "com.example.order.created",
    "time": "2026-04-05T17:31:00.123Z",
}
EVENTS: list[dict[str, Any]] = [
    {
        **_HEAD,
        "id": "A234-1234-1234",
        "subject": 'order 4711, 5% "off" €😀',
        "dataschema": "https://example.com/schemas/order.json",
        "datacontenttype": "application/json",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "comexampleextension": "värde",
        "amount": 5,
        "urgent": True,
        "data": {"sum": 12.5, "items": [{"sku": "ä"}]},
    },
    {**_HEAD, "id": "2", "datacontenttype": "text/plain", "data": "grüße"},
    {**_HEAD, "id": "3", "datacontenttype": "image/png", "data_base64": "iVBORw0KGgr/"},
    {**_HEAD, "id": "4", "datacontenttype": "text/json", "data": {"list": [1, None, "x"]}},
    {**_HEAD, "id": "5"},
]
_OF_DELIVERY = {"bqacktoken", "bqleaseexpiresat", "bqattempts", "bqredelivered", "bqtraceid"}
_CASES = [*product(LANGUAGES, MODES)]


class Hook(ThreadingHTTPServer):
    """Takes pushes at ``/hook``, and answers with the post of an event, as it was, at ``/`` and its id."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.posts: dict[str, tuple[dict[str, str], bytes]] = {}
        self.arrived: Queue[str] = Queue()


class Answers(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers, answer = {}, b""
        if self.path == "/hook":
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers = {name: value for name, value in headers.items() if name.startswith("ce-") or name == _TYPE}
            self.server.posts[headers["ce-id"]] = headers, body
            self.server.arrived.put(headers["ce-id"])
            headers = {}
        else:
            headers, answer = self.server.posts[self.path[1:]]
        self.send_response(200)
        for name, value in [*headers.items(), ("content-length", str(len(answer)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


_TYPE = "content-type"


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


_NOT_SHOWN = {"node": ("image/png", "text/json"), "go": ("image/png",)}
"""Types of data in the binary mode: bytes are no text that the programs could print, and the SDK for JavaScript takes
this type of JSON for a text."""


def _decoded(value: Any) -> Any:
    return unquote(value) if isinstance(value, str) else value


def queue(*names: str) -> str:
    return "-".join(names)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, hook: Hook) -> Iterator[str]:
    """A gateway to which every SDK has sent the events in each mode, to a queue for each SDK that receives them."""
    folder: Path = tmp_path_factory.mktemp("gateway")
    push = {"url": f"{hook.url}/hook", "secrets": [SECRET], "body": "cloudevents_binary"}
    config = {
        "queues": {"pushed": {"broker": "local", "push": push}},
        "default": {"broker": "local"},
        "push": {"allow_http": True, "allow_private": True},
    }
    with gateway(folder, config) as served:
        for language, mode in _CASES:
            urls = [
                f"{served.url}/queues/{queue(language, mode, reader, count)}/messages"
                for reader, count in product(LANGUAGES, COUNTS)
            ]
            send(language, mode, urls, EVENTS)
        yield served.url


def same(event: Event, sent: Event, mode: str, *, pushed: bool = False) -> None:
    """Fail unless ``event``, as an SDK has received it, is ``sent``. One that was ``pushed`` has no token."""
    of_token = {"bqacktoken", "bqleaseexpiresat"}
    assert event.keys() & _OF_DELIVERY == _OF_DELIVERY - (of_token if pushed else set())
    own = {name for name in event.keys() - _OF_DELIVERY if event[name] is not None}
    # The gateway adds the one, and the SDK for JavaScript the other in the binary mode.
    own -= {"traceparent", "datacontenttype"} - sent.keys()
    assert own - {"data", "data_base64"} == sent.keys() - {"data", "data_base64"}
    for name in own - {"data", "data_base64", "time"}:
        value = sent[name]
        if mode == "binary" and not isinstance(value, str):
            # Headers have no types.
            assert str(event[name]).lower() == str(value).lower()
        else:
            assert event[name] == value, name
    assert datetime.fromisoformat(event["time"]) == datetime.fromisoformat(sent["time"])
    assert data_of(event) == data_of(sent)


@pytest.mark.parametrize("reader", LANGUAGES)
def test_every_event_of_every_sdk_is_received_in_a_batch(address: str, reader: str) -> None:
    urls = {
        f"{address}/queues/{queue(*case, reader, 'many')}/messages:receive?max_messages=10": case for case in _CASES
    }
    received = receive(reader, "many", [*urls])
    assert received.keys() == urls.keys()
    for url, events in received.items():
        assert len(events) == len(EVENTS)
        for event, sent in zip(events, EVENTS, strict=True):
            same(event, sent, urls[url][1])


@pytest.mark.parametrize("reader", LANGUAGES)
def test_every_event_of_every_sdk_is_received_alone(address: str, reader: str) -> None:
    urls = {f"{address}/queues/{queue(*case, reader, 'one')}/messages:receive": case for case in _CASES}
    for sent in EVENTS:
        for url, (event,) in receive(reader, "one", [*urls]).items():
            same(event, sent, urls[url][1])


def test_every_sdk_reads_what_is_pushed_in_the_binary_mode(address: str, hook: Hook) -> None:
    send("python", "structured", [f"{address}/queues/pushed/messages"], EVENTS)
    for _ in EVENTS:
        hook.arrived.get(timeout=120)
    assert hook.posts.keys() == {sent["id"] for sent in EVENTS}
    urls = {f"{hook.url}/{sent['id']}": sent for sent in EVENTS}
    for reader in LANGUAGES:
        readable = [url for url, sent in urls.items() if sent.get("datacontenttype") not in _NOT_SHOWN.get(reader, ())]
        for url, (event,) in receive(reader, "one", readable).items():
            if reader != "python":
                # These SDKs leave it to their caller to decode the values of headers. An empty body may be a text.
                event = {name: _decoded(value) for name, value in event.items() if value != ""}
            same(event, urls[url], "binary", pushed=True)
