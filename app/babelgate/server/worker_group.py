"""Loads one configuration in all workers of a gateway, or in none.

The worker that has the turn prepares a configuration, and lets all others prepare it. If one refuses, all drop it. Else
it is accepted, and all switch to it. A worker that dies meanwhile does not stop it: its successor starts with what
is accepted. If the one that has the turn dies, the others look whether its configuration was accepted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from babelgate.cluster.asking import Asked
from babelgate.cluster.sealing import PeerCipher
from babelgate.cluster.shared_configuration import Proposal, SharedConfiguration
from babelgate.cluster.wire import CONFIGURATION_PATH, decode_configuration_answer
from babelgate.cluster.worker_metrics import ANSWER_SECONDS, Workers
from babelgate.config.origin import from_text
from babelgate.config.settings import Settings
from babelgate.config.token_keys import token_keys
from babelgate.errors import ConfigError
from babelgate.gateway.loaded import (
    REFUSALS,
    ConfigurationAnswer,
    ConfigurationCall,
    Refusal,
    ReloadUnavailable,
    RestartNeeded,
    WorkerConfiguration,
    problems_of,
)
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.backoff import Backoff
from babelgate.runtime.files import FileLock

PREPARE_SECONDS = 120.0
"""How long a worker has to prepare a configuration: it opens brokers, each within its time-out."""
AGAIN_SECONDS = 10.0
"""How long a worker that gave no answer is asked again. On a busy machine a killed one is not gone at once."""
APPLY_SECONDS = 10.0
"""How long all are waited for once a configuration is accepted. A slower one serves by it when it gets to it."""
FOLLOW_SECONDS = 1.0
"""How often a worker looks whether it has missed a call."""
TURN_SECONDS = 0.05
"""How often a worker tries to get its turn."""
APART = "the workers cannot reach each other: restart the process to apply a change"

log = get_logger(__name__)

Ready = TypeVar("Ready")


class Loads(Protocol[Ready]):
    """The part of a process that prepares and switches. See :class:`babelgate.server.reload.Reload`."""

    async def prepare(self, settings: Settings) -> Ready:
        """Everything that can fail or wait. Raises one of REFUSALS."""

    async def apply(self, ready: Ready, candidate: Proposal) -> None:
        """Serve by it."""

    async def discard(self, ready: Ready) -> None:
        """Drop what was prepared."""

    def refused_elsewhere(self, refusal: ConfigurationCall) -> None:
        """Another worker, or this one, has refused a configuration."""

    def tried(self, file: bytes | None) -> None:
        """The file with this digest was read by another worker."""

    def served(self, code: str = "", problems: Sequence[tuple[str, str]] = ()) -> ConfigurationAnswer:
        """What this process serves."""


def shared_configuration(directory: Path, settings: Settings) -> SharedConfiguration:
    """The files in ``directory``, which the workers of one ``serve`` share. Raises ConfigError."""
    return SharedConfiguration(directory, PeerCipher(token_keys(settings)))


def settings_of(shared: SharedConfiguration, candidate: Proposal) -> Settings:
    """The configuration of ``candidate``, validated again. Raises ValueError for what no worker of this gateway has
    written, and ConfigError."""
    return from_text(shared.opened(candidate))


async def _taken(turn: FileLock) -> None:
    """Wait for the lock. Not in a thread, which could not be cancelled."""
    while True:
        if turn.try_acquire():
            return
        await asyncio.sleep(TURN_SECONDS)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class WorkerGroup(Generic[Ready]):
    """One worker among the others of its gateway."""

    def __init__(
        self,
        shared: SharedConfiguration,
        workers: Workers,
        process: Loads[Ready],
        serves: str = "",
        end: Callable[[], None] = _end,
    ) -> None:
        """``serves``: the id of the accepted candidate that this process has started with. ``end``: ends this worker
        gracefully, because it cannot serve what all others do; its successor starts with it."""
        self._shared = shared
        self._workers = workers
        self._process = process
        self._serves = serves
        self._end = end
        self._pending: tuple[Proposal, Ready] | None = None
        self._lock = asyncio.Lock()
        """Of what is pending, and of the switch."""
        self._watching: FileLock | None = None
        self._tasks: BackgroundTasks[None] = BackgroundTasks()

    async def start(self) -> None:
        """Serve what was accepted since this process has read its configuration, and follow from now on."""
        await self._follow_once()
        self._tasks.start(self._follow())

    async def close(self) -> None:
        """Follow no more; idempotent."""
        await self._tasks.cancel()
        if self._watching is not None:
            self._watching.close()
            self._watching = None
        if self._pending is not None:
            (_, ready), self._pending = self._pending, None
            await self._process.discard(ready)

    def watches(self) -> bool:
        """Whether this worker is the one that watches the file. One is, for as long as it lives."""
        if self._watching is None:
            lock = self._shared.watching()
            if not lock.try_acquire():
                lock.close()
                return False
            self._watching = lock
        return True

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Keep all others from loading a configuration, once those that came first have done so.

        Raises ReloadUnavailable where workers cannot reach each other.
        """
        if not self._workers.can_be_asked:
            raise ReloadUnavailable(key="peers.directory", reason=APART)
        with self._shared.turn() as turn:
            await _taken(turn)
            # A call of another worker waits for this lock only if that one has lost its turn.
            async with self._lock:
                await self._catch_up()
                yield

    async def agree(self, text: bytes, cause: str, file: bytes | None) -> Proposal:
        """Let all others prepare the settings of ``text`` (:attr:`babelgate.config.origin.Origin.text`), and accept
        them. Only in :meth:`turn`.

        Waits at most PREPARE_SECONDS for all, and about twice AGAIN_SECONDS more for those that gave no answer. Raises
        one of REFUSALS if one refuses, or gives no answer: nothing is accepted then.
        """
        candidate = await asyncio.to_thread(self._shared.propose, text, cause, file)
        try:
            await self._let_prepare(candidate)
            # A worker that is killed before this has changed nothing; after it, the others go on without it.
            self._shared.accept(candidate)
            self._serves = candidate.id
        except BaseException:
            self._shared.withdraw(candidate)
            raise
        return candidate

    async def _let_prepare(self, candidate: Proposal) -> None:
        call, began, backoff = ConfigurationCall("prepare", candidate.id), time.monotonic(), Backoff(0.1, AGAIN_SECONDS)
        answers = await self._ask(call, PREPARE_SECONDS)
        until = time.monotonic() + AGAIN_SECONDS
        while silent := [pid for pid, asked in answers.items() if asked.state == "silent"]:
            if time.monotonic() > until:
                break
            # One that was killed while it answered is soon gone and needs no answer. One that had no time gets some.
            await asyncio.sleep(backoff.failed())
            again = await self._ask(call, max(began + PREPARE_SECONDS - time.monotonic(), ANSWER_SECONDS))
            answers |= {pid: again.get(pid, Asked(None, "gone")) for pid in silent}
        for pid, asked in answers.items():
            if asked.state == "silent":
                raise ReloadUnavailable(key="workers", reason=f"worker {pid} gave no answer: {asked.reason}")
        for pid, asked in answers.items():
            if asked.answer is not None and asked.answer.code:
                problems = [(key, f"{reason} (worker {pid})") for key, reason in asked.answer.problems]
                kind = RestartNeeded if asked.answer.code == RestartNeeded.code else ConfigError
                raise kind(key=problems[0][0], reason=problems[0][1], problems=problems)

    async def tell_applied(self, candidate: Proposal) -> None:
        """Let all others serve by the accepted ``candidate``; waits for them, at most APPLY_SECONDS. Never raises."""
        await self._ask(ConfigurationCall("apply", candidate.id), APPLY_SECONDS)

    async def tell_refused(self, refusal: Refusal, file: bytes | None) -> None:
        """Let all others drop what they have prepared, and log why. Never raises."""
        call = ConfigurationCall("refuse", cause=refusal.cause, problems=refusal.problems, file=file)
        await self._ask(call, APPLY_SECONDS)

    async def others(self) -> Sequence[WorkerConfiguration]:
        """What all others serve."""
        answers = await self._ask(ConfigurationCall("show"), ANSWER_SECONDS)
        return [WorkerConfiguration(pid, asked.answer) for pid, asked in answers.items() if asked.state != "gone"]

    async def answer(self, call: ConfigurationCall) -> ConfigurationAnswer:
        """Answer the worker that has the turn."""
        if call.phase == "show":
            return self._process.served()
        async with self._lock:
            if call.phase == "prepare":
                return await self._prepare(call.id)
            if call.phase == "apply":
                await self._catch_up()
            else:
                await self._drop()
                self._process.tried(call.file)
                self._process.refused_elsewhere(call)
        return self._process.served()

    async def _prepare(self, name: str) -> ConfigurationAnswer:
        if self._pending is not None and self._pending[0].id == name:
            # Asked again, because the answer did not arrive.
            return self._process.served()
        try:
            await self._catch_up()
            candidate = await asyncio.to_thread(self._shared.candidate, name)
            self._process.tried(candidate.file)
            ready = await self._process.prepare(await asyncio.to_thread(settings_of, self._shared, candidate))
        except REFUSALS as error:
            return self._process.served(error.code, problems_of(error))
        except Exception as error:
            log.exception("configuration not prepared")
            return self._process.served(
                ConfigError.code, [("config", f"was not prepared: {type(error).__name__}: {error}")]
            )
        self._pending = candidate, ready
        log.info("configuration prepared", version=candidate.version)
        return self._process.served()

    async def _catch_up(self) -> None:
        """Serve what is accepted, and drop what is not. Raises what preparing raises."""
        accepted = self._shared.accepted()
        if accepted is None or accepted.id == self._serves:
            return await self._drop()
        if self._pending is not None and self._pending[0].id == accepted.id:
            ready = self._pending[1]
        else:
            await self._drop()
            ready = await self._process.prepare(await asyncio.to_thread(settings_of, self._shared, accepted))
        self._pending = None
        self._serves = accepted.id
        await self._process.apply(ready, accepted)

    async def _drop(self) -> None:
        if self._pending is not None:
            (candidate, ready), self._pending = self._pending, None
            log.info("prepared configuration dropped", version=candidate.version)
            await self._process.discard(ready)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            await self._follow_once()

    async def _follow_once(self) -> None:
        """Do what a call would have asked for that did not come, because its worker has died."""
        try:
            async with self._lock:
                try:
                    # Asked first: what is accepted before its worker lost the turn is seen then.
                    is_idle = self._pending is not None and self._shared.is_idle()
                    accepted = self._shared.accepted()
                except OSError as error:
                    # Such as too many open files, which says nothing of the configuration.
                    log.warning("accepted configuration not looked for: trying again", error=error)
                    return
                if is_idle or (accepted is not None and accepted.id != self._serves):
                    await self._catch_up()
        except Exception as error:
            log.error("this worker cannot serve the accepted configuration: it ends, and is replaced", error=error)
            self._end()

    async def _ask(self, call: ConfigurationCall, seconds: float) -> dict[int, Asked[ConfigurationAnswer]]:
        body = msgspec.json.encode(call)
        return await self._workers.ask_all("POST", CONFIGURATION_PATH, body, decode_configuration_answer, seconds)
