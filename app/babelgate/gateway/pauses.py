"""Paused queues: which queues hand nothing out, who paused them, and how all processes agree on it.

A process knows the last change of each queue that was ever paused, a resume included. Of two changes of a queue the
newer one counts, so processes agree as soon as they have seen the same changes, in whatever order. A process learns
changes from its callers, from the file that the processes of one ``state_dir`` share, and from its peers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from babelgate.clock import Clock, now_ms, utc_text
from babelgate.errors import BabelgateError, ConfigError, InvalidParameter, StateUnavailable
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.spreading import NobodyElse, OtherProcesses, spread_words
from babelgate.observe.audit.notes import note
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks

MAX_PAUSED = 1_000
"""Queues that may be paused at a time."""
MAX_RESUMED = 1_000
"""Resumes that are remembered, the newest: a process that was away for longer may know an older pause."""
MAX_REASON = 500
"""Characters of a reason."""
FILE_SECONDS = 1.0
"""How often a process looks whether another one has changed the file."""
PEERS_SECONDS = 15.0
"""How often a process compares its changes with those of its peers: one that did not answer may do so later."""

Publishes = Literal["accept", "refuse"]
"""What becomes of publishes to a paused queue."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


class QueuePaused(BabelgateError):
    """The queue {queue} is paused, and publishes to it are refused. This attempt published nothing. Repeat it later."""

    code = "queue_paused"
    retryable = True


class TooManyPaused(BabelgateError):
    """{limit} queues are paused already. Resume one of them first."""

    code = "too_many_paused"


class PauseChange(Struct, frozen=True, kw_only=True):
    """The last change of ``queue``: it was paused or resumed by the caller named ``by``.

    ``at``: Unix ms; it orders the changes of a queue. ``paused_at``: since when the queue is paused, before later
    changes of ``publishes`` or ``reason``. These belong to a pause only.
    """

    queue: str
    paused: bool
    at: int
    by: str
    paused_at: int = 0
    publishes: Publishes = "accept"
    reason: str | None = None

    def sentence(self) -> str:
        """The pause for people."""
        words = f"The queue {self.queue!r} has been paused since {utc_text(self.paused_at)} UTC, by {self.by}."
        if self.publishes == "refuse":
            words += " Publishes are refused."
        return words if self.reason is None else f"{words} Reason: {self.reason}"

    def is_newer_than(self, other: PauseChange | None) -> bool:
        """Whether this change counts. Of two changes within one millisecond the same one counts everywhere."""
        return other is None or self._rank() > other._rank()

    def leaves(self, pause: PauseChange | None) -> bool:
        """Whether the queue is as this change wants it while ``pause`` is in force."""
        if not self.paused or pause is None:
            return not self.paused and pause is None
        return (pause.publishes, pause.reason) == (self.publishes, self.reason)

    def _rank(self) -> tuple[int, bool, str, str, str]:
        return self.at, self.paused, self.by, self.publishes, self.reason or ""


class PauseOutcome(Struct, frozen=True, kw_only=True):
    """What became of a pause or a resume. ``pause``: the pause in force; None: the queue is resumed.

    ``kept``: whether ``state_dir`` has it, so that it outlives this process. ``told``: the other processes that know
    it. ``silent``: those that gave no answer, by their addresses; they learn it when they answer again. ``detail``: the
    same in a sentence.
    """

    queue: str
    pause: PauseChange | None
    kept: bool
    told: int
    silent: Sequence[str]
    detail: str


class PauseStore(Protocol):
    """Keeps changes for the processes of one host. Blocks for a few file operations."""

    def read(self) -> list[PauseChange]:
        """All changes. Raises StateUnavailable."""

    def news(self) -> list[PauseChange] | None:
        """All changes if a process may have written since the last call, else None. Raises StateUnavailable."""

    def merge(self, changes: Iterable[PauseChange]) -> list[PauseChange]:
        """Keep those of ``changes`` that count, and return all. Raises StateUnavailable."""


