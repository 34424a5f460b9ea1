"""Batches concurrent calls on one queue into native batches."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from babelgate.brokers.errors import failure_for_each
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown, Overloaded
from babelgate.runtime import turns

BATCH_BYTES = 4_194_304
"""Most bytes of one batch: the event loop writes a batch in one piece."""

Item = TypeVar("Item")
Result = TypeVar("Result")

GRACE_SECONDS = 0.5
"""Time beyond the budget in which a call still waits for its batch, whose error is more precise."""


class Budget(NamedTuple):
    """The time-out of a call to ``broker``, in ``seconds``."""

    broker: str
    seconds: float


class Circuit:
    """Whether calls to ``broker`` are sent. They are refused while the circuit is open, for the ``reason``."""

    __slots__ = ("broker", "is_open", "reason")

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.is_open = False
        self.reason = ""

    def refusal(self) -> BrokerUnavailable:
        """The error of a call that is not sent."""
        return BrokerUnavailable(
            self.broker, f"{self.reason}; the circuit is open until a ping is answered", retry_after=1
        )


_LINGER_SHARE = 0.1
"""The part of the duration of a batch for which the next one waits for more calls."""

_LEAST_GATHERING_SECONDS = 0.001
"""The least such wait: timers are no finer."""

_ANSWERED = 256
"""Calls that get their results in one turn of the event loop: with thousands of callers a turn would be long, and what
is done for each of them, until its answer is written, would not stay in the processor's caches."""

_Call = tuple[Item, "asyncio.Future[Result | BabelgateError]", float]
"""The item, the future of its result, and the loop time at which it was submitted."""


