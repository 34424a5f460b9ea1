"""Receives messages: one long poll per queue while somebody waits, and short polls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from babelgate.brokers.binding import Delivery
from babelgate.brokers.bounded import GRACE_SECONDS, finished
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.message import SYSTEM_ATTRIBUTES, read
from babelgate.brokers.sqs.publish import MAX_ENTRIES
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.brokers.sqs.settle import MAX_LEASE_SECONDS, SqsSettler, receipt_of, whole_seconds
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

_KEPT_SECONDS = 0.5
"""How long messages that arrive with no receive waiting are kept for the next one, such as two slices of a wait."""

_SPARE_SECONDS = 3
"""How much longer than its lease a message is hidden: SQS counts from before its answer, the lease from the answer."""

_ANSWER_SECONDS = 10.0
"""How long after its wait a receive is kept, or the time-out of a call where that is longer. The peer has vanished when
there is no answer by then."""

_CLOSE_SECONDS = 4.0
"""How long a close waits for the polls in flight."""

_MAX_SHORT_POLLS = 8
"""Short polls in flight of one reserve, and short polls of a queue whose callers have ended."""

_throttled = LogThrottle(get_logger(__name__))

_Poll = asyncio.Task[list[Delivery]]


class _QueuePolls:
    """The polls of one queue: the ``long`` one, the ``late`` short ones whose callers have ended, and the ``ready``
    deliveries that no call has taken, each with the seconds of its lease. ``waiting``: the calls that wait for them."""

    def __init__(self) -> None:
        self.long: _Poll | None = None
        self.late: set[_Poll] = set()
        self.ready: list[tuple[Delivery, int]] = []
        self.waiting = 0
        self.timer: asyncio.TimerHandle | None = None

    @property
    def unused(self) -> bool:
        """Whether nothing is in flight, kept or waited for."""
        return self.long is None and not self.late and not self.ready and not self.waiting


class SqsReceiver:
    """Receives the messages of one broker.

    A receive is never aborted: messages that Amazon hands to an aborted one stay hidden until their lease ends. A call
    that ends before its receive does leaves the receive in flight; what arrives then is given to the next call within
    half a second, or shown again. A service that answers late therefore gets no growing number of receives.
    """

    def __init__(self, client: SqsClient, settler: SqsSettler, clock: Clock, long_poll_seconds: int) -> None:
        self._client = client
        self._settler = settler
        self._clock = clock
        self._long_poll_seconds = long_poll_seconds
        self._polls: dict[str, _QueuePolls] = {}
        self._in_flight: set[_Poll] = set()
        self._returning: BackgroundTasks[None] = BackgroundTasks()
        self._closed = False

    async def reserve(self, queue: SqsQueue, limit: int, wait_seconds: float, lease_seconds: float) -> list[Delivery]:
        """At most ``limit`` messages, leased for ``lease_seconds``, rounded up to whole seconds.

        Without a wait: a short poll. With one: the long poll of the queue, which other calls may have begun. As many
        short polls more as ``limit`` needs once one was full.
        """
        seconds = max(whole_seconds(lease_seconds), 1)
        wait_seconds = max(wait_seconds, 0)
        until = asyncio.get_running_loop().time() + wait_seconds + self._client.timeout_seconds - GRACE_SECONDS
        polls = self._polls.setdefault(queue.key, _QueuePolls())
        polls.waiting += 1
        try:
            found: list[Delivery] = []
            if not polls.ready:
                if wait_seconds:
                    await self._long(queue, polls, limit, wait_seconds, seconds)
                else:
                    found = await self._short(queue, polls, limit, seconds, until)
            if not found and polls.ready:
                found = await self._take(queue, polls, limit, seconds)
            if MAX_ENTRIES <= len(found) < limit:
                found += await self._more(queue, polls, limit - len(found), seconds, until)
            return found
        finally:
            polls.waiting -= 1
            self._watch(queue, polls)

    async def close(self) -> None:
        """Wait a few seconds for the receives in flight, and show untaken messages again; then abort the others."""
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
        asked_at = self._clock()
        answer = await self._client.call(
            "ReceiveMessage",
            seconds=wait_seconds + max(self._client.timeout_seconds, _ANSWER_SECONDS),
            QueueUrl=url,
            MaxNumberOfMessages=min(limit, MAX_ENTRIES),
            VisibilityTimeout=min(lease_seconds + _SPARE_SECONDS, MAX_LEASE_SECONDS),
            WaitTimeSeconds=wait_seconds,
            MessageAttributeNames=["All"],
            AttributeNames=SYSTEM_ATTRIBUTES,
        )
        received_at = self._clock()
        if not wait_seconds:
            # A short poll takes its messages at the earliest when it is asked, however late its answer is.
            received_at = min(received_at, asked_at + _SPARE_SECONDS * 1000)
        found = await turns.mapped(read, answer.get("Messages") or ())
        return [self._settler.delivery(each, lease_seconds, received_at) for each in found]

    async def _long(self, queue: SqsQueue, polls: _QueuePolls, limit: int, wait_seconds: float, seconds: int) -> None:
        """Wait for the long poll of the queue, whose messages are then ready. Raises its error if there are none."""
        task = polls.long
        if task is None:
            task = polls.long = self._start(self._receive(queue, limit, seconds, self._long_poll_seconds))
            task.add_done_callback(lambda done: self._arrived(queue, polls, done, seconds))
        if await finished(task, wait_seconds) and not polls.ready and not task.cancelled():
            task.result()

    async def _short(
        self, queue: SqsQueue, polls: _QueuePolls, limit: int, seconds: int, until: float
    ) -> list[Delivery]:
        """The messages of a short poll; none as soon as messages of a late one are ready."""
        own: list[_Poll] = []
        try:
            while not polls.ready and not any(task.done() for task in own):
                if not own and len(polls.late) < _MAX_SHORT_POLLS:
                    own.append(self._start(self._receive(queue, limit, seconds, 0)))
                if not await _finished([*own, *polls.late], until, asyncio.FIRST_COMPLETED):
                    raise BrokerUnavailable(self._client.broker, "no answer in time")
            return [] if polls.ready else own.pop().result()
        finally:
            self._leave(queue, polls, own, seconds)

    async def _more(
        self, queue: SqsQueue, polls: _QueuePolls, limit: int, seconds: int, until: float
    ) -> list[Delivery]:
        """The messages of several short polls at once, those that are answered in time. Raises nothing."""
        shares = [min(MAX_ENTRIES, limit - start) for start in range(0, limit, MAX_ENTRIES)][:_MAX_SHORT_POLLS]
        own = [self._start(self._receive(queue, share, seconds, 0)) for share in shares]
        try:
            await _finished(own, until, asyncio.ALL_COMPLETED)
            answered = [task for task in own if task.done()]
            own = [task for task in own if not task.done()]
            return [each for task in answered if not task.exception() for each in task.result()]
        finally:
            self._leave(queue, polls, own, seconds)

    def _leave(self, queue: SqsQueue, polls: _QueuePolls, own: Sequence[_Poll], seconds: int) -> None:
        """Let short polls go on whose caller does not wait for them any more."""
        for task in own:
            polls.late.add(task)
            task.add_done_callback(lambda done: self._arrived(queue, polls, done, seconds))

    async def _take(self, queue: SqsQueue, polls: _QueuePolls, limit: int, seconds: int) -> list[Delivery]:
        """Messages that are ready, with the lease of the call that takes them."""
        taken, polls.ready = polls.ready[:limit], polls.ready[limit:]
        others = [each.handle for each, lease_seconds in taken if lease_seconds != seconds]
        if not others:
            return [each for each, _ in taken]
        deadlines = dict(zip(others, await self._settler.extend(queue, others, seconds), strict=True))
        found: list[Delivery] = []
        for each, _ in taken:
            deadline = deadlines.get(each.handle, each.lease_expires_at)
            if isinstance(deadline, int):
                found.append(self._with_deadline(each, deadline))
        return found

    def _with_deadline(self, delivery: Delivery, deadline: int) -> Delivery:
        found = receipt_of(delivery.handle)
        assert found is not None
        handle = replace(found, deadline=deadline).handle
        return replace(delivery, handle=handle, lease_expires_at=deadline)

    def _arrived(self, queue: SqsQueue, polls: _QueuePolls, task: _Poll, seconds: int) -> None:
        """Keep the messages of a poll, ready for the next call."""
        polls.late.discard(task)
        is_long = polls.long is task
        if is_long:
            polls.long = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                polls.ready += [(each, seconds) for each in task.result()]
            elif is_long and not polls.waiting:
                _throttled.warning("a long poll failed", queue=queue.name, broker=self._client.broker, error=error)
        self._watch(queue, polls)

    def _watch(self, queue: SqsQueue, polls: _QueuePolls) -> None:
        """Show messages again that no call takes within a moment; forget idle queues."""
        if polls.timer is not None:
            polls.timer.cancel()
            polls.timer = None
        if polls.ready and not polls.waiting:
            if self._closed:
                self._return(queue, polls)
            else:
                loop = asyncio.get_running_loop()
                polls.timer = loop.call_later(_KEPT_SECONDS, self._return, queue, polls)
        elif polls.unused and self._polls.get(queue.key) is polls:
            del self._polls[queue.key]

    def _return(self, queue: SqsQueue, polls: _QueuePolls) -> None:
        deliveries, polls.ready = [each for each, _ in polls.ready], []
        self._watch(queue, polls)
        if deliveries:
            self._returning.start(self._show_again(queue, deliveries))

    async def _show_again(self, queue: SqsQueue, deliveries: Sequence[Delivery]) -> None:
        """Give back deliveries that no consumer has seen. Where this fails, their leases expire."""
        with contextlib.suppress(BabelgateError):
            await self._settler.release(queue, [each.handle for each in deliveries], 0, failed=False)


async def _finished(polls: Collection[_Poll], until: float, when: str) -> bool:
    """Wait ``until`` a loop time, and GRACE_SECONDS, as ``when`` says; return whether that is so. Cancels nothing."""
    for seconds in (until - asyncio.get_running_loop().time(), GRACE_SECONDS):
        done, pending = await asyncio.wait(polls, timeout=max(seconds, 0), return_when=when)
        if not pending or (done and when == asyncio.FIRST_COMPLETED):
            return True
    return False