class Pauses:
    """The paused queues. A part of the application, which starts and closes it.

    ``refusing``: the queues that refuse publishes, for callers that ask often.
    """

    def __init__(
        self,
        clock: Clock = now_ms,
        store: PauseStore | None = None,
        check_route: Callable[[str], object] = lambda queue: None,
    ) -> None:
        """``store`` None: a pause ends with this process. ``check_route``: raises QueueNotFound."""
        self._clock = clock
        self._store = store
        self.peers: OtherProcesses[PauseChange] = NobodyElse()
        """The other processes. They are known once the gateway is."""
        self._check_route = check_route
        self._changes: dict[str, PauseChange] = {}
        self._paused: dict[str, PauseChange] = {}
        self.refusing: frozenset[str] = frozenset()
        self._resumed: dict[str, asyncio.Event] = {}
        """Set when the queue is resumed, where somebody waits for that."""
        self._tasks: BackgroundTasks[None] = BackgroundTasks()
        self.get = self._paused.get
        """The pause of a queue, by its name; None where it is not paused."""

    def in_force(self) -> list[PauseChange]:
        """The paused queues, by name, without those whose routes are gone."""
        found = []
        for queue in sorted(self._paused):
            with contextlib.suppress(BabelgateError):
                self._check_route(queue)
                found.append(self._paused[queue])
        return found

    def changes(self) -> list[PauseChange]:
        """All changes that this process knows."""
        return list(self._changes.values())

    async def start(self) -> None:
        """Learn what the file and the peers know, then keep up with them. Takes 3 s at most.

        Raises ConfigError for a file that cannot be read: a paused queue must not hand out by mistake.
        """
        if self._store is not None:
            try:
                self._adopt(await asyncio.to_thread(self._store.read), "state_dir")
            except StateUnavailable as error:
                raise ConfigError(key="state_dir", reason=f"the paused queues cannot be read: {error.reason}") from None
            self._tasks.start(self._watch_file(self._store))
        await self._compare()
        self._tasks.start(self._watch_peers())

    async def close(self) -> None:
        """Stop keeping up; idempotent."""
        await self._tasks.cancel()
        await self.peers.close()

    async def pause(
        self, caller: Caller, queue: str, publishes: Publishes = "accept", reason: str | None = None
    ) -> PauseOutcome:
        """Hand nothing of ``queue`` out until it is resumed; return once all peers know it, or after 3 s.

        A paused queue gets the new ``publishes`` and ``reason``. Raises InvalidParameter, Forbidden, QueueNotFound,
        TooManyPaused.
        """
        caller.require(Right.MANAGE, queue)
        self._check_route(queue)
        if reason is not None and not 0 < len(reason) <= MAX_REASON:
            raise InvalidParameter(name="reason", reason=f"must have 1 to {MAX_REASON} characters", pointer="/reason")
        before = self._paused.get(queue)
        if before is None and len(self._paused) >= MAX_PAUSED:
            raise TooManyPaused(limit=MAX_PAUSED)
        if before is not None and (before.publishes, before.reason) == (publishes, reason):
            return await self._carry_out(caller, before)
        at = self._next(queue)
        since = at if before is None else before.paused_at
        change = PauseChange(
            queue=queue, paused=True, at=at, by=caller.name, paused_at=since, publishes=publishes, reason=reason
        )
        return await self._carry_out(caller, change)

    async def resume(self, caller: Caller, queue: str) -> PauseOutcome:
        """Hand out again; return once all peers know it, or after 3 s. Also for a queue that is not paused: a peer may
        know a pause that this process does not. Raises InvalidParameter, Forbidden, QueueNotFound."""
        caller.require(Right.MANAGE, queue)
        if queue not in self._paused:
            # The route of a paused one may be gone.
            self._check_route(queue)
        change = PauseChange(queue=queue, paused=False, at=self._next(queue), by=caller.name)
        return await self._carry_out(caller, change)

    async def learn(self, changes: Iterable[PauseChange]) -> None:
        """Adopt what a peer knows, and keep it."""
        if self._adopt(changes, "peer"):
            await self._keep()

    async def wait_resumed(self, queue: str, seconds: float) -> None:
        """Wait until ``queue`` is resumed, at most ``seconds``; at once if it is not paused."""
        if queue not in self._paused or seconds <= 0:
            return
        resumed = self._resumed.setdefault(queue, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await resumed.wait()

    def _next(self, queue: str) -> int:
        """The time of a new change: after the last one, whatever the clock of its process was."""
        last = self._changes.get(queue)
        now = self._clock()
        return now if last is None else max(now, last.at + 1)

    async def _carry_out(self, caller: Caller, change: PauseChange) -> PauseOutcome:
        """Spread ``change``, once more if a peer knew a newer one: the clock there was ahead, or it had been silent."""
        note(publishes=change.publishes if change.paused else None)
        outcome = await self._spread(change)
        note(kept=outcome.kept, told=outcome.told, silent=len(outcome.silent))
        if change.leaves(outcome.pause):
            return outcome
        at = self._next(change.queue)
        since = at if outcome.pause is None else outcome.pause.paused_at
        return await self._spread(replace(change, at=at, by=caller.name, paused_at=since if change.paused else 0))

    async def _spread(self, change: PauseChange) -> PauseOutcome:
        """Adopt ``change`` here, keep it, and send it to the peers."""
        self._adopt([change], "call")
        kept = await self._keep()
        heard = await self.peers.exchange(self.changes())
        await self.learn(heard.changes)
        return PauseOutcome(
            queue=change.queue,
            pause=self._paused.get(change.queue),
            kept=kept,
            told=heard.told,
            silent=heard.silent,
            detail=spread_words(kept, heard.told, heard.silent, self.peers.has_addresses),
        )

    def _adopt(self, changes: Iterable[PauseChange], source: str) -> bool:
        """Apply the changes that count; whether there are any. ``source``: where they come from, for the log."""
        any_new = False
        for each in changes:
            # One by one: several peers may know different changes of one queue.
            if not each.is_newer_than(self._changes.get(each.queue)):
                continue
            any_new = True
            self._changes[each.queue] = each
            if each.paused:
                self._paused[each.queue] = each
                more = {"publishes": each.publishes, "reason": each.reason}
                log.info("queue paused", queue=each.queue, caller=each.by, source=source, **more)
            elif self._paused.pop(each.queue, None) is not None:
                if (event := self._resumed.pop(each.queue, None)) is not None:
                    event.set()
                log.info("queue resumed", queue=each.queue, caller=each.by, source=source)
        if any_new:
            self.refusing = frozenset(each.queue for each in self._paused.values() if each.publishes == "refuse")
            self._changes = {each.queue: each for each in remembered(self._changes.values())}
        return any_new

    async def _keep(self) -> bool:
        """Write the changes to the file, and adopt what it has; False if that failed, which is logged."""
        if self._store is None:
            return False
        try:
            self._adopt(await asyncio.to_thread(self._store.merge, self.changes()), "state_dir")
        except StateUnavailable as error:
            log.warning("paused queues not kept", error=error)
            return False
        return True

    async def _watch_file(self, store: PauseStore) -> None:
        while True:
            await asyncio.sleep(FILE_SECONDS)
            try:
                if (news := await asyncio.to_thread(store.news)) is not None:
                    self._adopt(news, "state_dir")
            except StateUnavailable as error:
                _throttled.warning("paused queues not read", error=error)

    async def _watch_peers(self) -> None:
        while True:
            await asyncio.sleep(PEERS_SECONDS)
            await self._compare()

    async def _compare(self) -> None:
        heard = await self.peers.exchange(self.changes())
        self._adopt(heard.changes, "peer")
        if self._changes:
            # Also without news: the file may have refused the last ones, on a full disk for example.
            await self._keep()


def remembered(changes: Iterable[PauseChange]) -> list[PauseChange]:
    """The pauses, and the newest MAX_RESUMED resumes."""
    found = list(changes)
    resumed = sorted((each for each in found if not each.paused), key=lambda each: each.at)
    forgotten = {each.queue for each in resumed[:-MAX_RESUMED]}
    return [each for each in found if each.queue not in forgotten]
