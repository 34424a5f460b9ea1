"""Reads whole journals back from the disk."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import zstandard

from babelgate.observe.events import Event, EventKind, Facts
from babelgate.observe.journal.record import Record, decode, parse_segment

MESSAGE = Facts(0, "id-1", "trace-1", "urn:babel:test:made", 1_700_000_000_000, "go", 120)


def happened(kind: EventKind = "accepted", *messages: Facts, count: int | None = None) -> Event:
    """An event about ``messages`` (none: one that is known)."""
    told = messages or (MESSAGE,)
    return Event(kind, "orders", "main", len(told) if count is None else count, messages=told)


def numbers(records: Iterable[Record]) -> list[int]:
    return [record.seq for record in records]


def kept(directory: Path) -> list[Path]:
    """What is in the directory of open segments, beside the index."""
    return sorted(path for path in directory.iterdir() if path.name != "index")


def landed(landing: Path) -> list[Path]:
    """The files that a reader of the landing folder sees, in the order of their names."""
    seen = [path for path in landing.rglob("*.ndjson*") if not path.relative_to(landing).parts[0].startswith(".")]
    assert all(path.suffix in (".gz", ".zst") for path in seen)
    return sorted(seen, key=lambda path: path.name)


def records(path: Path) -> list[Record]:
    """All of a file, open, closed or landed; fails on a line that is torn or is no record."""
    return lines(unpacked(path.read_bytes(), path.name), path.name)


def unpacked(packed: bytes, name: str) -> bytes:
    """The text of a file, by the ending of its name."""
    if name.endswith(".gz"):
        return gzip.decompress(packed)
    return zstandard.ZstdDecompressor().stream_reader(packed).read() if name.endswith(".zst") else packed


def lines(text: bytes, name: str) -> list[Record]:
    assert text.endswith(b"\n"), f"{name} ends in a torn line"
    return [decode(line) for line in text[:-1].split(b"\n")]


def read(*directories: Path) -> list[Record]:
    """All records below the directories, by process and number; each comes once, none is missing in between."""
    paths = [path for directory in directories for path in directory.rglob("*") if parse_segment(path.name)]
    found = [record for path in paths for record in records(path)]
    check_numbers(found)
    return sorted(found, key=lambda record: (record.node, record.epoch, record.seq))


def check_numbers(found: Sequence[Record]) -> None:
    """Fail where a process's records are not numbered 1, 2, 3, …"""
    by_process: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for record in found:
        by_process[record.node, record.epoch].append(record.seq)
    for process, seqs in by_process.items():
        assert sorted(seqs) == list(range(1, len(seqs) + 1)), f"{process} has holes, or records twice"
