"""The audit trail of one process: takes entries in the event loop; one thread writes them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Literal

from msgspec import Struct

from babelgate.clock import Clock, now_ms
from babelgate.errors import BabelgateError, ConfigError
from babelgate.observe.audit.chain import Chain
from babelgate.observe.audit.lines import AuditKey
from babelgate.observe.audit.notes import clipped
from babelgate.observe.log_throttle import LINES, SECONDS, LineBudget
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import check_writable

WAIT_SECONDS = 5.0
"""Longest time that an answer waits for its record. A disk that takes longer counts as full."""
RETRY_SECONDS = 1.0
"""Interval of attempts to write after a failure."""
CLOSE_SECONDS = 5.0
"""Maximum time to write the rest when the process ends."""
MAX_PENDING = 10_000
"""Most entries that wait for the disk; more are counted."""
MAX_BUDGETS = 1_000
"""Most callers with a budget of their own. The others share one."""
_BATCH = 1_000
_OTHERS = "_other"
KEY = "audit.directory"

log = get_logger(__name__)


class AuditUnavailable(BabelgateError):
    """The audit trail cannot be written: {reason}. Nothing was changed."""

    code = "audit_unavailable"
    retryable = True


class AuditOptions(Struct, frozen=True, kw_only=True):
    """The settings of the trail, as described in the configuration section ``audit``."""

    directory: Path
    node: str
    file_bytes: int = 16_777_216
    max_bytes: int | None = None
    retention_seconds: float | None = None
    refusals: int = LINES
    when_full: Literal["refuse", "continue"] = "refuse"


class AuditStats(Struct, frozen=True):
    """Counts of one process. ``records`` are on the disk; ``pending`` wait for it; ``lost`` found no place to wait;
    ``left_out`` refusals and sign-ins were only counted; ``errors``: failed writes and removals, which are retried."""

    records: int
    pending: int
    lost: int
    left_out: int
    errors: int


class _PendingEntry(Struct, eq=False):
    entry: Mapping[str, Any]
    done: asyncio.Future[None] | None
    since: float


class Audit:
    """The trail of one process. Start it before the first request, and close it after the last.

    Each record is on the disk before :meth:`recorded` returns: its thread writes all that wait, and syncs once.
    """

    def __init__(
        self,
        options: AuditOptions,
        keys: Sequence[AuditKey],
        start: Mapping[str, Any],
        clock: Clock = now_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keys``: the first seals, all verify. ``start``: the details of the record of the start."""
        self._options = options
        self._start = start
        self._clock = clock
        self._monotonic = monotonic
        self.chain = Chain(
            options.directory,
            options.node,
            keys,
            clock,
            file_bytes=options.file_bytes,
            max_bytes=options.max_bytes,
            retention_seconds=options.retention_seconds,
        )
        self._lock = Lock()
        self._pending: list[_PendingEntry] = []
        self._in_hand: list[_PendingEntry] = []
        self._base: int | None = None
        """The end of the chain before the entries in hand; None: none of them is on the disk."""
        self._left_out: dict[str, int] = {}
        self._budgets: dict[tuple[str, bool], tuple[LineBudget, float]] = {}
        """By the name of a caller and whether it is for signing in: the budget and its last use, the latest last."""
        self._lost = self._untold_lost = self._left_out_total = self._errors = 0
        self._failure: str | None = None
        self._wake = Event()
        self._stop = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._run, name="audit-writer", daemon=True)

    def check(self) -> None:
        """Raise ConfigError naming ``audit.directory`` if the trail could not start. Creates nothing."""
        check_writable(self._options.directory, KEY)

    async def start(self) -> None:
        """Begin the trail with a record of the start. Raises ConfigError naming ``audit.directory``."""
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self._open, "start", self._start)
        except OSError as error:
            reason = f"{self._options.directory}: {error.strerror or error}"
            raise ConfigError(key=KEY, reason=reason) from None
        log.info("audit trail", chain=self.chain.name, seq=self.chain.head.seq, hash=self.chain.head.hash)
        self._thread.start()

    async def close(self) -> None:
        """Write the rest with a record of the stop, for 5 s at most; idempotent."""
        if not self._thread.is_alive():
            return
        self.record("stop")
        self._stop.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def require(self) -> None:
        """Raise AuditUnavailable where a change must not be made, because its record could not be written."""
        if self._options.when_full == "continue":
            return
        if (reason := self._trouble()) is not None:
            raise AuditUnavailable(reason=reason)

    def _trouble(self) -> str | None:
        """Why nothing can be written at present."""
        waiting = self._in_hand or self._pending
        if self._failure is None and waiting and self._monotonic() - waiting[0].since > WAIT_SECONDS:
            return "its disk does not answer"
        return self._failure

    def record(self, kind: str, details: Mapping[str, Any] | None = None, **members: Any) -> None:
        """Record something, and return at once. ``members`` that are None or empty are left out."""
        self._add(kind, details, members, None)

    async def recorded(self, kind: str, details: Mapping[str, Any] | None = None, **members: Any) -> None:
        """Record something, and return when it is on the disk; after 5 s in any case, and at once while the disk
        fails: the record waits."""
        if self._trouble() is not None:
            self._add(kind, details, members, None)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._add(kind, details, members, done):
            await asyncio.wait([done], timeout=WAIT_SECONDS)

    def bounded(self, caller: str | None, details: Mapping[str, Any] | None = None, **members: Any) -> None:
        """Record what a caller can cause at will, a refusal or a sign-in: at most ``refusals`` in ten seconds of each
        caller, and of all without a name together; of sign-ins and sign-outs as many again. Returns at once. The others
        are counted, and a record every ten seconds has their number."""
        kind = members.pop("kind", "refusal")
        name = caller or ""
        if self._budget(name, kind in ("sign_in", "sign_out")).take():
            self._add(kind, details, {"caller": caller, **members}, None)
            return
        with self._lock:
            if name not in self._left_out and len(self._left_out) >= MAX_BUDGETS:
                name = _OTHERS
            self._left_out_total += 1
            self._left_out[name] = self._left_out.get(name, 0) + 1
            first = len(self._left_out) == 1 and self._left_out[name] == 1
        if first:
            self._wake.set()

    def _budget(self, name: str, signs: bool) -> LineBudget:
        now = self._monotonic()
        found = self._budgets.pop((name, signs), None)
        if found is None:
            # One that was idle for ten seconds is as good as a new one.
            while self._budgets and now - (oldest := next(iter(self._budgets.items())))[1][1] >= SECONDS:
                del self._budgets[oldest[0]]
            if len(self._budgets) >= MAX_BUDGETS:
                name = _OTHERS
                found = self._budgets.pop((name, signs), None)
        budget = LineBudget(self._monotonic, self._options.refusals) if found is None else found[0]
        self._budgets[name, signs] = budget, now
        return budget

    def stats(self) -> AuditStats:
        """Return the current counts."""
        pending = len(self._pending) + len(self._in_hand)
        errors = self._errors + self.chain.errors
        return AuditStats(self.chain.written, pending, self._lost, self._left_out_total, errors)

    def _add(
        self,
        kind: str,
        details: Mapping[str, Any] | None,
        members: Mapping[str, Any],
        done: asyncio.Future[None] | None,
    ) -> bool:
        entry = {"at": self._clock(), "kind": kind}
        entry |= {name: clipped(value) for name, value in members.items() if value not in (None, "")}
        if details:
            entry["details"] = dict(details)
        with self._lock:
            if len(self._pending) >= MAX_PENDING:
                self._lost += 1
                self._untold_lost += 1
                return False
            self._pending.append(_PendingEntry(entry, done, self._monotonic()))
        self._wake.set()
        return True

    def _run(self) -> None:
        due: float | None = None
        while True:
            if not self._left_out:
                due = None
            elif due is None:
                due = self._monotonic() + SECONDS
            if self._failure is not None:
                self._stop.wait(RETRY_SECONDS)
            elif not self._stop.is_set():
                self._wake.wait(None if due is None else max(due - self._monotonic(), 0.0))
            self._wake.clear()
            stopping = self._stop.is_set()
            if self._left_out and (stopping or (due is not None and self._monotonic() >= due)):
                due = None
                self._tell_left_out()
            wrote = self._write()
            if stopping and (not wrote or not (self._pending or self._in_hand)):
                break
        if self._in_hand or self._pending:
            log.error("the end of the audit trail could not be written", records=self.stats().pending)
        with contextlib.suppress(OSError):
            log.info("audit trail", chain=self.chain.name, seq=self.chain.head.seq, hash=self.chain.head.hash)
            self.chain.close()

    def _tell_left_out(self) -> None:
        with self._lock:
            left_out, self._left_out = self._left_out, {}
        for caller, count in left_out.items():
            self._add("left_out", {"count": count}, {"caller": caller}, None)

    def _write(self) -> bool:
        """Write all that wait; False if that failed."""
        try:
            if self._failure is not None:
                self._reopen()
            while self._take():
                self._base = self.chain.head.seq
                self.chain.append([each.entry for each in self._in_hand])
                self._base = None
                self._finish(len(self._in_hand))
            if self._untold_lost:
                # The disk was slow and did not fail.
                self._tell_lost(self._untold_lost)
        except OSError as error:
            self._errors += 1
            if self._failure is None:
                log.error("the audit trail cannot be written", directory=str(self._options.directory), error=error)
            self._failure = error.strerror or str(error)
            self._release()
            return False
        return True

    def _tell_lost(self, lost: int) -> None:
        self.chain.append([{"at": self._clock(), "kind": "resumed", "details": {"lost": lost}}])
        with self._lock:
            self._untold_lost -= lost

    def _release(self) -> None:
        """Let the answers go whose records wait for a disk that fails."""
        with self._lock:
            waiting = [*self._in_hand, *self._pending]
        self._set_done(waiting)
        for each in waiting:
            each.done = None

    def _open(self, kind: str, details: Mapping[str, Any]) -> None:
        found = self.chain.open()
        self.chain.begin(kind, {**found, **details})

    def _reopen(self) -> None:
        """Go on after a failure, in a new file. The entries of the last batch that are on the disk stay there."""
        found = self.chain.open()
        if self._base is not None:
            self._finish(max(min(self.chain.head.seq - self._base, len(self._in_hand)), 0))
            self._base = None
        lost = self._untold_lost
        self.chain.begin("resumed", {**found, "reason": self._failure, **({"lost": lost} if lost else {})})
        with self._lock:
            self._untold_lost -= lost
        self._failure = None
        log.info("the audit trail is written again", lost=self._lost)

    def _take(self) -> bool:
        if not self._in_hand:
            with self._lock:
                self._in_hand, self._pending = self._pending[:_BATCH], self._pending[_BATCH:]
        return bool(self._in_hand)

    def _finish(self, count: int) -> None:
        self._set_done(self._in_hand[:count])
        self._in_hand = self._in_hand[count:]

    def _set_done(self, entries: Sequence[_PendingEntry]) -> None:
        done = [each.done for each in entries if each.done is not None]
        if done and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_set, done)


def _set(futures: Sequence[asyncio.Future[None]]) -> None:
    for each in futures:
        if not each.done():
            each.set_result(None)
