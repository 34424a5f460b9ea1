"""The shutdown of the application."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.types import Message

from app.gateway.ack_tokens import TokenSealer
from app.gateway.authorization import ANYONE
from app.gateway.gateway import Gateway
from app.gateway.routing import Router, Rule
from app.observe.journal.writer import Journal, Options
from app.server.application import App
from app.server.overload import Pacer, Shedder
from tests.harness.journal import read
from tests.harness.memory import MemoryBinding
from tests.harness.world import KEYS, draft


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
    shedder = Shedder(Pacer(lambda: 0.0), gateway.crowded)

    async def nobody(*given: object) -> None:
        raise AssertionError("no request is made")

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
