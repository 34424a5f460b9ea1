"""Reads a journal back from a topic of Kafka."""

from __future__ import annotations

import gzip
import time

import zstandard
from confluent_kafka.admin import AdminClient

from babelgate.observe.journal.record import Record
from tests.brokers.kafka.harness import create, read, settings
from tests.harness.journal import lines


def create_topic(port: int, topic: str, partitions: int = 1) -> None:
    """Create a topic, and wait until the broker knows it: it hears of it after the controller has answered."""
    create(port, topic, partitions=partitions)
    wait_for_leaders(port, topic, partitions)


def wait_for_leaders(port: int, topic: str, partitions: int) -> None:
    """Wait until each partition can be written: a broker answers before that, after its start."""
    admin, end = AdminClient(settings(port)), time.monotonic() + 120
    while True:
        known = admin.list_topics(timeout=60).topics.get(topic)
        if known is not None and [each.leader for each in known.partitions.values()] == [1] * partitions:
            return
        assert time.monotonic() < end, f"{topic} has no leaders"
        time.sleep(0.1)


def frames(port: int, topic: str) -> list[tuple[str, list[Record]]]:
    """The key and the records of each message, by partition and offset."""
    found = []
    for each in read(port, topic):
        key, value = each.key(), each.value()
        assert key is not None and value is not None
        found.append((key.decode(), lines(plain(value), topic)))
    return found


def plain(frame: bytes) -> bytes:
    """The lines of a message, without any other."""
    if frame.startswith(b"\x1f\x8b"):
        return gzip.decompress(frame)
    return zstandard.ZstdDecompressor().decompress(frame)


def landed_in(port: int, topic: str) -> list[Record]:
    """The records of a topic, each once, by process and number."""
    found = {(each.node, each.epoch, each.seq): each for _, records in frames(port, topic) for each in records}
    return [found[key] for key in sorted(found)]
