"""Keeps the pushes that were set by calls in a file, which all processes with one ``state_dir`` share."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from babelgate.push.targets import PushTarget
from babelgate.runtime.files import StateFile


class StoredPush(Struct, frozen=True):
    """What calls have set for a queue. ``target`` None: that of the configuration, which is only paused."""

    target: PushTarget | None = None
    paused: bool = False


Stored = dict[str, StoredPush]
"""By queue."""

_stored = msgspec.json.Decoder(Stored)


class PushFile(StateFile[Stored]):
    """``pushes.json`` in a directory: all that is stored. It has secrets."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "pushes.json", _stored, dict)
