"""Reads a journal back from a topic of Kafka."""

from __future__ import annotations

import gzip

import zstandard

from babelgate.observe.journal.record import Record
from tests.brokers.kafka.harness import read
from tests.harness.journal import lines


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
