"""``python -m bench.outage``: what clients see while a broker hangs, and its neighbour's clients meanwhile.

One gateway has a queue on the broker and a queue on SQLite. Clients publish to both without a pause. The broker's
server is stopped (SIGSTOP) for some seconds and goes on. Printed are the times until the circuit opens and closes, the
time of a refusal while it is open, and the times of publishes to the neighbour before, during and after.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.calls import ENVELOPE
from tests.brokers.registry import HARNESSES, WITH_SERVER
from tests.harness.gateway import GatewayProcess, gateway

CLIENTS = 8
PAUSE_SECONDS = 0.005
CALM_SECONDS, HUNG_SECONDS = 5.0, 12.0
TIMEOUT_SECONDS = 2


@dataclass(frozen=True, slots=True)
class _Sample:
    """One request: when it began and ended, in seconds, and its answer."""

    began: float
    ended: float
    status: int
    body: bytes

    @property
    def unsent(self) -> bool:
        """Whether it was refused because the circuit is open."""
        return b"the circuit is open" in self.body


async def _publish(client: httpx.AsyncClient, path: str, samples: list[_Sample], until: asyncio.Event) -> None:
    headers = {"content-type": "application/json"}
    while not until.is_set():
        began = time.monotonic()
        answer = await client.post(path, content=ENVELOPE, headers=headers)
        samples.append(_Sample(began, time.monotonic(), answer.status_code, answer.content))
        await asyncio.sleep(PAUSE_SECONDS)


def _milliseconds(samples: Sequence[_Sample]) -> str:
    times = sorted((each.ended - each.began) * 1000 for each in samples)
    if len(times) < 2:
        return "too few"
    p99 = times[int(len(times) * 0.99)]
    return f"p50 {statistics.median(times):.1f} ms, p99 {p99:.1f}, max {times[-1]:.1f} ({len(times)} requests)"


async def _measure(url: str, hang: contextlib.AbstractAsyncContextManager[None]) -> None:
    far: list[_Sample] = []
    near: list[_Sample] = []
    ended = asyncio.Event()
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(_publish(client, "/queues/far/messages", far, ended))
            group.create_task(_publish(client, "/queues/near/messages", near, ended))
        await asyncio.sleep(CALM_SECONDS)
        stopped = time.monotonic()
        async with hang:
            await asyncio.sleep(HUNG_SECONDS)
        resumed = time.monotonic()
        await asyncio.sleep(CALM_SECONDS)
        ended.set()
    unsent = [each for each in far if each.unsent]
    opened = min((each.ended for each in unsent), default=0.0)
    closed = min(each.ended for each in far if each.began > resumed and each.status == 201)
    print(f"the circuit was open {opened - stopped:.1f} s after the stop, and closed {closed - resumed:.2f} s after it")
    print(f"  refused while it was open: {_milliseconds([each for each in unsent if each.began > opened])}")
    for name, since, until in (("before", 0.0, stopped), ("during", stopped, resumed), ("after", resumed, 1e12)):
        print(f"  the neighbour {name}: {_milliseconds([each for each in near if since <= each.began < until])}")
    if wrong := {each.status for each in near} - {201}:
        raise AssertionError(f"publishes to the neighbour ended with {wrong}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="A hung broker.")
    kinds = [variant.broker.kind for variant in WITH_SERVER]
    parser.add_argument("--broker", choices=kinds, default="redis")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(HARNESSES[asked.broker][0].start(directory))
        config = {
            "brokers": {
                "main": {"url": broker.url, "timeout_seconds": TIMEOUT_SECONDS},
                "local": {"url": f"sqlite:///{directory / 'local.db'}"},
            },
            "queues": {"near": {"broker": "local"}},
            "default": broker.route(),
        }
        process = stack.enter_context(gateway(directory, config, kind=GatewayProcess))
        asyncio.run(_measure(process.url, broker.hung()))


if __name__ == "__main__":
    main()
