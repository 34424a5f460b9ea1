"""What the gateway reports reaches every observer, and comes back from none."""

from __future__ import annotations

import pytest

from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.observe.events import Call, Event, fan_out
from tests.harness.memory import MemoryBinding
from tests.harness.observed import events_into
from tests.harness.world import KEYS, draft


async def test_an_observer_that_fails_is_nobodys_answer(caplog: pytest.LogCaptureFixture, queue: str) -> None:
    """The broker has the message: a client that was told of a failure would send it again."""
    events: list[Event] = []

    def failing(reported: Event | Call) -> None:
        raise RuntimeError("of an observer")

    binding = MemoryBinding()
    gateway = Gateway(
        {binding.name: binding},
        Router([], Rule("*", binding)),
        TokenSealer(KEYS),
        observe=fan_out([failing, events_into(events)]),
    )
    receipt = await gateway.publish(ANYONE, queue, draft({}))
    (message,) = await gateway.receive(ANYONE, queue)
    assert [(event.kind, event.messages[0].message_id) for event in events] == [
        ("accepted", receipt.id),
        ("delivered", receipt.id),
    ]
    assert message.trace_id == receipt.trace_id
    assert "an observer failed" in caplog.text and "RuntimeError" in caplog.text