class Batcher(Generic[Item, Result]):
    """Merges calls into batches. One batch is in flight at a time; calls that arrive meanwhile form the next batch.

    An idle batcher flushes in the same turn of the event loop, so a single call does not wait. Where the last batch has
    just ended, the next one waits for its callers (:func:`babelgate.runtime.turns.wait_for_callers`), and for a tenth
    of the last one's duration: they come back one by one, and would fall apart into small batches. The time budget of a
    call runs from ``submit`` to its result and includes the wait for earlier batches.
    """

    def __init__(
        self,
        flush: Callable[[list[Item]], Awaitable[Sequence[Result]]],
        max_items: int,
        max_wait_seconds: float = math.inf,
        sizes: Callable[[Sequence[Item]], Sequence[int]] = lambda items: (),
        budget: Budget | None = None,
        circuit: Circuit | None = None,
    ) -> None:
        """``max_items``: most items of a batch. ``max_wait_seconds``: calls that would wait longer for their batch are
        refused. ``sizes``: the bytes of each item; a batch has at most BATCH_BYTES unless a single item has more.
        ``budget``: the time-out of a call; None: no time-out. ``circuit``: calls are refused while it is open.
        """
        self._loop = asyncio.get_running_loop()
        self._flush = flush
        self._sizes = sizes
        self._max_items = max_items
        self._max_wait_seconds = max_wait_seconds
        self._batch_seconds = 0.0
        self._began = 0.0
        self._ended = 0.0
        self._expected = 0
        """How many calls the next batch has once the callers of the last one are back."""
        self._gathering: asyncio.Future[None] | None = None
        self._budget = budget
        self._circuit = circuit
        self._pending: list[_Call[Item, Result]] = []
        self._in_flight: Sequence[_Call[Item, Result]] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a batch is in flight or waiting."""
        return self._task is not None

    @property
    def has_backlog(self) -> bool:
        """Whether one more call would wait too long, estimated from the duration of the current or the last batch."""
        waiting = len(self._pending)
        if waiting <= self._max_items:
            return False
        took = self._batch_seconds
        if self._task is not None:
            took = max(took, self._loop.time() - self._began)
        return waiting / self._max_items * took > self._max_wait_seconds

    def submit(self, item: Item) -> asyncio.Future[Result | BabelgateError]:
        """The future of the item's result. An error of the whole batch is a result, too. Raises Overloaded, and
        BrokerUnavailable while the circuit is open.

        Cancelling the future does not remove the item from its batch.
        """
        if self._circuit is not None and self._circuit.is_open:
            raise self._circuit.refusal()
        if len(self._pending) > self._max_items and self.has_backlog:
            raise Overloaded(reason=f"{len(self._pending)} calls on this queue are already waiting for its broker")
        loop = self._loop
        future: asyncio.Future[Result | BabelgateError] = loop.create_future()
        now = loop.time()
        self._pending.append((item, future, now))
        if self._budget is not None and self._timer is None:
            self._timer = loop.call_at(now + self._budget.seconds + GRACE_SECONDS, self._expire)
        if self._task is None:
            self._began = now
            self._task = loop.create_task(self._run())
        elif self._gathering is not None and len(self._pending) >= self._expected and not self._gathering.done():
            self._gathering.set_result(None)
        return future

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Cancel the timer of a batcher that is not busy. The loop would keep the batcher until the timer is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _run(self) -> None:
        clock = self._loop.time
        try:
            while self._pending:
                if len(self._pending) < self._expected:
                    await self._gather()
                    if not self._pending:
                        # Its calls were past their budget.
                        break
                self._began = clock()
                count = 1 if len(self._pending) == 1 else self._fitting()
                batch = self._in_flight = self._pending[:count]
                del self._pending[:count]
                results: Sequence[Result | BabelgateError]
                try:
                    results = await self._flush([item for item, _, _ in batch])
                    if len(results) != len(batch):
                        raise ValueError(f"{len(batch)} items went out and {len(results)} results came back")
                except BabelgateError as error:
                    results = failure_for_each(error, len(batch))
                except Exception as error:
                    _fail([future for _, future, _ in batch], error)
                    continue
                self._ended = clock()
                self._batch_seconds = self._ended - self._began
                self._expected = min(count + len(self._pending), self._max_items)
                # What has its result does not expire any more.
                self._in_flight = ()
                for start in range(0, count, _ANSWERED):
                    if start:
                        await asyncio.sleep(0)
                    some = slice(start, start + _ANSWERED)
                    for (_, future, _), result in zip(batch[some], results[some], strict=True):
                        if not future.done():
                            future.set_result(result)
        finally:
            self._task = None
            self._in_flight = ()

    async def _gather(self) -> None:
        """Wait a moment for the callers of the last batch."""
        latest = self._ended + turns.RETURN_SECONDS
        await turns.wait_for_callers(lambda: len(self._pending), self._expected, latest)
        left = min(self._ended + self._batch_seconds * _LINGER_SHARE, latest) - self._loop.time()
        if left < _LEAST_GATHERING_SECONDS or len(self._pending) >= self._expected:
            return
        self._gathering = self._loop.create_future()
        await asyncio.wait((self._gathering,), timeout=left)
        self._gathering = None

    def _expire(self) -> None:
        """End the calls past their budget. Of a call that is not in a batch yet nothing was written."""
        self._timer = None
        budget, loop = self._budget, self._loop
        assert budget is not None
        latest = loop.time() - budget.seconds - GRACE_SECONDS
        for _, future, since in self._in_flight:
            if since <= latest and not future.done():
                future.set_result(OutcomeUnknown(budget.broker, f"no answer within {budget.seconds:g} s"))
        waiting = [call for call in self._pending if call[2] > latest]
        for _, future, _ in self._pending[: len(self._pending) - len(waiting)]:
            if not future.done():
                reason = f"no answer to the calls before this one within {budget.seconds:g} s"
                future.set_result(BrokerUnavailable(budget.broker, reason))
        self._pending = waiting
        left = [since for _, future, since in (*self._in_flight, *waiting) if not future.done()]
        if left:
            self._timer = loop.call_at(min(left) + budget.seconds + GRACE_SECONDS, self._expire)

    def _fitting(self) -> int:
        """Number of waiting calls that form the next batch."""
        waiting = self._pending[: self._max_items]
        sizes = self._sizes([item for item, _, _ in waiting])
        if sum(sizes) <= BATCH_BYTES:
            return len(waiting)
        return max(bisect_right(list(accumulate(sizes)), BATCH_BYTES), 1)


def _fail(futures: Sequence[asyncio.Future[Result]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
