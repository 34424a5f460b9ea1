"""Requests that are served directly get the answers that the application gives, and what is not ordinary gets there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from uvicorn.config import Config
from uvicorn.server import ServerState

from babelgate.config import settings
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.publish import Publisher
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.http.auth import Auth
from babelgate.http.direct import DIRECT, MAX_BODY_BYTES, DirectEndpoints
from babelgate.http.heads import target_of
from babelgate.http.parts import PART_BYTES
from babelgate.server.cycle import DirectCycle
from babelgate.server.protocol import GatewayProtocol
from babelgate.server.server import uvicorn_config
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, MemoryBinding
from tests.harness.sockets import Connection, serving
from tests.harness.traced import Spans
from tests.harness.ways import DRAFT, JSON, Served, answer, post
from tests.harness.world import KEYS
from tests.http.test_steps import Transport

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def anyones(tmp_path):
    """A server without credentials."""
    path = tmp_path / "babelgate.yaml"
    path.write_text(yaml.safe_dump({"state_dir": str(tmp_path)}))
    found = settings.load(path, {})
    served = Served(found)
    with serving(uvicorn_config(served.build, found)) as served.address:
        yield served


PUBLISHES = {
    "a draft": (201, True, post("/queues/q/messages")),
    "no media type": (201, True, post("/queues/q/messages", headers="")),
    "a charset": (201, True, post("/queues/q/messages", headers="Content-Type: application/json; charset=utf-8\r\n")),
    "a request id": (201, True, post("/queues/q/messages", headers=JSON + "X-Request-Id: mine\r\n")),
    "HTTP/1.0": (201, True, post("/queues/q/messages", version="1.0")),
    "the last request": (201, True, post("/queues/q/messages", headers=JSON + "Connection: close\r\n")),
    "an envelope": (
        201,
        True,
        post(
            "/queues/q/messages",
            b'{"job":"j","trace_id":"t","data":{},"attempts":0,'
            b'"meta":{"id":"i","queue":"q","lang":"go","schema_version":1,"created_at":1}}',
        ),
    ),
    "the longest": (201, True, post("/queues/q/messages", DRAFT + b" " * (MAX_BODY_BYTES - len(DRAFT)))),
    "a longer one": (201, False, post("/queues/q/messages", DRAFT + b" " * (MAX_BODY_BYTES - len(DRAFT) + 1))),
    "options": (201, False, post("/queues/q/messages", DRAFT[:-1] + b',"delay_seconds":1}')),
    "a prefix": (201, True, post("/mq/queues/q/messages")),
    "a prefix twice": (404, False, post("/mq/mq/queues/q/messages")),
    "another path": (404, False, post("/x/queues/q/messages")),
    "a slash in the name": (400, False, post("/queues/a%2Fb/messages")),
    "no queue": (400, False, post("/queues//messages")),
    "no token": (401, False, post("/queues/q/messages", token="none")),
    "no right": (403, False, post("/queues/direct-q/messages", token="read")),
    "a name that is none": (400, False, post("/queues/%20/messages")),
    "a long name": (400, False, post(f"/queues/{'-' * 60_000}/messages", token="read")),
    "a long name of a receive": (400, False, post(f"/queues/{'-' * 60_000}/messages:receive", b"", token="read")),
    "no JSON": (400, False, post("/queues/q/messages", b"{")),
    "no job": (422, False, post("/queues/q/messages", b'{"data":{}}')),
    "an empty body": (400, False, post("/queues/q/messages", b"")),
    "a query": (201, None, post("/queues/q/messages?delay_seconds=1")),
    "another media type": (415, None, post("/queues/q/messages", headers="Content-Type: text/plain\r\n")),
    "an idempotency key": (400, None, post("/queues/q/messages", headers=JSON + "Idempotency-Key: a b\r\n")),
    "broker properties": (201, None, post("/queues/q/messages", headers=JSON + "BrokerProperties: {}\r\n")),
    "a trace": (201, None, post("/queues/q/messages", headers=f"{JSON}traceparent: {TRACEPARENT}\r\n")),
    "an origin": (201, None, post("/queues/q/messages", headers=JSON + "Origin: https://another.example\r\n")),
    "a coding": (201, None, post("/queues/q/messages", headers=JSON + "Content-Encoding: identity\r\n")),
    "an ack of what is no token": (400, False, post("/queues/q/messages:ack", b'{"ack_tokens":["x"]}')),
    "an ack of nothing": (400, False, post("/queues/q/messages:ack", b'{"ack_tokens":[]}')),
    "an ack with another member": (400, False, post("/queues/q/messages:ack", b'{"ack_tokens":["x"],"a":1}')),
    "an ack without a right": (403, False, post("/queues/q/messages:ack", b'{"ack_tokens":["x"]}', token="read")),
    "an ack that is no JSON": (400, False, post("/queues/q/messages:ack", b'{"ack_tokens":["x"]')),
    "an ack with a query": (400, None, post("/queues/q/messages:ack?a=1", b'{"ack_tokens":["x"]}')),
}
"""The status, whether it is served directly (None: not even offered), and the request."""


@pytest.mark.parametrize("name", PUBLISHES)
def test_both_ways_have_the_same_answers(direct, application, name):
    status, served_directly, request = PUBLISHES[name]
    del direct.directly[:]
    answers = [answer(served, request) for served in (direct, application)]
    assert answers[0] == answers[1]
    assert answers[0][0] == status, answers[0]
    assert direct.directly == ([] if served_directly is None else [served_directly])
    assert direct.publishing == application.publishing == 0


def test_who_was_admitted_is_remembered_with_what_it_depended_on(direct, anyones):
    """A program from here opens neither to web pages nor to other hosts; a token opens to no other token."""
    path = "/queues/q/messages"
    foreign = [f"{JSON}Origin: https://evil.example\r\n", f"{JSON}Sec-Fetch-Site: cross-site\r\n"]
    for _ in range(2):
        assert answer(anyones, post(path))[0] == 201
        assert [answer(anyones, post(path, headers=each))[0] for each in foreign] == [403, 403]
        assert answer(anyones, post(path, host="evil.example"))[0] == 403
        assert [answer(direct, post(path, token=each))[0] for each in ("all", "al", "alll", "read")] == [
            201,
            401,
            401,
            403,
        ]
        assert answer(direct, post(f"{path}:receive", b"", token="read"))[0] == 403
        assert answer(direct, post("/queues/direct-q/messages:receive", b"", token="read"))[0] == 200


@pytest.mark.parametrize("verb", ["messages", "messages:ack"])
def test_a_body_that_comes_later_gets_to_the_application(direct, verb):
    body = DRAFT if verb == "messages" else json.dumps({"ack_tokens": ["x"]}).encode()
    request = post(f"/queues/q/{verb}", body)
    del direct.directly[:]
    with Connection(*direct.address) as connection:
        for at in (len(request) - len(body), len(request) - 5):
            connection.send(request[:at])
            assert not connection.readable(0.05)
            connection.send(request[at:])
            assert connection.reply().status == (201 if verb == "messages" else 400)
    assert not direct.directly


def test_an_ack_settles_and_a_lost_lease_is_told(direct, application, queue, monkeypatch):
    async def lost(native, handles):
        return [LeaseLost()] * len(handles)

    answers: list[Any] = []
    del direct.directly[:]
    for served in (direct, application):
        with Connection(*served.address) as connection:
            connection.send(post(f"/queues/{queue}/messages"))
            assert connection.reply().status == 201
            connection.send(post(f"/queues/{queue}/messages:receive", b""))
            (message,) = json.loads(connection.reply().body)["messages"]
        ack = post(f"/queues/{queue}/messages:ack", json.dumps({"ack_tokens": [message["ack_token"]]}).encode())
        with monkeypatch.context() as patched:
            patched.setattr(served.app.gateway.bindings["local"], "ack", lost)
            answers.append((answer(served, ack), answer(served, ack)))
        answers.append(answer(served, ack))
    assert direct.directly == [True] * 5
    assert answers[:2] == answers[2:]
    refused, settled = answers[0][0], answers[1]
    assert (refused[0], refused[2]["code"]) == (409, "lease_lost")
    assert (settled[0], settled[2]["settled"]) == (200, 1)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BrokerUnavailable("local", "why"), 503, "broker_unavailable"),
        (OutcomeUnknown("local", "why"), 504, "outcome_unknown"),
        (RuntimeError("why"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/mq"])
def test_a_failure_at_the_broker_has_the_same_answer(
    direct, application, monkeypatch, caplog, error, status, code, prefix
):
    async def fail(*_):
        raise error

    answers = []
    for served in (direct, application):
        monkeypatch.setattr(served.app.gateway.bindings["local"], "publish", fail)
        del direct.directly[:]
        request = post(f"{prefix}/queues/q/messages", headers=JSON + "X-Request-Id: mine\r\n")
        answers.append(answer(served, request))
        if status == 500:
            (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
            assert "mine" in str(record.msg)
            caplog.clear()
        assert served.publishing == 0
    assert answers[0] == answers[1]
    assert (answers[0][0], answers[0][2]["code"], answers[0][2]["instance"]) == (status, code, "/queues/q/messages")


def test_a_mistake_of_ours_before_the_call_leaves_the_request_to_the_application(direct, monkeypatch, caplog):
    def mistaken(*_):
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Publisher, "begin", mistaken)
    assert answer(direct, post("/queues/q/messages"))[0] == 201
    assert direct.publishing == 0
    assert "request not served directly" in caplog.text


class Held:
    """Holds the publishes of a binding until it is told to let them go."""

    def __init__(self, served, monkeypatch):
        self._served = served
        binding = served.app.gateway.bindings["local"]
        publish = binding.publish
        self._loop: Any = None
        self._free: Any = None

        async def held(*arguments):
            self._loop, self._free = asyncio.get_running_loop(), self._free or asyncio.Event()
            await self._free.wait()
            return await publish(*arguments)

        monkeypatch.setattr(binding, "publish", held)

    def wait(self):
        asyncio.run(eventually(lambda: self._free is not None and self._served.publishing))

    def release(self):
        self._loop.call_soon_threadsafe(self._free.set)


def test_pipelined_requests_are_answered_in_order(direct, queue, monkeypatch):
    held = Held(direct, monkeypatch)
    del direct.directly[:]
    with Connection(*direct.address) as connection:
        bodies = [b'{"job":"count","data":{"n":%d}}' % n for n in range(5)]
        connection.send(b"".join([post(f"/queues/{queue}/messages", body) for body in bodies]))
        held.wait()
        assert direct.directly == [True], "those behind it wait for its answer"
        held.release()
        assert [connection.reply().status for _ in bodies] == [201] * 5
        connection.send(post(f"/queues/{queue}/messages:receive?max_messages=10", b""))
        messages = json.loads(connection.reply().body)["messages"]
        assert [message["envelope"]["data"]["n"] for message in messages] == [*range(5)]


def test_a_client_that_goes_away_leaves_its_message(direct, queue, monkeypatch):
    held = Held(direct, monkeypatch)
    with Connection(*direct.address) as connection:
        connection.send(post(f"/queues/{queue}/messages"))
        held.wait()
    held.release()
    asyncio.run(eventually(lambda: not direct.publishing))
    with Connection(*direct.address) as connection:
        connection.send(post(f"/queues/{queue}/messages:receive", b""))
        assert len(json.loads(connection.reply().body)["messages"]) == 1


def test_a_stop_waits_for_the_answer(configured, queue, monkeypatch):
    served = Served(configured)
    server = uvicorn_config(served.build, configured)
    with contextlib.ExitStack() as stack:
        with serving(server) as address:
            connection = stack.enter_context(Connection(*address))
            connection.send(post(f"/queues/{queue}/messages"))
            assert connection.reply().status == 201
            held = Held(served, monkeypatch)
            connection.send(post(f"/queues/{queue}/messages"))
            held.wait()

            shutdown = GatewayProtocol.shutdown

            def stop(protocol):
                shutdown(protocol)
                held.release()

            monkeypatch.setattr(GatewayProtocol, "shutdown", stop)
        reply = connection.reply()
        assert (reply.status, reply.headers["connection"]) == (201, "close")
        assert connection.ended()


async def test_a_client_that_does_not_read_is_served_by_the_application(app):
    offered = []
    app.direct.begin = lambda request, body: offered.append(body)
    config = Config(app, http=GatewayProtocol, ws="none", interface="asgi3")
    config.load()
    protocol = GatewayProtocol(config, ServerState(), {DIRECT: app.direct})
    protocol.connection_made(Transport())
    protocol.pause_writing()
    protocol.data_received(post("/queues/q/messages"))
    assert not offered
    protocol.connection_lost(None)
    protocol = GatewayProtocol(config, ServerState(), {DIRECT: app.direct})
    protocol.connection_made(Transport())
    protocol.data_received(post("/queues/q/messages"))
    assert offered == [DRAFT]
    protocol.connection_lost(None)


async def test_a_request_that_is_served_directly_has_nothing_of_asgi(app):
    config = Config(app, http=GatewayProtocol, ws="none", interface="asgi3")
    config.load()
    protocol = GatewayProtocol(config, ServerState(), {DIRECT: app.direct})
    protocol.connection_made(Transport())
    protocol.data_received(post("/queues/q/messages:receive?wait_seconds=30", b""))
    (runtime,) = app.gateway.queue_runtimes
    assert runtime.receiver.waiters == 1
    found = {name for name in ("scope", "message_event", "receive", "send") if hasattr(protocol.cycle, name)}
    assert not found
    protocol.connection_lost(None)
    assert runtime.receiver.waiters == 0


RECEIVES = {
    "one": (200, True, post("/queues/{queue}/messages:receive", b"", headers="")),
    "the body of all": (200, True, post("/queues/{queue}/messages:receive", b'{"max_messages":9,"lease_seconds":60}')),
    "the query of all": (200, True, post("/queues/{queue}/messages:receive?max_messages=9&wait_seconds=1", b"")),
    "many parameters": (400, False, post("/queues/{queue}/messages:receive?" + "max_messages=9&" * 1_000, b"")),
    "a long query": (400, False, post("/queues/{queue}/messages:receive?wait_seconds=0." + "0" * 8_000, b"")),
    "no queue": (400, False, post("/queues/%20/messages:receive", b"")),
    "too many": (400, False, post("/queues/{queue}/messages:receive", b'{"max_messages":101}')),
    "a null": (200, False, post("/queues/{queue}/messages:receive", b"null")),
    "both": (400, False, post("/queues/{queue}/messages:receive?max_messages=1", b"{}")),
    "no right": (403, False, post("/queues/{queue}/messages:receive", b"", token="read")),
    "no JSON": (400, False, post("/queues/{queue}/messages:receive", b"{")),
    "too long a lease": (400, False, post("/queues/{queue}/messages:receive?lease_seconds=1e9", b"")),
}


@pytest.mark.parametrize("name", RECEIVES)
def test_both_ways_receive_the_same(direct, application, queue, name):
    status, served_directly, request = RECEIVES[name]
    found = []
    for served in (direct, application):
        name = f"{queue}-{served.app.direct is None}"
        for n in range(3):
            body = b'{"job":"count","trace_id":"t","data":{"n":%d}}' % n
            assert answer(served, post(f"/queues/{name}/messages", body))[0] == 201
        del direct.directly[:]
        code, headers, read = answer(served, request.replace(b"{queue}", name.encode()))
        for message in read.get("messages", ()):
            assert message.pop("ack_token") and message.pop("lease_expires_at")
            del message["envelope"]["meta"]
        assert direct.directly == ([served_directly] if served is direct else [])
        found.append((code, headers, json.loads(json.dumps(read).replace(name, "q"))))
    assert found[0] == found[1]
    assert found[0][0] == status


def test_the_bare_envelope_is_served_by_the_application(direct, queue):
    with Connection(*direct.address) as connection:
        connection.send(post(f"/queues/{queue}/messages"))
        assert connection.reply().status == 201
        del direct.directly[:]
        accept = "Accept: application/vnd.babelqueue.envelope+json\r\n"
        connection.send(post(f"/queues/{queue}/messages:receive", b"", headers=accept))
        reply = connection.reply()
    assert json.loads(reply.body)["data"] == {"n": 1} and reply.headers["ack-token"]
    assert direct.directly == [False]


def test_a_receive_that_waits_is_answered_at_once_and_by_a_stop(configured, queue):
    served = Served(configured)
    with contextlib.ExitStack() as stack:
        with serving(uvicorn_config(served.build, configured)) as address:
            one, other = (stack.enter_context(Connection(*address)) for _ in range(2))
            one.send(post(f"/queues/{queue}/messages:receive?wait_seconds=30", b""))
            asyncio.run(eventually(lambda: served.directly == [True]))
            other.send(post(f"/queues/{queue}/messages"))
            assert other.reply().status == 201
            assert len(json.loads(one.reply().body)["messages"]) == 1
            one.send(post(f"/queues/{queue}/messages:receive?wait_seconds=30", b""))
            asyncio.run(eventually(lambda: served.directly == [True] * 3))
            served.loop.call_soon_threadsafe(lambda: asyncio.ensure_future(served.app.gateway.drain()))
            reply = one.reply()
        assert (reply.status, json.loads(reply.body)) == (200, {"messages": []})


@pytest.mark.parametrize("when", ["while it waits", "when its message has come"])
def test_the_message_of_a_client_that_goes_away_is_given_back(direct, queue, monkeypatch, when):
    receiver = None
    reserved = threading.Event()
    with Connection(*direct.address) as connection:
        connection.send(post(f"/queues/{queue}/messages:receive", b""))
        assert connection.reply().status == 200
        (runtime,) = [each for each in direct.app.gateway.queue_runtimes if each.route.queue == queue]
        receiver = runtime.receiver
        connection.send(post(f"/queues/{queue}/messages:receive?wait_seconds=30", b""))
        asyncio.run(eventually(lambda: receiver.waiters == 1))
        if when != "while it waits":
            # It goes away after its message was reserved, and before it is answered.
            monkeypatch.setattr(DirectCycle, "disconnected", property(lambda cycle: True, lambda cycle, value: None))
            give_back = receiver.return_later

            def returned(ready):
                give_back(ready)
                reserved.set()

            monkeypatch.setattr(receiver, "return_later", returned)
            with Connection(*direct.address) as other:
                other.send(post(f"/queues/{queue}/messages"))
                assert reserved.wait(60)
            monkeypatch.undo()
    asyncio.run(eventually(lambda: receiver.waiters == 0 and not receiver.busy))
    with Connection(*direct.address) as connection:
        if when == "while it waits":
            connection.send(post(f"/queues/{queue}/messages"))
            assert connection.reply().status == 201
        connection.send(post(f"/queues/{queue}/messages:receive", b""))
        (message,) = json.loads(connection.reply().body)["messages"]
        assert (message["attempts"], message["redelivered"]) == (0, False)


def test_a_large_answer_is_sent_as_fast_as_its_client_reads(direct, application, queue):
    texts = ["x" * 900_000] * 8
    answers = []
    for served in (direct, application):
        name = f"{queue}-{served.app.direct is None}"
        with Connection(*served.address) as connection:
            for text in texts:
                connection.send(
                    post(f"/queues/{name}/messages", json.dumps({"job": "j", "data": {"t": text}}).encode())
                )
                assert connection.reply().status == 201
            connection.send(post(f"/queues/{name}/messages:receive?max_messages=10", b""))
            connection.send(post(f"/queues/{name}/messages:receive?max_messages=10", b""))
            replies = [connection.reply() for _ in range(2)]
            answers.append(
                [[each["envelope"]["data"]["t"] for each in json.loads(reply.body)["messages"]] for reply in replies]
            )
    assert answers[0] == answers[1] == [texts, []]


def test_both_ways_are_measured_alike(direct, application):
    found = []
    for served in (direct, application):
        for request in (
            post("/queues/measured/messages"),
            post("/queues/measured/messages:ack", b'{"ack_tokens":["x"]}'),
        ):
            answer(served, request)
        with Connection(*served.address) as connection:
            connection.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer all\r\n\r\n")
            lines = connection.reply().body.decode().splitlines()
        name = "http_server_request_duration_seconds_count{"
        found.append({line.split(" ")[0] for line in lines if line.startswith(name) and "messages" in line})
    shared = [{line for line in each if 'status_code="201"' in line} for each in found]
    assert shared[0] and shared[0] == shared[1]


class Request:
    """A request that was offered, and the body of its answer."""

    fields: Any = MappingProxyType({})
    scheme = "http"
    target = target_of(b"/queues/q/messages")
    answered = b""
    certificate: Any = None

    disconnected = False

    def answer(self, status, fields, body):
        self.answered = body
        return True

    async def answer_parts(self, status, fields, parts):
        raise AssertionError("a publish has a short answer")

    def when_gone(self, call):
        raise AssertionError("a publish is not cancelled")


class Unsendable(Request):
    """A receive whose answer cannot be sent."""

    target = target_of(b"/queues/q/messages:receive")

    async def answer_parts(self, status, fields, parts):
        raise RuntimeError("a mistake")

    def when_gone(self, call):
        pass


@pytest.mark.parametrize("fails", ["to be written", "to be sent"])
async def test_a_large_answer_that_fails_gives_its_places_back(fails, monkeypatch):
    binding = MemoryBinding("memory", CAPABLE)
    policy, clock = Policy(limits=QueueTerms(max_receives=1)), lambda: 0.0
    router = Router([], Rule("*", binding, policy))
    limits = RateLimits(router, None, clock)
    gateway = Gateway({"memory": binding}, router, TokenSealer(KEYS), rate_limits=limits)
    await gateway.start()
    if fails == "to be written":
        monkeypatch.setattr("babelgate.http.direct.encoded", lambda message: 1 / 0)
    observed = []
    endpoints = DirectEndpoints(gateway, Auth(hosts=frozenset({""})), observe=lambda *what: observed.append(what))
    large = json.dumps({"job": "j", "data": {"t": "x" * PART_BYTES}}).encode()
    await gateway.publish(ANYONE, "q", large)
    assert endpoints.begin(Unsendable(), b"") is None
    await eventually(lambda: observed)
    assert (observed[0][2], observed[0][4]) == (0, "internal_error")
    assert gateway.admission._receives.of("memory") == gateway.admission._unread_bytes.of("memory") == 0
    quota = limits.of(ANYONE, router.route("q"))
    assert quota is not None and quota.has_place("receives")
    await gateway.close()


async def test_only_what_is_not_sampled_is_served_directly():
    """Which messages are sampled depends on their trace ids alone, also of those that get one here."""
    tracing = Spans("traceidratio", "0.5").tracing
    binding = MemoryBinding("memory", CAPABLE)
    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), TokenSealer(KEYS), tracing=tracing)
    await gateway.start()
    endpoints = DirectEndpoints(gateway, Auth(hosts=frozenset({""})))
    requests = [Request() for _ in range(200)]
    left = [endpoints.begin(request, DRAFT) for request in requests]
    served = [request for request, body in zip(requests, left, strict=True) if body is None]
    await eventually(lambda: all(request.answered for request in served))
    sampled = [json.loads(body)["trace_id"] for body in left if body is not None]
    unsampled = [json.loads(request.answered)["trace_id"] for request in served]
    assert sampled and unsampled
    assert all(map(tracing.samples, sampled)) and not any(map(tracing.samples, unsampled))
    await gateway.close()


@pytest.mark.parametrize(
    "config", [{"journal": {"landing": "landing", "when_full": "wait"}}, {"access_log": True}], ids=["journal", "log"]
)
async def test_what_has_to_wait_or_to_be_logged_is_served_by_the_application(serve, tmp_path, config):
    if "journal" in config:
        config["journal"]["landing"] = str(tmp_path / "landing")
    app = await serve(**config)
    assert app.direct is None or app.direct.begin(Request(), DRAFT) == DRAFT
