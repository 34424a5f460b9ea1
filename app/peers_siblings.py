"""The workers of one gateway: each tells its numbers to the one that is asked, and what it told outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from app.observe.logs import get_logger
from app.observe.metrics_catalogue import CATALOGUE
from app.observe.metrics_cells import Snapshot, decode
from app.peers_client import Address, Gone, PeerClient, Silent, Stranger, Unreachable
from app.peers_signing import Signer
from app.peers_sockets import SocketDirectory
from app.peers_wire import METRICS_PATH

ANSWER_SECONDS = 1.0
"""How long a sibling has to tell its numbers."""
_LASTING = frozenset(metric.otel for metric in CATALOGUE if metric.kind != "gauge")

log = get_logger("babelgate.peers")


class Told(NamedTuple):
    """The numbers of the siblings, and how many of these answered, or are there and did not."""

    snapshots: list[Snapshot]
    up: int
    silent: int


class Siblings:
    """The other processes that have a file in ``directory``, which is this gateway's own.

    Counts never fall: a process writes its numbers to its file before it tells them, and where one does not answer,
    dead or busy, its file stands for it. What it counted after that is missing, for good where it was killed.
    """

    def __init__(self, incarnation: str, directory: Path, sockets: SocketDirectory, signer: Signer) -> None:
        self._own = directory / incarnation
        self._directory = directory
        self._sockets = sockets
        self._client = PeerClient(signer, ANSWER_SECONDS)
        self._writing = asyncio.Lock()

    async def keep(self, text: bytes) -> None:
        """Write the numbers of this process down; a failure is logged."""
        async with self._writing:
            try:
                await asyncio.to_thread(_write, self._own, text)
            except OSError as error:
                log.warning("numbers not kept for the other workers", error=error)

    async def ask(self) -> Told:
        """The numbers of all others: at most 1 s, or a little more on a busy machine."""
        try:
            names = [name for name in os.listdir(self._directory) if name != self._own.name and "." not in name]
        except OSError:
            names = []
        answers = await asyncio.gather(*map(self._ask, names))
        snapshots = [snapshot for snapshot, _ in answers]
        states = [state for _, state in answers]
        return Told(snapshots, states.count("up"), states.count("silent"))

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _ask(self, name: str) -> tuple[Snapshot, str]:
        state = "gone"
        place = self._sockets.find(name)
        if place is not None:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    text = await self._client.call(Address(place), "GET", METRICS_PATH, name)
                return decode(text), "up"
            except (Gone, Stranger):
                pass
            except (Unreachable, Silent, TimeoutError, msgspec.MsgspecError) as error:
                state = "silent"
                log.warning("a worker did not tell its numbers", incarnation=name, error=error)
        kept: Snapshot = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            kept = decode((self._directory / name).read_bytes())
        return {metric: values for metric, values in kept.items() if metric in _LASTING}, state


def _write(place: Path, text: bytes) -> None:
    draft = place.with_suffix(".new")
    draft.write_bytes(text)
    draft.replace(place)
