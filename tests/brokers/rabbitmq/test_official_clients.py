"""RabbitMQ's official clients on the other end of a queue, both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.brokers.rabbitmq.harness import RabbitBroker
from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness.world import World
from tests.official.programs import Official
from tests.suites.official import OfficialClients

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


class TestRabbitMq(OfficialClients):
    returned_attempts = 0

    def contract(self, job: str, trace_id: str, message_id: str) -> dict[str, str]:
        ids = {"correlation_id": trace_id, "message_id": message_id}
        return {"content_type": "application/json", "type": job, "app_id": "babelqueue", **ids}

    @pytest.fixture
    def client(self, rabbit: RabbitServer, language: str) -> Official:
        return Official("rabbitmq", language, f"{rabbit.url()}%2F")

    @pytest.fixture
    async def world(self, rabbit: RabbitServer, queue: str) -> AsyncIterator[World]:
        """Gateways on the server."""
        made = World(RabbitBroker(rabbit), queue)
        yield made
        await made.close()
