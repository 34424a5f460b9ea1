"""The workers of one gateway: each tells its numbers to the one that is asked, and what it told outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from app.cluster.client import Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from app.cluster.signing import Signer
from app.cluster.sockets import SocketDirectory
from app.cluster.wire import METRICS_PATH
from app.observe.logs import get_logger
from app.observe.metrics.catalogue import CATALOGUE
from app.observe.metrics.instruments import Snapshot, decode, encode, merged
from app.runtime.files import FileLock

ANSWER_SECONDS = 1.0
"""How long a sibling has to tell its numbers."""
KEPT_FILES = 16
"""So many files of dead siblings are read each time; more become one."""
_TRIES = 5
_NAME = re.compile(r"([0-9a-f]{16})-([0-9]+)")
_FOLDED = "folded"
_LASTING = frozenset(metric.otel for metric in CATALOGUE if metric.kind != "gauge")

log = get_logger("babelgate.peers")


class WorkerReport(NamedTuple):
    """The numbers of the siblings, and how many of these answered, or are there and did not."""

    snapshots: list[Snapshot]
    up: int
    silent: int


class _Folded(Struct):
    """The sum of dead siblings, and the names of those whose files may still be there."""

    names: list[str] = []
    numbers: msgspec.Raw = msgspec.Raw(b"[]")


class Workers:
    """The other processes that have a file in ``directory``, which is this gateway's own.

    Counts never fall: a process writes its numbers to its file before it tells them, and where one does not answer,
    dead or busy, its file stands for it. What it counted after that is missing, for good where it was killed.
    """

    def __init__(self, incarnation: str, directory: Path, sockets: SocketDirectory, signer: Signer) -> None:
        self._own = directory / f"{incarnation}-{os.getpid()}"
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

    async def ask(self) -> WorkerReport:
        """The numbers of all others: at most 1 s, or a little more on a busy machine."""
        for _ in range(_TRIES):
            # A file that is gone between the list and the look has been folded: then its numbers are there.
            with contextlib.suppress(FileNotFoundError):
                return await self._ask_all()
        log.warning("numbers of the other workers not found", directory=self._directory)
        return WorkerReport([], 0, 0)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _ask_all(self) -> WorkerReport:
        listed = [name for name in os.listdir(self._directory) if _NAME.fullmatch(name) and name != self._own.name]
        folded = _folded(self._directory)
        names = [name for name in listed if name not in folded.names]
        answers = await asyncio.gather(*map(self._ask, names))
        states = [state for _, state in answers]
        dead = [name for name, state in zip(names, states, strict=True) if state == "gone" and not _runs(name)]
        if len(dead) > KEPT_FILES:
            await asyncio.to_thread(_fold, self._directory, dead)
        snapshots = [decode(folded.numbers), *(snapshot for snapshot, _ in answers)]
        return WorkerReport(snapshots, states.count("up"), states.count("silent"))

    async def _ask(self, name: str) -> tuple[Snapshot, str]:
        state = "gone"
        incarnation = name.partition("-")[0]
        place = self._sockets.find(incarnation)
        if place is not None:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    text = await self._client.call(Address(place), "GET", METRICS_PATH, incarnation)
                return await asyncio.to_thread(decode, text), "up"
            except (PeerGone, NotAPeer):
                pass
            except (PeerUnreachable, PeerSilent, TimeoutError, msgspec.MsgspecError) as error:
                state = "silent"
                log.warning("a worker did not tell its numbers", incarnation=incarnation, error=error)
        return _kept(self._directory / name), state


def _write(place: Path, text: bytes) -> None:
    draft = place.with_suffix(".new")
    draft.write_bytes(text)
    draft.replace(place)


def _kept(place: Path) -> Snapshot:
    """What lasts of the numbers in a file. Raises FileNotFoundError."""
    try:
        kept = decode(place.read_bytes())
    except msgspec.MsgspecError as error:
        log.warning("numbers not readable", path=place, error=error)
        return {}
    return {metric: values for metric, values in kept.items() if metric in _LASTING}


def _runs(name: str) -> bool:
    """Whether there is a process of that name's number: it may be about to write its last numbers."""
    try:
        os.kill(int(name.partition("-")[2]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _folded(directory: Path) -> _Folded:
    try:
        return msgspec.json.decode((directory / _FOLDED).read_bytes(), type=_Folded)
    except FileNotFoundError:
        return _Folded()


def _fold(directory: Path, dead: Sequence[str]) -> None:
    """Make one file of the files of ``dead``, and of what was folded before; one process at a time does it."""
    with FileLock(directory / "folding", create_mode=0o666) as lock:
        if not lock.try_acquire():
            return
        before = _folded(directory)
        names = [name for name in dead if name not in before.names and (directory / name).exists()]
        total = merged([decode(before.numbers), *(_kept(directory / name) for name in names)])
        # Until its file is away a name is told: whoever finds both must not add both.
        left = [name for name in before.names if (directory / name).exists()]
        _write(directory / _FOLDED, msgspec.json.encode(_Folded([*left, *names], msgspec.Raw(encode(total)))))
        for name in (*left, *names):
            (directory / name).unlink(missing_ok=True)
