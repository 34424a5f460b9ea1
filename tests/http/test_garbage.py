"""Finished requests are freed at once, because the garbage collector would free cycles and their bodies late."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from babelgate.errors import BrokerUnavailable
from babelgate.http.exchange import Exchange
from babelgate.server.application import App
from tests.harness.asgi import Call, part

DRAFT = b'{"job":"urn:babel:garbage:made","data":{"n":1}}'
BAD = b'{"job":"","data":{"n":1}}'
QUEUE = "/queues/rubbish"


def post(path: str, body: bytes = b"", **headers: str) -> Call:
    return Call("POST", QUEUE + path, [part(body, more=False)], content_length=str(len(body)), **headers)


def listed(*bodies: bytes) -> bytes:
    return b"[" + b",".join(bodies) + b"]"


REQUESTS: dict[str, tuple[Callable[[], Call], int]] = {
    "publish": (lambda: post("/messages", DRAFT), 201),
    "publish what is no envelope": (lambda: post("/messages", BAD), 422),
    "publish what is no JSON": (lambda: post("/messages", b"{"), 400),
    "publish what is no gzip": (lambda: post("/messages", DRAFT, content_encoding="gzip"), 400),
    "publish too much": (lambda: post("/messages", b"x" * 1_200_000), 413),
    "publish without a type": (lambda: post("/messages", DRAFT, content_type="text/plain"), 415),
    "publish under a bad key": (lambda: post("/messages", DRAFT, idempotency_key="ä"), 400),
    "batch": (lambda: post("/messages:batch", listed(DRAFT, DRAFT)), 201),
    "batch with a bad one": (lambda: post("/messages:batch", listed(DRAFT, BAD)), 207),
    "upload with a bad one": (
        lambda: post("/messages:batch", DRAFT + b"\n" + BAD + b"\n", content_type="application/x-ndjson"),
        207,
    ),
    "receive": (lambda: post("/messages:receive"), 200),
    "wait for nothing": (lambda: Call("POST", "/queues/empty/messages:receive?wait_seconds=0.05"), 200),
    "ack with a bad token": (lambda: post("/messages:ack", b'{"ack_token":"x"}'), 400),
    "settle with bad tokens": (lambda: post("/messages:settle", b'{"acks":["x","y"]}'), 207),
    "validate": (lambda: post("/messages:validate", BAD), 422),
    "peek": (lambda: Call("GET", QUEUE + "/messages:peek"), 200),
    "dead letters": (lambda: Call("GET", QUEUE + "/dead-letters"), 200),
    "queue": (lambda: Call("GET", QUEUE), 200),
    "bad parameter": (lambda: Call("GET", QUEUE + "/messages:peek?limit=x"), 400),
    "nothing there": (lambda: Call("GET", "/nowhere"), 404),
    "wrong method": (lambda: Call("DELETE", QUEUE + "/messages"), 405),
    "metrics": (lambda: Call("GET", "/metrics"), 200),
}


@contextmanager
def collected() -> Iterator[list[Any]]:
    """What of a request or of our code only the collector of cycles frees."""
    found: list[Any] = []
    gc.collect()
    gc.freeze()  # What was there before is not looked at again.
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [each for each in gc.garbage if _is_ours(each)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        # All stays frozen: the collections of the tests that follow would look at all that pytest has collected.
        gc.enable()


def _is_ours(each: object) -> bool:
    if isinstance(each, FrameType):
        return each.f_globals.get("__name__", "").startswith("babelgate.")
    return isinstance(each, Exchange)


async def left_by(use: Callable[[], Awaitable[None]]) -> list[Any]:
    """What of ours three uses leave to the collector; the first one, which warms up, apart."""
    await use()
    with collected() as left:
        for _ in range(3):
            await use()
        # What was done for them in passing ends too.
        await asyncio.sleep(0.01)
    return left


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_leaves_no_cycle(app: App, name: str) -> None:
    make, status = REQUESTS[name]

    async def use() -> None:
        assert (await make().run(app)).status == status

    assert await left_by(use) == []


async def test_nor_does_a_failure_of_the_broker(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def publish(*_: object) -> None:
        raise BrokerUnavailable(broker="default", reason="it is away")

    async def use() -> None:
        assert (await post("/messages", DRAFT).run(app)).status == 503
        assert (await post("/messages:batch", listed(DRAFT, DRAFT)).run(app)).status == 207

    await post("/messages", DRAFT).run(app)
    monkeypatch.setattr(app.gateway.bindings["local"], "publish", publish)
    assert await left_by(use) == []


async def test_nor_a_client_that_hangs_up(app: App) -> None:
    async def use() -> None:
        call = Call("POST", "/queues/empty/messages:receive?wait_seconds=30")
        running = asyncio.create_task(call.run(app))
        await asyncio.sleep(0.05)
        call.hang_up()
        await running

    assert await left_by(use) == []


async def test_nor_whoever_gets_and_acks(app: App) -> None:
    async def use() -> None:
        await post("/messages", DRAFT).run(app)
        received = await post("/messages:receive", b'{"max_messages":10}').run(app)
        tokens = [message["ack_token"] for message in received.json()["messages"]]
        assert (await post("/messages:ack", json.dumps({"ack_tokens": tokens}).encode()).run(app)).status == 200

    assert await left_by(use) == []
