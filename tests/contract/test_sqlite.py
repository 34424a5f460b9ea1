"""The contract, on SQLite."""

from __future__ import annotations

from pathlib import Path

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
from tests.harness.sqlite import SqliteBroker

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
