"""The shutdown of the application."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
from starlette.types import Message

from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.observe.journal.writer import Journal, Options
from babelgate.observe.metrics.otlp import OtlpMetrics
from babelgate.observe.tracing.trace import Tracing
from babelgate.server.application import App
from babelgate.server.overload import Pacer, Shedder
from tests.harness.journal import read
from tests.harness.memory import MemoryBinding
from tests.harness.world import KEYS, draft


class Meeting:
    """Something to close that ends only while others are being closed as well."""

    def __init__(self, meeting: asyncio.Barrier) -> None:
        self._meeting = meeting

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    async def sent(self) -> None:
        await self._meeting.wait()


class MeetingTracing(Tracing):
    def __init__(self, meeting: asyncio.Barrier) -> None:
        super().__init__()
        self._meeting = meeting

    async def close(self) -> None:
        await self._meeting.wait()


async def test_a_collector_that_hangs_is_waited_for_once() -> None:
    """The last spans and the last metrics are sent at the same time."""
    meeting = asyncio.Barrier(2)
    binding = MemoryBinding()
    gateway = Gateway(
        {binding.name: binding}, Router([], Rule("*", binding)), TokenSealer(KEYS), tracing=MeetingTracing(meeting)
    )
    metrics = cast(OtlpMetrics, Meeting(meeting))
    app = App(nobody, gateway, Shedder(Pacer(lambda: 0.0), gateway.has_backlog), [metrics], otlp=metrics)
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    told: list[str] = []

    async def receive() -> Message:
        return {"type": next(asked)}

    async def send(message: Message) -> None:
        told.append(message["type"])

    async with asyncio.timeout(120):
        await app({"type": "lifespan"}, receive, send)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def nobody(*given: object) -> None:
    raise AssertionError("no request is made")


class Stuck:
    """A part that cannot end."""

    async def start(self) -> None:
        return

    async def close(self) -> None:
        raise RuntimeError("no end")


async def test_a_part_that_fails_to_end_keeps_nothing_else_from_it(tmp_path: Path) -> None:
    binding = MemoryBinding()
    journal = Journal(Options(landing=str(tmp_path / "landing"), open_directory=tmp_path / "open"))
    gateway = Gateway(
        {binding.name: binding}, Router([], Rule("*", binding)), TokenSealer(KEYS), observe=journal.observe
    )
    shedder = Shedder(Pacer(lambda: 0.0), gateway.has_backlog)

    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    told: list[str] = []

    async def receive() -> Message:
        kind = next(asked)
        if kind == "lifespan.shutdown":
            await gateway.publish(ANYONE, "q", draft({}))
        return {"type": kind}

    async def send(message: Message) -> None:
        told.append(message["type"])

    app = App(nobody, gateway, shedder, [Stuck()], journal)
    with pytest.raises(RuntimeError, match="no end"):
        await app({"type": "lifespan"}, receive, send)
    assert told == ["lifespan.startup.complete"]
    assert [record.event for record in read(tmp_path / "landing")] == ["accepted"]
