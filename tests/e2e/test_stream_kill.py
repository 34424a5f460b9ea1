"""kill -9 of gateways whose consumers stream: what was accepted is delivered, what was acked never comes again."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.brokers import registry
from tests.e2e.test_kill import COUNT, LEASE, check, replicas
from tests.harness.broker import Broker
from tests.harness.traffic import NOTHING, Client, Traffic

pytestmark = pytest.mark.slow

VARIANTS = [variant for variant in registry.ORDINARY if variant.broker.kind in ("sqlite", "redis", "rabbitmq")]


@pytest.fixture(params=registry.params(VARIANTS))
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    """A broker that outlives the gateways."""
    return servers.broker(request.param, tmp_path)


class Streamed(Traffic):
    """Consumers with a stream each. What one gateway streams, another one settles."""

    async def _consume(self, index: int) -> None:
        url, settling = self._urls[index % len(self._urls)], self._client(index + 1)
        host = urlsplit(url)
        loop = asyncio.get_running_loop()
        query = f"max_in_flight=20&lease_seconds={self._lease}"
        head = f"GET {self._path}:stream?{query} HTTP/1.0\r\nAccept: application/x-ndjson\r\n\r\n".encode()
        idle_since = loop.time()
        while True:
            writer = None
            try:
                reader, writer = await asyncio.open_connection(host.hostname, host.port)
                writer.write(head)
                if b" 200 " not in await reader.readuntil(b"\r\n\r\n"):
                    continue
                while True:
                    try:
                        line = await asyncio.wait_for(reader.readline(), 0.5)
                    except TimeoutError:
                        silent = loop.time() - max(self._last_delivery, idle_since)
                        if not self._publishing and silent > self._lease + self._spare + 1 and await self._is_empty():
                            settling.close()
                            return
                        continue
                    if not line.endswith(b"\n"):
                        break
                    await self._take(json.loads(line), settling)
            except (OSError, EOFError):
                self.tally.unanswered["stream"] += 1
                await asyncio.sleep(0.05)
            finally:
                if writer is not None:
                    writer.transport.abort()

    async def _take(self, event: dict[str, Any], settling: Client) -> None:
        if event["event"] != "message":
            return
        self._last_delivery = asyncio.get_running_loop().time()
        message = event["data"]
        number = self.tally.deliver(message)
        answer = await self._post(
            settling, "ack", f"{self._path}:ack", json.dumps({"ack_tokens": [message["ack_token"]]}).encode()
        )
        if answer is None or answer[0] != 200:
            # The stream would keep the lease. It ends, so that the message comes again if it is not settled.
            raise ConnectionError("the ack has no answer")
        self.tally.acked.add(number)


@pytest.mark.parametrize("count", [1, 2])
async def test_streams(tmp_path: Path, broker: Broker, queue: str, count: int) -> None:
    with ExitStack() as stack:
        victims = replicas(stack, tmp_path, broker, count)
        traffic = Streamed([victim.url for victim in victims], queue, LEASE, broker.spare_seconds)
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run(COUNT))
            for third in (1, 2):
                await traffic.accepted(COUNT * third // 3)
                victim = victims[third % len(victims)]
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.start)
        assert await traffic.left() in NOTHING, "something was left behind"
        assert traffic.tally.unanswered["stream"] > 0 or traffic.tally.unanswered["publish"] > 0
        check(traffic.tally, COUNT, twice=set() if broker.capabilities.native_release else traffic.tally.failed)
