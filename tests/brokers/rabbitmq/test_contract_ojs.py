"""The contract, on RabbitMQ in the jobs of OJS."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pamqp.commands import Basic

from app.brokers.rabbitmq.options import queue_of
from app.brokers.rabbitmq.profile import NativeMessage
from tests.brokers.rabbitmq.harness import RabbitBroker, RabbitServer, browse
from tests.suites.attempts import TestAttempts
from tests.suites.dead_letters import TestDeadLetters
from tests.suites.events import TestEvents
from tests.suites.hung import TestHung
from tests.suites.life import TestLife
from tests.suites.publish import TestPublish
from tests.suites.receive import TestReceive
from tests.suites.redrive import TestRedrive
from tests.suites.settle import TestSettle

__all__ = [
    "TestAttempts",
    "TestDeadLetters",
    "TestEvents",
    "TestHung",
    "TestLife",
    "TestPublish",
    "TestReceive",
    "TestRedrive",
    "TestSettle",
]

pytestmark = pytest.mark.rabbitmq


class OjsBroker(RabbitBroker):
    """The server, with the options of a route whose messages are jobs."""

    async def dead(self, queue: str) -> Sequence[bytes]:
        """The records that the jobs at rest stand for."""
        profile = queue_of(queue, self.queue_options).profile
        found = await asyncio.to_thread(browse, self.url, profile.dead_queue)
        return [
            profile.read_dead(
                NativeMessage(
                    body, Basic.Properties(properties.content_type, headers=properties.headers), "", "", False
                )
            ).body
            for properties, body in found
        ]


@pytest.fixture(params=["classic", "quorum"])
def broker(request: pytest.FixtureRequest, rabbit: RabbitServer) -> OjsBroker:
    return OjsBroker(rabbit, {"profile": "ojs", "queue_type": request.param})
