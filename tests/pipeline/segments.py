"""Writes journals with the gateway's own buffer, segments and landing code."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

from babelgate.observe.events import Event, EventKind, Facts
from babelgate.observe.journal.buffer import Buffer
from babelgate.observe.journal.frames import Compression
from babelgate.observe.journal.record import Record, new_epoch, parse_segment
from babelgate.observe.journal.segments import Segments, first_at
from babelgate.observe.journal.stores import store

START = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
DAY = 86_400_000


class Writer:
    """A process of the gateway ``node`` that began at ``START`` and whose segments land in ``landing``."""

    def __init__(
        self,
        landing: Path,
        node: str = "a",
        compression: Compression = "gzip",
        *,
        bodies: bool = False,
        meta: Iterable[str] = (),
        limit: int = 1 << 30,
    ) -> None:
        self.at = START
        self.epoch = new_epoch(START, os.urandom(4))
        self.node = node
        self._landing = landing
        self._store = store(str(landing), compression)
        self._store.prepare()
        self._buffer = Buffer(node, self.epoch, limit, lambda: self.at, bodies=bodies, meta=tuple(meta))
        self._open = landing.parent / f"open-{self.epoch}"
        self._segments = Segments(self._open, node, self.epoch, 1 << 30, 3600, self._land)
        self._landed: list[Path] = []
        self._chance = random.Random(node)

    def happened(self, kind: EventKind, count: int = 1, queue: str = "orders", bodies: Iterable[bytes] = ()) -> None:
        """An event about ``count`` messages, 10 ms after the one before."""
        self.at += 10
        messages = [
            Facts(0, f"id-{self._chance.getrandbits(64):x}", "trace", "urn:babel:test:made", self.at, "go", 120)
            for _ in range(count)
        ]
        self._buffer.observe(Event(kind, queue, "main", count, messages=messages, bodies=list(bodies)))

    def land(self, count: int = 0) -> Path:
        """Add ``count`` accepted messages, and land all there is; the file."""
        for _ in range(count):
            self.happened("accepted")
        lines = self._buffer.take()
        self._segments.append(lines)
        self._buffer.written(len(lines))
        self._segments.close()
        return self._landed[-1]

    def _land(self, path: Path) -> None:
        segment = parse_segment(path.name)
        assert segment is not None
        name = segment.landed(first_at(path, segment))
        self._store.put(path, name)
        path.unlink()
        (found,) = (self._landing / name).parent.glob(f"{path.name}.*")
        self._landed.append(found)


Key = tuple[str, str, int]


def keys(records: Iterable[Record]) -> list[Key]:
    """What tells records apart, in order."""
    return sorted((record.node, record.epoch, record.seq) for record in records)
