"""Streams over HTTP: their forms, and how they begin and end."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import contextmanager

import httpx
import pytest

from babelgate.config import settings
from babelgate.gateway.gateway import Gateway
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.server.application import App
from babelgate.server.overload import Pacer, Shedder
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_gateway
from babelgate.streams.framing import EVENT_STREAM, JSON_LINES
from babelgate.streams.serving import Streaming
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import Connection, serving

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
LIMIT_SECONDS = 120
MEMBERS = ["ack_token", "lease_expires_at", "attempts", "redelivered", "headers", "envelope"]


@pytest.fixture
def url(queue):
    return f"queues/direct-{queue}"


@pytest.fixture(scope="module")
def client(direct):
    host, port = direct.address
    headers = {"authorization": "Bearer all"}
    with httpx.Client(
        base_url=f"http://{host}:{port}/mq/", headers=headers, timeout=120, verify=authorities()
    ) as client:
        yield client


class Stopping(httpx.Client):
    """A client that can stop its gateway as a signal does."""

    loop: asyncio.AbstractEventLoop
    gateway: Gateway

    def drain(self):
        asyncio.run_coroutine_threadsafe(self.gateway.drain(), self.loop).result(60)


@pytest.fixture
def serve_streams(tmp_path):
    """A function of the pause between keep-alives that serves an application."""

    @contextmanager
    def started(keep_alive_seconds):
        path = tmp_path / "babelgate.yaml"
        file = {"url": f"sqlite:///{tmp_path}/babelgate.db", "timeout_seconds": 30}
        path.write_text(json.dumps({"state_dir": str(tmp_path), "brokers": {"local": file}}))
        found = settings.load(path, {})

        def build():
            Stopping.loop = asyncio.get_running_loop()
            gateway = Stopping.gateway = build_gateway(found)
            stream = Streaming(gateway, keep_alive_seconds).serve
            api = create_api(gateway, auth=Auth(), limits=RequestLimits(), stream=stream)
            return App(api, gateway, Shedder(Pacer(time.thread_time), gateway.has_backlog))

        with (
            serving(uvicorn_config(build, found)) as (host, port),
            Stopping(base_url=f"http://{host}:{port}/", timeout=LIMIT_SECONDS) as client,
        ):
            yield client

    return started


def eventually(condition):
    limit = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def publish(client, url, count=1, first=0):
    drafts = [DRAFT | {"data": {"n": n}} for n in range(first, first + count)]
    assert client.post(f"{url}/messages:batch", json=drafts).status_code == 201


def depth(client, url):
    return client.get(url).json()["stats"]["depth"]


def events(answer):
    """The events of a stream, in either form: name and data."""
    name = data = None
    for line in answer.iter_lines():
        if answer.headers["content-type"] == "application/x-ndjson":
            found = json.loads(line)
            yield found["event"], found["data"]
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
        elif not line and name is not None:
            yield name, data
            name = None
        elif line.startswith(":"):
            yield "keep_alive", {}


@pytest.mark.parametrize("accept", ["", "*/*", "text/event-stream", "application/x-ndjson"])
@pytest.mark.parametrize("how", ["GET", "query", "body"])
def test_messages_come_as_they_are_settled(client, url, how, accept):
    publish(client, url, 3)
    asked = {"json": {"max_in_flight": 2}} if how == "body" else {"params": {"max_in_flight": 2}}
    method = "GET" if how == "GET" else "POST"
    with client.stream(method, f"{url}/messages:stream", headers={"accept": accept}, **asked) as answer:
        assert answer.status_code == 200
        is_lines = accept == "application/x-ndjson"
        assert answer.headers["content-type"] == ("application/x-ndjson" if is_lines else "text/event-stream")
        assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
        assert "x-request-id" in answer.headers
        coming = events(answer)
        messages = [next(coming) for _ in range(2)]
        assert [name for name, _ in messages] == ["message"] * 2
        assert [list(data) for _, data in messages] == [MEMBERS] * 2
        tokens = [data["ack_token"] for _, data in messages]
        assert client.post(f"{url}/messages:ack", json={"ack_tokens": tokens}).status_code == 200
        _, last = next(coming)
        assert last["envelope"]["data"] == {"n": 2}
        assert client.post(f"{url}/messages:ack", json={"ack_tokens": [last["ack_token"]]}).status_code == 200
    assert depth(client, url) == 0


@pytest.mark.parametrize("form", ["text/event-stream", "application/x-ndjson"])
def test_messages_are_events_for_a_client_that_accepts_them(client, url, form):
    event = {"specversion": "1.0", "id": "A-1", "source": "/shop", "type": "com.example.made", "data": {"n": 1}}
    sent = client.post(f"{url}/messages", json=event, headers={"content-type": "application/cloudevents+json"})
    assert sent.status_code == 201
    accept = {"accept": f"{form}, application/cloudevents+json"}
    with client.stream("GET", f"{url}/messages:stream", headers=accept) as answer:
        assert answer.headers["content-type"] == form
        # Kept, because a generator that is gone closes the stream.
        coming = events(answer)
        name, given = next(coming)
        assert name == "message" and given.items() >= event.items()
        assert client.post(f"{url}/messages:ack", json={"ack_tokens": [given["bqacktoken"]]}).status_code == 200
    assert depth(client, url) == 0


def test_without_a_window_ten_messages_are_unsettled(client, url):
    publish(client, url, 12)
    with client.stream("GET", f"{url}/messages:stream", headers={"accept": "application/x-ndjson"}) as answer:
        found = events(answer)
        assert [next(found)[1]["envelope"]["data"]["n"] for _ in range(10)] == list(range(10))
        assert depth(client, url) == 2


def test_a_client_that_goes_leaves_its_messages_to_the_next(client, url):
    publish(client, url, 5)
    with client.stream("GET", f"{url}/messages:stream") as answer:
        coming = events(answer)
        tokens = [next(coming)[1]["ack_token"] for _ in range(5)]
        assert depth(client, url) == 0
    eventually(lambda: depth(client, url) == 5)
    # Its leases are over.
    assert problem(client.post(f"{url}/messages:ack", json={"ack_tokens": tokens[:1]}), 409, "lease_lost")
    again = client.post(f"{url}/messages:receive", params={"max_messages": 10}).json()["messages"]
    assert [message["attempts"] for message in again] == [0] * 5


def test_a_client_of_http_1_0_gets_plain_lines_until_the_connection_ends(direct, client, url):
    publish(client, url)
    host, port = direct.address
    with Connection(host, port, 120) as connection:
        head = f"GET /mq/{url}/messages:stream HTTP/1.0\r\nAuthorization: Bearer all\r\n"
        connection.send(f"{head}Accept: application/x-ndjson\r\n\r\n".encode())
        status, headers = connection.head()
        assert (status, headers["connection"]) == (200, "close")
        assert "transfer-encoding" not in headers and "content-length" not in headers
        line = connection.line()
        assert json.loads(line)["data"]["envelope"]["data"] == {"n": 0}


def test_head_is_refused(client, url):
    answer = client.head(f"{url}/messages:stream")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST, GET", b"")


@pytest.mark.parametrize(
    ("asked", "status", "code", "member"),
    [
        ({"max_in_flight": 0}, 400, "invalid_parameter", "/max_in_flight"),
        ({"max_in_flight": 1001}, 400, "invalid_parameter", "/max_in_flight"),
        ({"auto_extend": 1}, 400, "invalid_parameter", "/auto_extend"),
        ({"lease_seconds": 0}, 400, "invalid_parameter", "/lease_seconds"),
        ({"lease_seconds": 50_000}, 422, "lease_too_long", "/lease_seconds"),
        ({"wait_seconds": 1}, 400, "invalid_parameter", "/wait_seconds"),
    ],
)
def test_what_is_out_of_bounds_is_refused_before_the_stream(client, url, asked, status, code, member):
    found = problem(client.post(f"{url}/messages:stream", json=asked), status, code)
    assert found["errors"][0]["pointer"] == member


def test_a_last_event_id_is_refused_in_words(client, url):
    answer = client.get(f"{url}/messages:stream", headers={"last-event-id": "7"})
    found = problem(answer, 422, "resume_unsupported")
    assert "on the queue again" in found["detail"]
    assert found["errors"][0]["header"] == "Last-Event-ID"
    with client.stream("GET", f"{url}/messages:stream", headers={"last-event-id": ""}) as stream:
        assert stream.status_code == 200


@pytest.mark.parametrize("framing", [EVENT_STREAM, JSON_LINES])
def test_line_ends_of_a_foreign_body_do_not_break_a_line(framing):
    """A body that another program has put on the queue may have them between its tokens."""
    document = b'{"envelope":{"job":"a",\r\n"data":\n{"text":"a\\nb"}\r}}'
    sent = framing.event("message", document)
    lines = [line for line in sent.decode().splitlines() if line and not line.startswith("event:")]
    (line,) = lines
    found = json.loads(line.removeprefix("data: "))
    assert found.get("data", found) == json.loads(document)


def test_a_stream_counts_as_a_receive_and_is_measured(direct, client, url):
    def seen():
        lines = client.get("metrics").text.splitlines()
        queue = url.removeprefix("queues/")
        return [
            line.rpartition(" ")[2] for line in lines if line.startswith("babelgate_open_streams{") and queue in line
        ]

    with client.stream("GET", f"{url}/messages:stream") as answer:
        assert answer.status_code == 200
        eventually(lambda: seen() == ["1.0"])
        assert direct.app.gateway.admission._receives.taken >= 1
    eventually(lambda: seen() == [])


def test_a_reader_that_stops_takes_no_more_than_its_window(direct, client, url):
    """Its messages wait in the gateway once, and nothing more is handed out for it."""
    publish(client, url, 40)
    large = "x" * 200_000
    for _ in range(30):
        assert client.post(f"{url}/messages", json=DRAFT | {"data": {"text": large}}).status_code == 201
    host, port = direct.address
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.connect((host, port))
        reader.sendall(
            f"GET /mq/{url}/messages:stream?max_in_flight=60 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer all\r\n\r\n".encode()
        )
        eventually(lambda: depth(client, url) == 10)
        unread = direct.app.gateway.admission._unread_bytes
        eventually(lambda: 1_000_000 < unread.taken < 16_000_000)
    eventually(lambda: depth(client, url) == 70)
    eventually(lambda: unread.taken == 0)


def test_a_keep_alive_is_sent_while_nothing_comes(serve_streams):
    with serve_streams(0.2) as client:
        for accept, first in (("text/event-stream", ": keep-alive"), ("application/x-ndjson", '{"event":"keep_alive"')):
            with client.stream("GET", "queues/q/messages:stream", headers={"accept": accept}) as answer:
                lines = (line for line in answer.iter_lines() if line and not line.startswith("retry"))
                assert next(lines).startswith(first)
                assert next(lines).startswith(first)


def test_a_stream_is_told_of_a_stop_and_ends(serve_streams):
    with serve_streams(30) as client:
        publish(client, "queues/q", 2)
        with client.stream("GET", "queues/q/messages:stream", params={"max_in_flight": 1}) as answer:
            coming = events(answer)
            _, message = next(coming)
            client.drain()
            assert next(coming) == ("drain", {})
            acked = client.post("queues/q/messages:ack", json={"ack_tokens": [message["ack_token"]]})
            assert acked.status_code == 200
            assert list(coming) == []
        answer = client.get("queues/q/messages:stream")
        problem(answer, 503, "draining")
