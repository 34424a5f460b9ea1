"""The contract, on RabbitMQ in quorum queues."""

from __future__ import annotations

import pytest

from tests.contract.suite_attempts import TestAttempts
from tests.contract.suite_dead_letters import TestDeadLetters
from tests.contract.suite_events import TestEvents
from tests.contract.suite_hung import TestHung
from tests.contract.suite_life import TestLife
from tests.contract.suite_publish import TestPublish
from tests.contract.suite_receive import TestReceive
from tests.contract.suite_redrive import TestRedrive
from tests.contract.suite_settle import TestSettle
from tests.harness.rabbitmq import RabbitBroker, RabbitServer

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

# A restart of the broker takes three seconds, and many more on a busy machine.
pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(90)]


@pytest.fixture
def broker(rabbit: RabbitServer) -> RabbitBroker:
    """The server, with a route of quorum queues."""
    return RabbitBroker(rabbit, {"queue_type": "quorum"})
