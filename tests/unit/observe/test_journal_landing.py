"""The landing of segments, without a thread: what is repeated after a failure, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from babelgate.observe.journal.landing import Landing


class Store:
    """A store that keeps every segment that it gets, as a topic does."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def put(self, source: Path, name: str) -> tuple[str, list[tuple[int, int]]]:
        self.names.append(source.name)
        return f"{name}.zst", [(1, 1)]


class Indexing:
    """An index that fails once."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def add(self, segment: Path, landed: str, sizes: list[tuple[int, int]]) -> None:
        self.asked.append(landed)
        if len(self.asked) == 1:
            raise OSError("the disk is full")
        assert sizes == [(1, 1)]


def test_a_segment_that_was_not_indexed_does_not_land_again(tmp_path: Path) -> None:
    path = tmp_path / "a-018bcfe568001a2b3c4d-000001.ndjson"
    path.write_bytes(b'{"at":1700000000000}\n')
    store, indexing = Store(), Indexing()
    landing = Landing(tmp_path, cast(Any, store), cast(Any, indexing))
    landing.add(path)
    assert (landing._land(), path.exists(), landing.waiting) == (False, True, 1)
    assert (landing._land(), path.exists(), landing.waiting) == (True, False, 0)
    assert store.names == [path.name]
    assert len({*indexing.asked}) == 1
    assert landing._unindexed == {}
