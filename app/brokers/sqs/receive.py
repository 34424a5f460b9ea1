"""Receives messages: one long poll per queue while somebody waits, and short polls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from app.brokers.binding import Delivery
from app.brokers.bounded import GRACE_SECONDS, RESERVE_SECONDS, finished
from app.brokers.sqs.client import SqsClient
from app.brokers.sqs.message import SYSTEM_ATTRIBUTES, read
from app.brokers.sqs.publish import MAX_ENTRIES
from app.brokers.sqs.queue import SqsQueue
from app.brokers.sqs.settle import SqsSettler, receipt_of, whole_seconds
from app.clock import Clock
from app.errors import BabelgateError, BrokerUnavailable
from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger
from app.runtime import turns
from app.runtime.background import BackgroundTasks

_KEPT_SECONDS = 0.5
"""How long messages that arrive for nobody are kept for the next receive. It bridges two slices of a longer wait."""

_CLOSE_SECONDS = 4.0
"""How long a close waits for the polls in flight."""

_MAX_SHORT_POLLS = 8
"""Receives in flight of one reserve."""

_throttled = LogThrottle(get_logger("babelgate.sqs"))


class _LongPoll:
    """The long poll of one queue: ``task`` while it is in flight, then the ``ready`` deliveries nobody took yet."""

    def __init__(self) -> None:
        self.task: asyncio.Task[list[Delivery]] | None = None
        self.ready: list[Delivery] = []
        self.lease_seconds = 0
        self.waiting = 0
        self.timer: asyncio.TimerHandle | None = None


class SqsReceiver:
    """Receives the messages of one broker.

    A receive is never aborted: messages that Amazon hands to an aborted one stay hidden until their lease ends. A call
    that ends before its receive does leaves the receive in flight; what arrives then is given to the next call within
    half a second, or shown again.
    """

    def __init__(self, client: SqsClient, settler: SqsSettler, clock: Clock, long_poll_seconds: int) -> None:
        self._client = client
        self._settler = settler
        self._clock = clock
        self._long_poll_seconds = long_poll_seconds
        self._polls: dict[str, _LongPoll] = {}
        self._in_flight: set[asyncio.Task[list[Delivery]]] = set()
        self._returning: BackgroundTasks[None] = BackgroundTasks()
        self._closed = False

    async def reserve(
        self, queue: SqsQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """At most ``limit`` messages, hidden for ``lease_seconds``, rounded up to whole seconds.

        Without a wait: short polls. With one: the long poll of the queue, which other calls may have begun.
        """
        seconds = max(whole_seconds(lease_seconds), 1)
        poll = self._polls.get(queue.name)
        if poll is not None and poll.ready:
            return await self._take(queue, poll, limit, seconds)
        if wait_seconds <= 0:
            return await self._short(queue, limit, seconds)
        if poll is None:
            poll = self._polls[queue.name] = _LongPoll()
        if poll.task is None:
            poll.lease_seconds = seconds
            poll.task = self._start(self._receive(queue, limit, seconds, self._long_poll_seconds))
            poll.task.add_done_callback(lambda done: self._arrived(queue, poll, done))
        task = poll.task
        poll.waiting += 1
        try:
            if not await finished(task, wait_seconds):
                return ()
        finally:
            poll.waiting -= 1
            self._watch(queue, poll)
        if not poll.ready:
            if not task.cancelled():
                # It raises the error of the long poll, unless another call took its messages.
                task.result()
            return ()
        return await self._take(queue, poll, limit, seconds)

    async def close(self) -> None:
        """Wait a few seconds for the receives in flight, and show again what nobody took; then abort the others."""
        self._closed = True
        for poll in self._polls.values():
            if poll.timer is not None:
                poll.timer.cancel()
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=_CLOSE_SECONDS)
        await asyncio.sleep(0)
        for task in self._in_flight:
            task.cancel()
        await self._returning.wait()

    def _start(self, receiving: Coroutine[Any, Any, list[Delivery]]) -> asyncio.Task[list[Delivery]]:
        task = asyncio.get_running_loop().create_task(receiving)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    async def _receive(self, queue: SqsQueue, limit: int, lease_seconds: int, wait_seconds: int) -> list[Delivery]:
        url = await self._client.url(queue)
        answer = await self._client.unbounded(
            "ReceiveMessage",
            QueueUrl=url,
            MaxNumberOfMessages=min(limit, MAX_ENTRIES),
            VisibilityTimeout=lease_seconds,
            WaitTimeSeconds=wait_seconds,
            MessageAttributeNames=["All"],
            AttributeNames=SYSTEM_ATTRIBUTES,
        )
        received_at = self._clock()
        found = await turns.mapped(read, answer.get("Messages") or ())
        return [self._settler.delivery(each, lease_seconds, received_at) for each in found]

    async def _short(self, queue: SqsQueue, limit: int, seconds: int) -> Sequence[Delivery]:
        """One short poll; as many more as ``limit`` needs once one was full."""
        until = asyncio.get_running_loop().time() + RESERVE_SECONDS - GRACE_SECONDS
        deliveries = await self._polled(queue, [limit], seconds, until)
        left = limit - len(deliveries)
        if len(deliveries) == MAX_ENTRIES and left > 0:
            shares = [min(MAX_ENTRIES, left - start) for start in range(0, left, MAX_ENTRIES)][:_MAX_SHORT_POLLS]
            with contextlib.suppress(BabelgateError):
                deliveries += await self._polled(queue, shares, seconds, until)
        return deliveries

    async def _polled(self, queue: SqsQueue, limits: Sequence[int], seconds: int, until: float) -> list[Delivery]:
        """The messages of one short poll per limit. Raises the first error if no poll returned a message."""
        tasks = [self._start(self._receive(queue, limit, seconds, 0)) for limit in limits]
        gathered = asyncio.gather(*tasks, return_exceptions=True)
        try:
            answered = await finished(gathered, until - asyncio.get_running_loop().time())
        except asyncio.CancelledError:
            answered = False
            raise
        finally:
            if not gathered.done():
                for task in tasks:
                    self._returning.start(self._return_late(queue, task))
        done = [task for task in tasks if task.done()]
        errors = [error for task in done if (error := task.exception()) is not None]
        deliveries = [each for task in done if task.exception() is None for each in task.result()] if answered else []
        if not deliveries:
            if not answered:
                raise BrokerUnavailable(self._client.broker, "no answer in time")
            if errors:
                raise errors[0]
        return deliveries

    async def _take(self, queue: SqsQueue, poll: _LongPoll, limit: int, seconds: int) -> Sequence[Delivery]:
        taken, poll.ready = poll.ready[:limit], poll.ready[limit:]
        self._watch(queue, poll)
        if poll.lease_seconds == seconds:
            return taken
        handles = [each.handle for each in taken]
        deadlines = await self._settler.extend(queue, handles, seconds)
        return [
            self._with_deadline(each, deadline)
            for each, deadline in zip(taken, deadlines, strict=True)
            if isinstance(deadline, int)
        ]

    def _with_deadline(self, delivery: Delivery, deadline: int) -> Delivery:
        found = receipt_of(delivery.handle)
        assert found is not None
        handle = replace(found, deadline=deadline).handle
        return replace(delivery, handle=handle, lease_expires_at=deadline)

    def _arrived(self, queue: SqsQueue, poll: _LongPoll, task: asyncio.Task[list[Delivery]]) -> None:
        poll.task = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                poll.ready += task.result()
            elif not poll.waiting:
                _throttled.warning("a long poll failed", queue=queue.name, broker=self._client.broker, error=error)
        self._watch(queue, poll)

    def _watch(self, queue: SqsQueue, poll: _LongPoll) -> None:
        """Show messages again that no call takes within a moment; forget a poll that is not needed."""
        if poll.timer is not None:
            poll.timer.cancel()
            poll.timer = None
        if poll.ready and not poll.waiting:
            if self._closed:
                self._return(queue, poll)
            else:
                loop = asyncio.get_running_loop()
                poll.timer = loop.call_later(_KEPT_SECONDS, self._return, queue, poll)
        elif poll.task is None and not poll.ready and not poll.waiting:
            self._polls.pop(queue.name, None)

    def _return(self, queue: SqsQueue, poll: _LongPoll) -> None:
        deliveries, poll.ready = poll.ready, []
        self._watch(queue, poll)
        if deliveries:
            self._returning.start(self._show_again(queue, deliveries))

    async def _return_late(self, queue: SqsQueue, task: asyncio.Task[list[Delivery]]) -> None:
        with contextlib.suppress(BabelgateError, asyncio.CancelledError):
            if deliveries := await asyncio.shield(task):
                await self._show_again(queue, deliveries)

    async def _show_again(self, queue: SqsQueue, deliveries: Sequence[Delivery]) -> None:
        """Give back deliveries that no consumer has seen. Where this fails, their leases expire."""
        with contextlib.suppress(BabelgateError):
            await self._settler.release(queue, [each.handle for each in deliveries], 0)
