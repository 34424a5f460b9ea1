"""Receives: deliveries are reserved, inspected, sealed with an ack token, and handed out.

:class:`Receiver` reserves on behalf of waiting receives, one reserve at a time for all waiters of a queue.
:mod:`babelgate.gateway.inspection` dead-letters the deliveries that must not be handed out, and
:mod:`babelgate.gateway.deliver` makes messages of the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct

from babelgate.brokers.binding import Delivery
from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Caller, Ending
from babelgate.gateway.counted_leases import LeaseHolder
from babelgate.gateway.inspection import ReadyDelivery
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Route
from babelgate.gateway.shares import divided, grouped
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

SLICE_SECONDS = 1.0
"""Longest wait of one reserve call. It bounds how long a stop waits for the call."""

MAX_RESERVED = 256
"""Maximum number of messages that one reserve requests for several receives; bounds memory."""

FRESH_SECONDS = 0.1
"""How long the answer that a queue is empty is reused: receives that end within this time share one reserve."""

RESERVED_BYTES = 16_777_216
"""Most bytes that one reserve should return, estimated from the size of earlier messages."""

log = get_logger(__name__)


Reserve = Callable[[int, float, float], Awaitable[Sequence[Delivery]]]
"""``(limit, wait_seconds, lease_seconds)`` to deliveries."""

Inspect = Callable[[Sequence[Delivery]], Awaitable[list[ReadyDelivery]]]
"""Returns the deliveries that may be handed out and dead-letters or drops the others. Never raises BabelgateError."""

HandOut = Callable[[Sequence[ReadyDelivery], float], list[Message]]
"""``(deliveries, lease_seconds)`` to the messages of at least one delivery, and reports them as delivered."""

GiveBack = Callable[[Sequence[str]], Awaitable[object]]
"""Returns the deliveries of handles to the broker, uncounted. Never raises BabelgateError."""


class Waiter(Struct, eq=False):
    """A receive that waits. ``future``: of its messages; cancelled when it has left. ``ending``: ends the wait when the
    credential of its caller ends. ``holder``: whose leases those of its messages will be; None: they do not count."""

    limit: int
    lease_seconds: float
    since: float
    future: asyncio.Future[list[Message]]
    receiver: Receiver
    """The one that serves it now: a reload of the configuration may hand it over to another one."""
    timer: asyncio.TimerHandle | None = None
    ending: Ending | None = None
    holder: LeaseHolder | None = None

    def stop_timers(self) -> None:
        """End the wait no more by itself."""
        if self.timer is not None:
            self.timer.cancel()
        if self.ending is not None:
            self.ending.cancel()

    def resolve(self, messages: list[Message]) -> None:
        """End the wait."""
        self.stop_timers()
        if not self.future.done():
            self.future.set_result(messages)


_Waiters = dict[Waiter, None]
"""Waiters in order of arrival. A dict, because a waiter at any place may leave."""


class Receiver:
    """The receives of one queue, served in order of arrival.

    Receives that wait share one blocking reserve at a time. Receives that do not wait share non-blocking reserves,
    which run in parallel to it. One reserve serves the receives with the same lease duration.

    A receive returns an empty list only when the broker has confirmed that the queue is empty: after its wait a receive
    makes one more, non-blocking reserve. If the broker does not answer, its error is raised.

    A receive whose caller has as many leases as it may waits until one of them ends, and ends with LeasesExceeded.

    ``return_seconds``: the longest wait for receives that were served to come back.
    """

    def __init__(self, reserve: Reserve, inspect: Inspect, hand_out: HandOut, give_back: GiveBack) -> None:
        self._loop = asyncio.get_running_loop()
        self._reserve = reserve
        self._inspect = inspect
        self._hand_out = hand_out
        self._give_back = give_back
        self._waiting: _Waiters = {}
        self._polling: _Waiters = {}
        self._wait_task: asyncio.Task[None] | None = None
        self._poll_task: asyncio.Task[None] | None = None
        self._returning: BackgroundTasks[None] = BackgroundTasks()
        self._stopped = False
        self._blocked: asyncio.Future[None] | None = None
        """Done when one of the receives that wait may have room for a lease; None unless all lack it."""
        self._empty_at = -math.inf
        """Loop time at which the last non-blocking reserve that found the queue empty began."""
        self._message_bytes = RESERVED_BYTES / MAX_RESERVED
        self._expected = 0
        """How many receives the next reserve is for, once those that the last one served are back."""
        self.return_seconds = turns.RETURN_SECONDS
        self._served_at = -math.inf
        """Loop time at which the last reserve was handed out."""

    @property
    def waiters(self) -> int:
        """How many receives are waiting now."""
        return len(self._waiting) + len(self._polling)

    @property
    def busy(self) -> bool:
        """Whether a reserve is in flight, or deliveries are given back."""
        return self._wait_task is not None or self._poll_task is not None or bool(self._returning)

    async def receive(
        self,
        limit: int,
        wait_seconds: float,
        lease_seconds: float,
        caller: Caller | None = None,
        holder: LeaseHolder | None = None,
    ) -> list[Message]:
        """Up to ``limit`` messages as soon as there is one; none after ``wait_seconds`` and one more round trip, or
        once the credential of ``caller`` ends.

        Raises the broker's error, at the latest when a reserve that begins at the end of the wait has ended. When the
        call is cancelled, deliveries reserved for it are given back. Raises LeasesExceeded when ``holder`` may have no
        further lease at the end of the wait.
        """
        waiter = self.begin(limit, wait_seconds, lease_seconds, caller, holder)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._remove(waiter)
            if waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
                await asyncio.shield(waiter.receiver._return(waiter.future.result()))
            raise

    def begin(
        self,
        limit: int,
        wait_seconds: float,
        lease_seconds: float,
        caller: Caller | None = None,
        holder: LeaseHolder | None = None,
    ) -> Waiter:
        """Begin a receive. Its future has the result of :meth:`receive`, or its error, unless it :meth:`leaves
        <leave>` before."""
        loop = self._loop
        waiter = Waiter(limit, lease_seconds, loop.time(), loop.create_future(), self, holder=holder)
        if wait_seconds > 0 and not self._stopped:
            self._waiting[waiter] = None
            waiter.timer = loop.call_later(wait_seconds, self._end_wait, waiter)
            if caller is not None:
                waiter.ending = caller.when_ended(partial(self._end_now, waiter))
            if self._blocked is not None:
                self._unblock()
            if self._wait_task is None:
                self._wait_task = loop.create_task(self._serve_waiting())
        else:
            self._poll(waiter)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """End a receive without messages, unless it has ended."""
        self._remove(waiter)
        waiter.future.cancel()

    def return_later(self, messages: list[Message]) -> None:
        """Give back messages that this receiver has handed out, and whose receive has ended."""
        self._returning.start(self._return(messages))

    async def _return(self, messages: list[Message]) -> None:
        await self._give_back([each.lease.handle for each in messages])

    def hand_over(self, other: Receiver, route: Route) -> None:
        """Let ``other``, that of ``route``, serve the receives that wait here; those with a longer lease than its
        broker has end with an empty list."""
        for waiter in tuple(self._waiting):
            del self._waiting[waiter]
            if waiter.lease_seconds > route.capabilities.max_lease_seconds:
                waiter.resolve([])
                continue
            if waiter.holder is not None:
                waiter.holder.move(route)
            other.take_over(waiter)
        self._unblock()

    def take_over(self, waiter: Waiter) -> None:
        """Serve a receive that another receiver has begun."""
        waiter.receiver = self
        self._waiting[waiter] = None
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = self._loop.call_at(waiter.timer.when(), self._end_wait, waiter)
        self._unblock()
        if self._wait_task is None:
            self._wait_task = self._loop.create_task(self._serve_waiting())

    def stop(self) -> None:
        """End all waiting receives now, with an empty list; later receives do not wait."""
        self._stopped = True
        self.end_waits()

    def end_waits(self) -> None:
        """End all waiting receives now, with an empty list."""
        for waiter in self._waiting:
            waiter.resolve([])
        self._waiting.clear()
        self._unblock()

    async def idle(self) -> None:
        """Wait until no reserve is in flight: SLICE_SECONDS and the time-out of a reserve after :meth:`stop`."""
        while tasks := [task for task in (self._wait_task, self._poll_task, *self._returning) if task is not None]:
            await asyncio.wait(tasks)

    def _end_wait(self, waiter: Waiter) -> None:
        """End the wait: empty if the broker has just confirmed that the queue is empty, else with a poll."""
        self._remove(waiter)
        now = self._loop.time()
        if self._empty_at >= max(waiter.since, now - FRESH_SECONDS):
            waiter.resolve([])
        else:
            self._poll(waiter)

    def _end_now(self, waiter: Waiter) -> None:
        """End the wait of a caller whose credential has ended. Nothing is handed out to it."""
        self._remove(waiter)
        waiter.resolve([])

    def _poll(self, waiter: Waiter) -> None:
        self._polling[waiter] = None
        if self._poll_task is None:
            self._poll_task = self._loop.create_task(self._serve_polling())

    def _remove(self, waiter: Waiter) -> None:
        waiter.stop_timers()
        waiter.receiver._waiting.pop(waiter, None)
        waiter.receiver._polling.pop(waiter, None)
        if waiter.receiver._blocked is not None and not waiter.receiver._waiting:
            waiter.receiver._unblock()

    def _refuse(self, waiters: _Waiters, full: Sequence[Waiter]) -> None:
        """End the receives in ``full`` whose callers may have no further lease, unless they wait for one to end."""
        for waiter in full if waiters is self._polling else ():
            self._remove(waiter)
            if waiter.holder is not None and not waiter.future.done():
                waiter.future.set_exception(waiter.holder.refusal())

    def _unblock(self) -> None:
        if self._blocked is not None and not self._blocked.done():
            self._blocked.set_result(None)

    async def _room(self) -> None:
        """Wait until one of the receives that wait may have room for a lease, or until there is none. Where processes
        share the number, wait at most SLICE_SECONDS: only a process that looks keeps its share."""
        blocked = self._blocked = self._loop.create_future()
        counted = next((waiter.holder.counted for waiter in self._waiting if waiter.holder is not None), None)
        if counted is None:
            return
        counted.when_freed(self._unblock)
        is_shared = counted.limits is not None and counted.limits.shared is not None
        try:
            await asyncio.wait([blocked], timeout=SLICE_SECONDS if is_shared else None)
        finally:
            self._blocked = None
            counted.forget(self._unblock)

    async def _serve_waiting(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                if self._waiting:
                    await self._serve_head(self._waiting, SLICE_SECONDS)
        finally:
            self._wait_task = None

    async def _serve_polling(self) -> None:
        try:
            while self._polling:
                await self._gather()
                if not self._polling:
                    break
                began = self._loop.time()
                group = await self._serve_head(self._polling, 0)
                left = [waiter for waiter in group if waiter in self._polling]
                # A reserve is bounded in size: only one that served no waiter shows that the queue is empty.
                if group and len(left) == len(group):
                    self._empty_at = began
                    for waiter in left:
                        del self._polling[waiter]
                        waiter.resolve([])
        finally:
            self._poll_task = None

    async def _gather(self) -> None:
        """Wait a moment for the receives that the last reserve served."""
        await turns.wait_for_callers(lambda: self.waiters, self._expected, self._served_at + self.return_seconds)

    async def _serve_head(self, waiters: _Waiters, wait_seconds: float) -> list[Waiter]:
        """Reserve once for the first waiter and those with the same lease duration; return these waiters."""
        group, requested, full = grouped(waiters, MAX_RESERVED)
        if full:
            self._refuse(waiters, full)
        if not group:
            if waiters is self._waiting:
                await self._room()
            return group
        lease_seconds = group[0].lease_seconds
        try:
            while True:
                # At most RESERVED_BYTES are reserved: fewer messages than requested are normal.
                affordable_count = max(int(RESERVED_BYTES / self._message_bytes), 1)
                deliveries = await self._reserve(min(requested, affordable_count), wait_seconds, lease_seconds)
                self._update_message_size(deliveries)
                ready = await self._inspect(deliveries)
                # If no delivery may be handed out, more messages may follow them.
                if ready or not deliveries or wait_seconds > 0:
                    break
            before = self.waiters
            left = self._serve(waiters, ready, lease_seconds)
            # Where messages are scarce, there is nothing to share.
            self._expected = 0 if group[-1] in waiters else before
            self._served_at = self._loop.time()
            if left:
                left = self._serve(self._polling if waiters is self._waiting else self._waiting, left, lease_seconds)
        except Exception as error:
            if not isinstance(error, BabelgateError):
                log.exception("reserve failed")
            # Polling receives must not wait for a second call that may take as long.
            for waiter in group if waiters is self._waiting else list(waiters):
                if waiter.receiver is not self:
                    continue  # Another broker serves it since.
                self._remove(waiter)
                if not waiter.future.done():
                    waiter.future.set_exception(error)
            return group
        if left:
            await self._give_back([each.delivery.handle for each in left])
        return group

    def _update_message_size(self, deliveries: Sequence[Delivery]) -> None:
        """Update the estimated message size: it rises at once and falls by at most half per reserve."""
        if deliveries:
            mean = sum(len(delivery.body) for delivery in deliveries) / len(deliveries)
            self._message_bytes = max(mean, self._message_bytes / 2, RESERVED_BYTES / MAX_RESERVED)

    def _serve(self, waiters: _Waiters, ready: list[ReadyDelivery], lease_seconds: float) -> list[ReadyDelivery]:
        """Hand out to ``waiters`` in order; return the deliveries that are left."""
        served, count, full = divided(waiters, len(ready), lease_seconds)
        messages = self._hand_out(ready[:count], lease_seconds) if count else []
        at = 0
        for waiter, limit in served:
            del waiters[waiter]
            if not waiter.future.done():
                got = messages[at : at + limit]
                waiter.resolve(got if waiter.holder is None else waiter.holder.hold(got))
                at += limit
        if full:
            self._refuse(waiters, full)
        return ready[count:]
