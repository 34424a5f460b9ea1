"""kill -9 under clients that send each message again under its key until they get an answer.

Where key and message are one transaction, each key ends with exactly one message. Elsewhere a key whose call was cut
off is answered as such for good, and has one message or none; never two.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers import registry
from tests.harness.broker import Broker, Variant
from tests.harness.gateway import ForkedGateway, GatewayProcess

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("BABELGATE_TEST_KILLS", "2"))
"""How many blows a test deals; more of them by hand."""
CLIENTS = 8
BATCH = 5
PAUSE = 0.05
"""Seconds of a client between two calls, and between two tries of one."""
TRIES = 50
"""Of a key that is answered as unknown, or as under way, before its client gives up."""
UNSETTLED = {409, 504}
RETRIED = {429, 503} | UNSETTLED


class Insistent:
    """Clients that know what they were told under each key: the id of the message, or that it is unknown."""

    def __init__(self, urls: list[str], queue: str) -> None:
        self.ids: dict[str, str] = {}
        self.unknown: set[str] = set()
        self.calls: list[list[str]] = []
        self.repeated = 0
        self.stopped = False
        self._alone: set[str] = set()
        self._urls = urls
        self._path = f"/queues/{queue}/messages"
        self._numbers = itertools.count()

    async def run(self, client: int) -> None:
        """Publish until stopped, one message or several at a time."""
        async with httpx.AsyncClient(base_url=self._urls[client % len(self._urls)], timeout=120) as http:
            while not self.stopped:
                keys = [f"key-{next(self._numbers)}" for _ in range(BATCH if client % 2 else 1)]
                self.calls.append(keys)
                self._alone.update(keys if len(keys) == 1 else ())
                await self.insist(http, keys)
                await asyncio.sleep(PAUSE)

    async def insist(self, http: httpx.AsyncClient, keys: list[str]) -> None:
        """Send the messages of ``keys`` until each has its answer."""
        tries: Counter[tuple[str, int]] = Counter()
        while keys:
            keys = [key for key, result in await self._send(http, keys) if not self._told(key, result, tries)]
            if keys:
                await asyncio.sleep(PAUSE)

    async def _send(self, http: httpx.AsyncClient, keys: list[str]) -> list[tuple[str, dict[str, Any] | None]]:
        try:
            if keys[0] in self._alone:
                headers = {"idempotency-key": f'"{keys[0]}"'}
                answer = await http.post(self._path, content=_draft(keys[0]), headers=_JSON | headers)
                return [(keys[0], answer.json() | {"status": answer.status_code})]
            body = b"[" + b",".join(_entry(key) for key in keys) + b"]"
            answer = await http.post(f"{self._path}:batch", content=body, headers=_JSON)
            results = answer.json().get("results") or [answer.json()] * len(keys)
            return list(zip(keys, results, strict=True))
        except httpx.TransportError:
            return [(key, None) for key in keys]

    def _told(self, key: str, result: dict[str, Any] | None, tries: Counter[tuple[str, int]]) -> bool:
        """Whether that is the answer; keeps it."""
        if result is not None and result["status"] == 201:
            self.repeated += tries[key, 0] > 0
            assert self.ids.setdefault(key, result["id"]) == result["id"], "another message than before"
            return True
        if result is not None:
            assert result["status"] in RETRIED, result
            tries[key, result["status"]] += 1
            if any(tries[key, status] > TRIES for status in UNSETTLED):
                self.repeated += tries[key, 0] > 0
                self.unknown.add(key)
                return True
        tries[key, 0] += 1
        return False


_JSON = {"content-type": "application/json"}


def _draft(key: str) -> bytes:
    return json.dumps({"job": "urn:babel:test:once", "data": {"key": key}}).encode()


def _entry(key: str) -> bytes:
    return b'{"envelope":%s,"idempotency_key":"%s"}' % (_draft(key), key.encode())


def replicas(stack: ExitStack, directory: Path, config: dict[str, Any], count: int = 2) -> list[GatewayProcess]:
    """Ready gateways that share their token key and brokers."""
    started = []
    for index in range(count):
        home = directory / f"gateway-{index}"
        home.mkdir()
        replica = ForkedGateway(home, {"state_dir": str(directory), **config})
        stack.callback(replica.close)
        started.append(replica.start())
    return started


def drained(gateway: GatewayProcess, queue: str) -> dict[str, list[str]]:
    """All that lies on the queue: the ids of the messages of each key."""
    found: dict[str, list[str]] = {}
    with gateway.client() as client:
        while True:
            answer = client.post(f"/queues/{queue}/messages:receive", json={"max_messages": 100, "wait_seconds": 0.5})
            # Without a list: the broker has not answered a busy machine in time.
            messages = answer.json().get("messages", ())
            for message in messages:
                envelope = message["envelope"]
                found.setdefault(envelope["data"]["key"], []).append(envelope["meta"]["id"])
            if tokens := [message["ack_token"] for message in messages]:
                assert client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": tokens}).status_code == 200
                continue
            stats = client.get(f"/queues/{queue}").json()["stats"]
            # A broker that a busy machine makes slow may bring nothing for a while.
            if not (stats["depth"] or stats["in_flight"]):
                return found


async def blows(gateways: list[GatewayProcess], queue: str, others: list[Callable[[], Awaitable[None]]]) -> Insistent:
    """Clients at work while gateways, and ``others``, are struck at random moments; all answers, in the end."""
    clients = Insistent([gateway.url for gateway in gateways], queue)
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(clients.run(number))
        for number in range(KILLS):
            await asyncio.sleep(random.uniform(0.1, 0.7))
            if others and number % 2:
                await random.choice(others)()
                continue
            victim = gateways[number % len(gateways)]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start, ready=False)
        await asyncio.sleep(0.3)
        clients.stopped = True
    assert clients.repeated > 0, "the blows hit nothing"
    return clients


def restarts(broker: Broker) -> list[Callable[[], Awaitable[None]]]:
    """A kill and a start of the broker's server, if it has one."""
    return [] if broker.embedded else [broker.kill]


