"""Asks the other workers of one gateway for their metrics and rates; metrics of dead workers are kept in files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from babelgate.cluster.asking import Answer, Asked, ask
from babelgate.cluster.client import Address, PeerClient
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import METRICS_PATH, RATES_PATH, decode_rates
from babelgate.gateway.rates import RatesQuery
from babelgate.observe.logs import get_logger
from babelgate.observe.metrics.catalogue import CATALOGUE
from babelgate.observe.metrics.instruments import Snapshot, decode, encode, merged
from babelgate.observe.rates import RatesReport
from babelgate.runtime.files import FileLock

ANSWER_SECONDS = 1.0
"""Time-out for the answer of a worker."""
PATIENT_SECONDS = 300.0
"""Maximum time-out for an answer that takes longer."""
KEPT_FILES = 16
"""Maximum number of files of dead workers; more are folded into one file."""
_TRIES = 5
_NAME = re.compile(r"([0-9a-f]{16})-([0-9]+)")
_FOLDED = "folded"
_KEPT_METRICS = frozenset(metric.otel for metric in CATALOGUE if metric.kind != "gauge")

log = get_logger(__name__)


class WorkerReport(NamedTuple):
    """The metrics of the other workers, and how many of them answered (``up``) or exist and did not (``silent``)."""

    snapshots: list[Snapshot]
    up: int
    silent: int


class _Folded(Struct):
    """The summed metrics of dead workers, and the names of the workers in it whose files may still exist."""

    names: list[str] = []
    numbers: msgspec.Raw = msgspec.Raw(b"[]")


class Workers:
    """The other processes that have a file in ``directory``, which belongs to this gateway alone.

    Counts never fall: a process writes its metrics to its file before it sends them, and the file replaces the answer
    of a process that is dead or busy. Later counts are missing then; if the process was killed, they are lost.
    """

    def __init__(self, incarnation: str, directory: Path, sockets: SocketDirectory, signer: Signer) -> None:
        self._own = directory / f"{incarnation}-{os.getpid()}"
        self._directory = directory
        self._sockets = sockets
        self._client = PeerClient(signer, ANSWER_SECONDS)
        self._patient_client = PeerClient(signer, PATIENT_SECONDS)
        self._writing = asyncio.Lock()

    @property
    def can_be_asked(self) -> bool:
        """Whether workers have the sockets on which they ask each other."""
        return self._sockets.is_bound

    async def write_own(self, text: bytes) -> None:
        """Write the metrics of this process to its file; a failure is logged."""
        async with self._writing:
            try:
                await asyncio.to_thread(_write, self._own, text)
            except OSError as error:
                log.warning("metrics not written for the other workers", error=error)

    async def start(self) -> None:
        """Make this process known to the others, where it has no metrics to write."""
        await self.write_own(encode({}))

    async def rates(self, query: RatesQuery) -> tuple[list[RatesReport], int]:
        """The reports of the other workers, and how many were silent; takes about 1 s at most. A dead one has none."""
        answers = await self.ask_all("POST", RATES_PATH, msgspec.json.encode(query), decode_rates)
        reports = [asked.answer for asked in answers.values() if asked.answer is not None]
        return reports, sum(asked.state == "silent" for asked in answers.values())

    async def ask_all(
        self,
        method: str,
        path: str,
        body: bytes,
        decode: Callable[[bytes], Answer],
        seconds: float = ANSWER_SECONDS,
    ) -> dict[int, Asked[Answer]]:
        """What each of the other workers answers within ``seconds``, by its process. Never raises."""
        names = await asyncio.to_thread(self._listed)
        answers = await asyncio.gather(*(self._ask(name, method, path, body, decode, seconds) for name in names))
        found: dict[int, Asked[Answer]] = {}
        for name, asked in zip(names, answers, strict=True):
            # A dead worker may have had the process id of a living one.
            if asked.state != "gone" or _pid(name) not in found:
                found[_pid(name)] = asked
        return found

    async def read(self) -> WorkerReport:
        """The metrics of all other workers; takes about 1 s at most."""
        for _ in range(_TRIES):
            # A file that disappears after it was listed has been folded: read all again.
            with contextlib.suppress(FileNotFoundError):
                return await self._read_all()
        log.warning("metrics of the other workers not found", directory=self._directory)
        return WorkerReport([], 0, 0)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()
        await self._patient_client.close()

    async def _read_all(self) -> WorkerReport:
        listed = self._listed()
        folded = _folded(self._directory)
        names = [name for name in listed if name not in folded.names]
        answers = await asyncio.gather(*map(self._read, names))
        states = [state for _, state in answers]
        dead = [name for name, state in zip(names, states, strict=True) if state == "gone" and not _runs(name)]
        if len(dead) > KEPT_FILES:
            await asyncio.to_thread(_fold, self._directory, dead)
        snapshots = [decode(folded.numbers), *(snapshot for snapshot, _ in answers)]
        return WorkerReport(snapshots, states.count("up"), states.count("silent"))

    async def _read(self, name: str) -> tuple[Snapshot, str]:
        snapshot, state, _ = await self._ask(name, "GET", METRICS_PATH, b"", decode)
        return (_kept(self._directory / name) if snapshot is None else snapshot), state

    def _listed(self) -> list[str]:
        """The names of the files of the other workers."""
        return [name for name in os.listdir(self._directory) if _NAME.fullmatch(name) and name != self._own.name]

    async def _ask(
        self,
        name: str,
        method: str,
        path: str,
        body: bytes,
        decode: Callable[[bytes], Answer],
        seconds: float = ANSWER_SECONDS,
    ) -> Asked[Answer]:
        incarnation = name.partition("-")[0]
        socket_path = self._sockets.find(incarnation)
        if socket_path is None:
            return Asked(None, "gone")
        client = self._client if seconds <= ANSWER_SECONDS else self._patient_client
        asked = await ask(client, Address(socket_path), method, path, incarnation, body, decode, seconds)
        if asked.state == "silent":
            log.warning("a worker did not answer", path=path, incarnation=incarnation, error=asked.reason)
        return asked


def _write(path: Path, text: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(text)
    draft.replace(path)


def _kept(path: Path) -> Snapshot:
    """The counters and histograms in a file, without gauges. Raises FileNotFoundError."""
    try:
        kept = decode(path.read_bytes())
    except msgspec.MsgspecError as error:
        log.warning("metrics file not readable", path=path, error=error)
        return {}
    return {metric: values for metric, values in kept.items() if metric in _KEPT_METRICS}


def _runs(name: str) -> bool:
    """Whether the process still runs: it may be about to write its last metrics."""
    try:
        os.kill(_pid(name), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _pid(name: str) -> int:
    return int(name.partition("-")[2])


def _folded(directory: Path) -> _Folded:
    try:
        return msgspec.json.decode((directory / _FOLDED).read_bytes(), type=_Folded)
    except FileNotFoundError:
        return _Folded()


def _fold(directory: Path, dead: Sequence[str]) -> None:
    """Sum the files of ``dead`` and the folded file into a new folded file; only one process at a time does it."""
    with FileLock(directory / "folding", create_mode=0o666) as lock:
        if not lock.try_acquire():
            return
        before = _folded(directory)
        names = [name for name in dead if name not in before.names and (directory / name).exists()]
        total = merged([decode(before.numbers), *(_kept(directory / name) for name in names)])
        # A name stays in the folded file until its own file is removed, so that no reader adds both.
        left = [name for name in before.names if (directory / name).exists()]
        _write(directory / _FOLDED, msgspec.json.encode(_Folded([*left, *names], msgspec.Raw(encode(total)))))
        for name in (*left, *names):
            (directory / name).unlink(missing_ok=True)
