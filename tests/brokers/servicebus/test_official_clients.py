"""Microsoft's clients on the other end of a queue of the emulator, both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.brokers.servicebus.harness import ServiceBusBroker
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness.world import World
from tests.official.programs import Official
from tests.suites.official import OfficialClients

pytestmark = [pytest.mark.servicebus, pytest.mark.slow]


class TestServiceBus(OfficialClients):
    rejected_letters = 1

    def contract(self, job: str, trace_id: str, message_id: str) -> dict[str, str]:
        ids = {"CorrelationId": trace_id, "MessageId": message_id}
        return {"Subject": job, "ContentType": "application/json", **ids}

    @pytest.fixture
    def client(self, emulator: ServiceBusEmulator, language: str) -> Official:
        return Official("servicebus", language, emulator.connection_string())

    @pytest.fixture
    async def world(self, emulator: ServiceBusEmulator, queue: str) -> AsyncIterator[World]:
        """Gateways on the emulator."""
        made = World(ServiceBusBroker(emulator), queue)
        yield made
        await made.close()