KEEPERS = [variant for variant in registry.ORDINARY if variant.keeps_keys]
KEYLESS = [variant for variant in registry.ORDINARY if not variant.keeps_keys]


@pytest.mark.parametrize("variant", registry.params(KEEPERS))
async def test_key_and_message_in_one_transaction(
    variant: Variant, servers: registry.Servers, tmp_path: Path, queue: str
) -> None:
    broker = servers.broker(variant, tmp_path)
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, {"brokers": {"main": broker.url}})
        clients = await blows(gateways, queue, restarts(broker))
        assert clients.unknown == set()
        found = drained(gateways[0], queue)
        assert found == {key: [id] for key, id in clients.ids.items()}
        async with httpx.AsyncClient(base_url=gateways[1].url, timeout=120) as http:
            for keys in random.sample(clients.calls, min(len(clients.calls), 200)):
                await clients.insist(http, keys)
        assert drained(gateways[0], queue) == {}, "an answer that was told again wrote a message"
        print(f"{len(found)} keys, {clients.repeated} sent more than once, {KILLS} blows")


@pytest.mark.parametrize("variant", registry.params(KEYLESS))
async def test_keys_beside_the_queue(variant: Variant, servers: registry.Servers, tmp_path: Path, queue: str) -> None:
    store = servers.broker(KEEPERS[-1], tmp_path)
    broker = servers.broker(variant, tmp_path)
    brokers = {"main": broker.url, "keys": store.url}
    config = {"brokers": brokers, "default": broker.route(), "idempotency": {"store": "keys"}}
    with ExitStack() as stack:
        gateways = replicas(stack, tmp_path, config)
        clients = await blows(gateways, queue, restarts(store))
        found = drained(gateways[0], queue)
        assert {key: ids for key, ids in found.items() if len(ids) > 1} == {}, "published twice"
        assert {key: found.get(key) for key in clients.ids} == {key: [id] for key, id in clients.ids.items()}
        assert found.keys() <= clients.ids.keys() | clients.unknown
        print(f"{len(found)} keys, {clients.repeated} sent more than once, {len(clients.unknown)} unknown")
