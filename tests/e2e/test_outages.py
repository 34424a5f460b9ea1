"""What a gateway logs while its broker is gone, under load: two lines, and nothing for each request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers import registry
from tests.harness.broker import Broker, Variant
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import eventually
from tests.harness.world import until

PATIENCE = 240.0
DRAFT = {"job": "urn:babel:test:made", "data": {}}
_OF_LONG_OUTAGES = (
    "broker still lost",
    "a lock was not renewed",
    "the member of the consumer group has failed",
)
"""On a busy machine a broker takes longer to start: a minute, after which it is told again, the time of a lock, or that
of a member's session."""


def told(process: GatewayProcess) -> list[dict[str, Any]]:
    """What was logged about brokers, and all that is a warning or worse."""
    worth = [
        line
        for line in process.logged()
        if line["logger"] == "babelgate.gateway.outages" or line["level"] not in ("debug", "info")
    ]
    return [line for line in worth if line["event"] not in _OF_LONG_OUTAGES]


class Load:
    """Clients that publish, receive with and without a wait, and ack, up to 20 times a second each."""

    def __init__(self, client: httpx.AsyncClient, queue: str) -> None:
        self._client = client
        self._path = f"queues/{queue}/messages"
        self.running = True
        self.hung = False
        self.empty = 0
        """Receives that began and ended while the broker hung, and were told that nothing is there."""
        self.failed = 0
        self.answered = 0

    async def run(self) -> None:
        clients = [self._publish, self._publish, self._poll, self._wait]
        await asyncio.gather(*(self._repeat(each) for each in clients * 3))

    async def _repeat(self, call: Any) -> None:
        while self.running:
            await call()
            await asyncio.sleep(0.05)

    async def _post(self, verb: str, body: Any) -> Any:
        answer = await self._client.post(f"{self._path}{verb}", json=body)
        self.answered += answer.status_code < 300
        self.failed += answer.status_code in (503, 504)
        assert answer.status_code < 300 or answer.status_code in (409, 503, 504), answer.text
        return answer.json()

    async def _publish(self) -> None:
        await self._post("", DRAFT)

    async def _poll(self) -> None:
        received = await self._receive({"max_messages": 10, "lease_seconds": 1})
        if tokens := [message["ack_token"] for message in received.get("messages", ())]:
            await self._post(":ack", {"ack_tokens": tokens})

    async def _wait(self) -> None:
        await self._receive({"wait_seconds": 1, "lease_seconds": 1})

    async def _receive(self, body: Any) -> Any:
        hung = self.hung
        received = await self._post(":receive", body)
        self.empty += hung and self.hung and received.get("messages") == []
        return received


def is_calm(process: GatewayProcess) -> bool:
    return not (lines := told(process)) or lines[-1]["event"] == "broker back"


async def outage(directory: Path, broker: Broker, queue: str, *, hung: bool) -> list[dict[str, Any]]:
    """What was logged while ``broker`` was gone under load, until it was back. A busy machine may lose it again."""
    config = {"brokers": {"main": {"url": broker.url, "timeout_seconds": 2}}, "default": broker.route()}
    with gateway(directory, config) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=120) as client:
            load = Load(client, queue)
            running = asyncio.create_task(load.run())
            # A busy broker that has just started may be lost and back before.
            await eventually(lambda: load.answered > 50 and is_calm(process), PATIENCE)
            before = len(told(process))
            async with broker.hung() if hung else broker.outage():
                load.hung = hung
                await eventually(lambda: load.failed > (30 if hung else 300), PATIENCE)
                assert [line["event"] for line in told(process)[before:]] == ["broker lost"]
                load.hung = False
            assert load.empty == 0
            await eventually(lambda: len(told(process)) > before + 1, PATIENCE)
            load.running = False
            await running
        process.stop()
        return told(process)[before : before + 2]


@pytest.fixture(params=[False, True], ids=["gone", "hung"])
def hung(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


def check(lines: list[dict[str, Any]]) -> None:
    assert [line["event"] for line in lines] == ["broker lost", "broker back"], lines
    lost, back = lines
    assert (lost["broker"], lost["level"]) == ("main", "warning") and lost["reason"]
    assert back["broker"] == "main" and back["failed_calls"] > 0 and back["seconds"] > 0


@pytest.mark.parametrize("variant", registry.params(registry.WITH_SERVER))
async def test_a_broker_with_a_server(
    tmp_path: Path, servers: registry.Servers, variant: Variant, queue: str, hung: bool
) -> None:
    check(await outage(tmp_path, servers.broker(variant, tmp_path), queue, hung=hung))


@pytest.mark.redis
async def test_a_hung_broker_shows_its_circuit_and_stops_no_other(tmp_path: Path, servers: registry.Servers) -> None:
    """Publishes are refused before they are sent, with the time after which to try again."""
    redis = servers.broker(registry.HARNESSES["redis"][0], tmp_path)
    config = {
        "brokers": {
            "cache": {"url": redis.url, "timeout_seconds": 2},
            "local": {"url": f"sqlite:///{tmp_path / 'local.db'}"},
        },
        "queues": {"far": {"broker": "cache"}},
        "default": {"broker": "local"},
    }
    with gateway(tmp_path, config) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=120) as client:

            async def circuits(path: str = "/brokers") -> dict[str, str]:
                return {state["broker"]: state["circuit"] for state in (await client.get(path)).json()["brokers"]}

            async def metric() -> list[str]:
                lines = (await client.get("/metrics")).text.split("\n")
                return [line for line in lines if line.startswith("babelgate_open_circuits")]

            async def publish(queue: str) -> httpx.Response:
                return await client.post(f"/queues/{queue}/messages", json=DRAFT)

            async def refused_unsent() -> bool:
                return "the circuit is open" in (await publish("far")).json().get("detail", "")

            assert (await publish("far")).status_code == 201
            assert await circuits() == {"cache": "closed", "local": "closed"}
            async with redis.hung():
                await until(refused_unsent)
                refused = await publish("far")
                assert (refused.json()["code"], refused.headers["retry-after"]) == ("broker_unavailable", "1")
                assert "the circuit is open" in refused.json()["detail"]
                assert (await publish("near")).status_code == 201
                for path in ("/brokers", "/readyz?verbose"):
                    assert await circuits(path) == {"cache": "open", "local": "closed"}
                assert 'babelgate_open_circuits{broker="cache"} 1.0' in await metric()

            async def closed() -> bool:
                return (await publish("far")).status_code == 201

            await until(closed)
            assert await circuits() == {"cache": "closed", "local": "closed"}
            assert 'babelgate_open_circuits{broker="cache"} 0.0' in await metric()
