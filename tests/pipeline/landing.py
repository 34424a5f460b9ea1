"""Builds a journal event by event, and lands it as a gateway does."""

from __future__ import annotations

import gzip

import msgspec

from babelgate.observe.journal.record import Record, Segment, encode

START = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
DAY = 86_400_000
EPOCH = "0" * 19 + "1"
_KINDS = {"acked": "acked", "nacked": "nacked", "rejected": "rejected"}


class Landing:
    """Segments, as a gateway would land them."""

    def __init__(self, folder):
        self.folder = folder / "landing"
        self.folder.mkdir()
        self._records = []

    @staticmethod
    def at(after):
        """Unix ms of what is ``after`` ms from the start."""
        return START + after

    def event(self, event, at, message_id, seq=None, **facts):
        """The next record of the process, ``at`` ms after the start."""
        known = {
            "lease_seconds": None,
            "queue": "orders",
            "broker": "main",
            "job": "urn:babel:orders:created",
            "trace_id": "trace-1",
            "created_at": START,
            "lang": "php",
            "bytes": 120,
            "attempts": 0,
            "outcome": _KINDS.get(event),
        }
        told = {**known, "v": 1, "node": "a", "epoch": EPOCH, "seq": seq or len(self._records) + 1}
        told |= {"event": event, "at": START + at, "message_id": message_id, **facts}
        self._records.append(msgspec.convert(told, Record))

    def land(self):
        name = Segment("a", EPOCH, 1).landed(START) + ".gz"
        path = self.folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(b"".join(encode(record) + b"\n" for record in self._records)))
