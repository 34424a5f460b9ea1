"""A credential that ends or is revoked ends its requests, long polls, streams and web sockets."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from babelgate.config import settings
from babelgate.gateway import authorization
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.direct import DirectEndpoints
from babelgate.server.application import App
from babelgate.server.overload import Pacer, Shedder
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_gateway
from babelgate.streams.serving import Streaming
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.http.test_streams import DRAFT, events, eventually

LIMIT_SECONDS = 120
FAR = 4_000_000_000.0
ENDINGS = ["time", "revoked"]


class Served(httpx.Client):
    """A client with the token ``mine``, whose caller can end. ``opened``: the number of waiting receives."""

    loop: asyncio.AbstractEventLoop
    gateway: Gateway
    callers: dict[str, Caller]

    def renew(self, ends_at):
        """A caller of the token that ends at this time."""
        caller = Caller("mine", {"*": frozenset(Right)}, None, ends_at)
        self.callers[hashlib.sha256(b"mine").hexdigest()] = caller
        return caller

    def end(self, caller, how):
        if how == "revoked":
            self.loop.call_soon_threadsafe(caller.revoke)
        else:
            # What waits for its end looks at it often: see served.
            caller.ends_at = time.time()

    def waiting(self):
        return sum(runtime.receiver.waiters for runtime in self.gateway.queue_runtimes)


@pytest.fixture(params=["direct", "application"])
def served(request, tmp_path, monkeypatch):
    monkeypatch.setattr(authorization, "_LONGEST_TIMER_SECONDS", 0.1)
    path = tmp_path / "babelgate.yaml"
    file = {"url": f"sqlite:///{tmp_path}/babelgate.db", "timeout_seconds": 30}
    path.write_text(json.dumps({"state_dir": str(tmp_path), "brokers": {"local": file}}))
    found = settings.load(path, {})
    Served.callers = {hashlib.sha256(b"other").hexdigest(): Caller("other", {"*": frozenset(Right)})}

    def build():
        Served.loop = asyncio.get_running_loop()
        gateway = Served.gateway = build_gateway(found)
        auth = Auth(Served.callers)
        api = create_api(gateway, auth=auth, limits=RequestLimits(), stream=Streaming(gateway).serve)
        direct = DirectEndpoints(gateway, auth) if request.param == "direct" else None
        return App(api, gateway, Shedder(Pacer(time.thread_time), gateway.has_backlog), direct=direct)

    with (
        serving(uvicorn_config(build, found)) as (host, port),
        Served(
            base_url=f"http://{host}:{port}/queues/q/",
            timeout=LIMIT_SECONDS,
            headers={"authorization": "Bearer mine"},
        ) as client,
    ):
        yield client


def ends(how):
    """When a caller that ends in this way does before :meth:`Served.end`."""
    return FAR if how == "time" else None


def only_its_end_ends_it(served):
    """Stop the timers of the long polls."""
    for runtime in served.gateway.queue_runtimes:
        for waiter in runtime.receiver._waiting:
            waiter.timer.cancel()


def publish(client):
    answer = client.post("messages", json=DRAFT, headers={"authorization": "Bearer other"})
    assert answer.status_code == 201


@pytest.mark.parametrize("how", ENDINGS)
def test_requests_are_refused_after_the_end(served, how):
    caller = served.renew(ends(how))
    assert served.post("messages", json=DRAFT).status_code == 201
    assert served.post("messages", json=DRAFT).status_code == 201
    served.end(caller, how)
    eventually(lambda: served.post("messages", json=DRAFT).status_code == 401)
    problem(served.post("./messages:receive", json={}), 401, "unauthenticated")
    problem(served.get(""), 401, "unauthenticated")
    # Another credential of the same text begins anew.
    served.renew(FAR)
    assert served.post("messages", json=DRAFT).status_code == 201


@pytest.mark.parametrize("how", ENDINGS)
def test_a_long_poll_ends_without_messages(served, how):
    caller = served.renew(ends(how))
    answers = []
    polling = threading.Thread(
        target=lambda: answers.append(served.post("./messages:receive", json={"wait_seconds": 30}))
    )
    polling.start()
    eventually(served.waiting)
    served.loop.call_soon_threadsafe(only_its_end_ends_it, served)
    served.end(caller, how)
    polling.join(LIMIT_SECONDS)
    assert answers[0].json() == {"messages": []}
    publish(served)
    problem(served.post("./messages:receive", json={}), 401, "unauthenticated")


def test_a_long_poll_that_was_answered_leaves_nothing_behind(served):
    caller = served.renew(FAR)
    publish(served)
    got = served.post("./messages:receive", json={"wait_seconds": 30}).json()
    assert len(got["messages"]) == 1
    assert not caller._endings


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_a_stream_ends_with_a_problem_and_its_messages_are_given_back(served, how, accept):
    caller = served.renew(ends(how))
    publish(served)
    with served.stream("GET", "./messages:stream", headers={"accept": accept}) as answer:
        seen = events(answer)
        assert next(event for event in seen if event[0] != "keep_alive")[0] == "message"
        served.end(caller, how)
        ((name, data),) = [event for event in seen if event[0] != "keep_alive"]
    assert (name, data["code"]) == ("problem", "unauthenticated")
    assert not caller._endings
    served.renew(FAR)
    received = []

    def has_come_back():
        received.extend(served.post("./messages:receive", json={}).json()["messages"])
        return bool(received)

    eventually(has_come_back)
    assert received[0]["attempts"] == 0


@pytest.mark.parametrize("how", ENDINGS)
def test_a_web_socket_ends_with_a_problem(served, how):
    caller = served.renew(ends(how))
    address = str(served.base_url).replace("http:", "ws:") + "messages:stream"
    headers = {"authorization": "Bearer mine"}
    with connect(address, additional_headers=headers, open_timeout=LIMIT_SECONDS, compression=None) as socket:
        served.end(caller, how)
        found = json.loads(socket.recv(LIMIT_SECONDS))
        assert (found["event"], found["data"]["code"]) == ("problem", "unauthenticated")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(LIMIT_SECONDS)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    publish(served)
    served.renew(FAR)
    assert len(served.post("./messages:receive", json={"wait_seconds": 20}).json()["messages"]) == 1
