"""Clients that speak AMQP 1.0 on the other end of a queue of Artemis, both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.brokers.artemis.harness import ArtemisBroker
from tests.brokers.artemis.server import ArtemisServer
from tests.harness.world import World
from tests.official.programs import Official
from tests.suites.official import OfficialClients

pytestmark = [pytest.mark.artemis, pytest.mark.slow]


class TestArtemis(OfficialClients):
    # JMS reads its type from AMQP's subject; the contract has it in an annotation.
    hidden = frozenset({("java", "x-opt-jms-type")})

    def contract(self, job: str, trace_id: str, message_id: str) -> dict[str, str]:
        return {"body": "amqp-value", "correlation-id": trace_id, "x-opt-jms-type": job}

    @pytest.fixture
    def client(self, artemis: ArtemisServer, language: str) -> Official:
        return Official("artemis", language, f"amqp://127.0.0.1:{artemis.port}")

    @pytest.fixture
    async def world(self, artemis: ArtemisServer, queue: str) -> AsyncIterator[World]:
        """Gateways on the server."""
        made = World(ArtemisBroker(artemis), queue)
        yield made
        await made.close()
