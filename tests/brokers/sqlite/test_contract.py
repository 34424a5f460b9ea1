"""The contract, on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.sqlite.harness import SqliteBroker
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


@pytest.fixture
def broker(tmp_path: Path) -> SqliteBroker:
    """A file of the test's own."""
    return SqliteBroker(tmp_path)
