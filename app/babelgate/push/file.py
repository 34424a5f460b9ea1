"""Keeps the pushes that were set by calls in a file, which all processes with one ``state_dir`` share."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from babelgate.push.targets import PushTarget
from babelgate.runtime.files import StateFile

MAX_REMOVED = 1_000
"""Removals that are remembered, the newest: a gateway that was away for longer may know an older push."""

Version = tuple[int, str]
"""Of two versions of a push the greater one counts, on all gateways: Unix ms, and a random word."""

NO_VERSION: Version = (0, "")


class StoredPush(Struct, frozen=True):
    """What calls have set for a queue. ``target`` None: that of the configuration, which is only paused; and not paused
    either: what calls had set was removed. ``at`` and ``change``: the version."""

    target: PushTarget | None = None
    paused: bool = False
    at: int = 0
    change: str = ""

    @property
    def version(self) -> Version:
        """See :data:`Version`."""
        return self.at, self.change

    @property
    def is_set(self) -> bool:
        """Whether it was not removed."""
        return self.target is not None or self.paused


Stored = dict[str, StoredPush]
"""By queue."""

NOTHING: Stored = {}

stored_pushes = msgspec.json.Decoder(Stored)


class PushFile(StateFile[Stored]):
    """``pushes.json`` in a directory: all that is stored. It has secrets."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "pushes.json", stored_pushes, dict)


def merged(stored: Stored, others: Stored) -> Stored:
    """``stored``, with those of ``others`` that count, and without the oldest removals."""
    new = {name: push for name, push in others.items() if push.version > stored.get(name, StoredPush()).version}
    if not new:
        return stored
    found = stored | new
    removed = sorted((push.version, name) for name, push in found.items() if not push.is_set)
    for _, name in removed[:-MAX_REMOVED]:
        del found[name]
    return found
