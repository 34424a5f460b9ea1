"""A topic that does not answer, or cannot: each call ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from babelgate.brokers.kafka import topics
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable
from babelgate.observe.journal.index import Index
from babelgate.observe.journal.indexing import Indexing
from babelgate.observe.journal.keys import INDEX
from tests.harness.local import eventually


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


async def test_a_damaged_index_of_a_topic_begins_again(tmp_path: Path) -> None:
    """It cannot be made again, because a topic has no list of its segments."""
    store, index = topics.TopicStore("kafka://127.0.0.1/journal", "zstd"), Index(tmp_path / INDEX, now_ms)
    index.prepare()
    index.set_aside(index.files()[0])
    assert index.damaged() != []
    Indexing(tmp_path, lambda: store, now_ms).prepare()
    await eventually(lambda: index.damaged() == [])
    assert len(index.files()) == 1
    assert not index.prepare(), "the next start finds nothing to do"
    index.close()
