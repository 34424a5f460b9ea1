"""Reads of a topic that end: by what was asked for, or by an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from babelgate.brokers.kafka import topics
from babelgate.errors import BrokerUnavailable


class Message:
    """A message of partition 0, behind the end that is asked for."""

    def error(self) -> None:
        """It is no error."""

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 5


class Consumer:
    """Partition 0 gets a new message each second, and partition 1 has no leader."""

    def __init__(self) -> None:
        self.seconds = 0

    def poll(self, _: float) -> Message:
        self.seconds += 1
        assert self.seconds < 1000, "it reads for ever"
        return Message()

    def assign(self, _: Any) -> None:
        """Nothing is to do."""

    def unassign(self) -> None:
        """Nothing is to do."""


def test_messages_behind_the_end_do_not_hide_that_a_partition_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, consumer = topics.TopicReader("kafka://127.0.0.1/journal", {}), Consumer()
    reader._consumer = consumer
    monkeypatch.setattr(topics, "time", SimpleNamespace(monotonic=lambda: consumer.seconds))
    with pytest.raises(BrokerUnavailable, match="no answer within 30 s"):
        reader.read([0, 0], [5, 5], 100, 1 << 20)
