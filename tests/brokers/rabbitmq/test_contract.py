"""The contract, on RabbitMQ in the classic queues of the SDKs."""

from __future__ import annotations

import pytest

from tests.brokers.rabbitmq.harness import RabbitBroker, RabbitServer
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


@pytest.fixture
def broker(rabbit: RabbitServer) -> RabbitBroker:
    """The server, with the options of an ordinary route."""
    return RabbitBroker(rabbit)
