"""Keeps the pauses and resumes of queues in a file, which all processes with one ``state_dir`` share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from babelgate.gateway.pauses import PauseChange, remembered
from babelgate.runtime.files import StateFile

_changes = msgspec.json.Decoder(list[PauseChange])


class PauseFile(StateFile[list[PauseChange]]):
    """``pauses.json`` in a directory: all changes, none without a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "pauses.json", _changes, list, "is damaged, and pauses nothing if it is removed")

    def merge(self, changes: Iterable[PauseChange]) -> list[PauseChange]:
        """Keep those of ``changes`` that count, and return all; the file is only written if one is new.

        Blocks for a few file operations. Raises StateUnavailable.
        """

        def merged(stored: list[PauseChange]) -> list[PauseChange]:
            known = {each.queue: each for each in stored}
            new = {each.queue: each for each in changes if each.is_newer_than(known.get(each.queue))}
            return remembered((known | new).values()) if new else stored

        return self.change(merged)
