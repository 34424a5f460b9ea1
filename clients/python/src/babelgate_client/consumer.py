"""Consumes a queue: receives, runs a handler for each message, keeps its lease, and settles it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from babelgate_client import calls
from babelgate_client.calls import FOREVER, Attempts, Repeat
from babelgate_client.errors import BabelgateError, LeaseLostError, Reject, Retry
from babelgate_client.messages import Delivery
from babelgate_client.stream import Stream, StreamsNotOffered

if TYPE_CHECKING:
    from babelgate_client.clients import AsyncClient

Handler = Callable[[Delivery], Awaitable[object] | object]
"""Handles one message. A coroutine function runs in the event loop, any other in a thread.

Returning acks the message. An exception nacks it with its text and class; Reject and Retry do what they say.
"""

MOST_PER_RECEIVE = 100
MOST_ERROR_CHARACTERS = 10_000
MOST_CONCURRENCY = 1_000
"""One request prolongs all leases, and takes so many ack tokens."""
ARRIVE_WITHIN_SECONDS = 0.25
"""How long a stop waits for an answer that is on its way: else its messages stay leased for nobody."""
_log = logging.getLogger("babelgate_client")


class Consumer:
    """Runs a handler for the messages of a queue, several at a time, until it is stopped.

    ``concurrency``: most messages at a time; no more are leased. ``lease_seconds``: the lease, which is prolonged for
    as long as the handler runs; after a crash of this program the message is delivered again when it ends, but at
    once with ``stream``.
    ``wait_seconds``: of the long poll, at most 30. ``grace_seconds``: how long a stop waits for running handlers.
    ``stream``: read a stream instead of long polls, if the gateway offers streams. It delivers the next message as soon
    as one is settled. When its connection ends, all its leases do, and no attempt is counted.

    A coroutine handler is cancelled when its lease is lost or the grace is over. A handler in a thread cannot be: it
    may ask ``delivery.lease_lost``.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 10,
        lease_seconds: float = 60,
        wait_seconds: float = 20,
        grace_seconds: float = 30,
        stream: bool = False,
    ) -> None:
        if not 1 <= concurrency <= MOST_CONCURRENCY:
            raise ValueError(f"concurrency must be from 1 to {MOST_CONCURRENCY}")
        self._client = client
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._wait_seconds = wait_seconds
        self._grace_seconds = grace_seconds
        self._running: dict[asyncio.Task[None], _Held] = {}
        self._ended = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stream: Stream | None = None
        if stream:
            self._stream = Stream(client, queue, concurrency, lease_seconds, self._stopping, self._suspect_leases)

    async def run(self, *, signals: Sequence[signal.Signals] = ()) -> None:
        """Consume until :meth:`stop`, or until one of ``signals`` arrives.

        A gateway that is away or overloaded is waited for. Raises ProblemError when the gateway refuses to receive,
        such as for an unknown queue or a missing right. What is held is then finished or given back, as after a stop.
        """
        loop = asyncio.get_running_loop()
        for each in signals:
            loop.add_signal_handler(each, self.stop)
        keeping = loop.create_task(self._keep_leases())
        try:
            await self._receive()
        finally:
            try:
                await self._finish()
            finally:
                if self._stream is not None:
                    await self._stream.close()
                keeping.cancel()
                for each in signals:
                    loop.remove_signal_handler(each)

    def stop(self) -> None:
        """Receive no more, and end :meth:`run` when the running handlers have ended, or after the grace."""
        self._stopping.set()

    async def _receive(self) -> None:
        attempts = Attempts(Repeat.ALWAYS, FOREVER)
        while not self._stopping.is_set():
            free = self._concurrency - len(self._running)
            if not free:
                self._ended.clear()
                await self._unless_stopped(self._ended.wait())
                continue
            asked = time.monotonic()
            try:
                if self._stream is None:
                    deliveries = await self._poll(free)
                else:
                    deliveries = await self._unless_stopped(self._stream.receive(free)) or []
                    if self._stopping.is_set():
                        # What is not started is delivered again when the stream is closed.
                        return
                    asked = time.monotonic()
            except StreamsNotOffered:
                _log.warning("The gateway offers no streams: the consumer goes on with long polls.")
                self._stream = None
                continue
            except BabelgateError as error:
                pause = attempts.pause_after(error)
                _log.warning("receive from %s failed, next in %.1f s: %s", self._queue, pause, error)
                await self._unless_stopped(asyncio.sleep(pause))
                continue
            attempts = Attempts(Repeat.ALWAYS, FOREVER)
            for delivery in deliveries:
                held = _Held(delivery, asked + self._lease_seconds)
                task = asyncio.get_running_loop().create_task(self._handle(held))
                self._running[task] = held
                task.add_done_callback(self._ends)

    async def _poll(self, free: int) -> list[Delivery]:
        call = calls.receive(self._queue, min(free, MOST_PER_RECEIVE), self._wait_seconds, self._lease_seconds)
        answer = await self._unless_stopped(self._client._once(call), ARRIVE_WITHIN_SECONDS)
        return calls.deliveries(self._queue, answer or {"messages": []})

    async def _unless_stopped(self, wanted: Awaitable[Any], longer: float = 0) -> Any:
        """The result of ``wanted``; None if it does not come within ``longer`` seconds of a stop, which cancels it."""
        task = asyncio.ensure_future(wanted)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((task,), timeout=longer)
            return task.result() if task.done() else None
        finally:
            for each in (task, stopped):
                if not each.done():
                    each.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await each

    def _ends(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a message of %s was not settled", self._queue, exc_info=error)

    async def _finish(self) -> None:
        """Wait for what runs, then give back what does not end."""
        if self._running:
            await asyncio.wait([*self._running], timeout=self._grace_seconds)
        left = dict(self._running)
        for task in left:
            task.cancel()
        if left:
            # A handler may end its own way when it is cancelled, and one in a thread does not notice.
            await asyncio.wait([*left], timeout=1)
            deliveries = [held.delivery for held in left.values() if not held.settled and not held.delivery.lease_lost]
            if deliveries:
                tokens = [each.ack_token for each in deliveries]
                with contextlib.suppress(BabelgateError):
                    await self._client._call(calls.settle(self._queue, "nack", tokens, failed=False), 5)

    async def _handle(self, held: _Held) -> None:
        action: str = "ack"
        parameters: dict[str, Any] = {}
        try:
            if inspect.iscoroutinefunction(self._handler):
                await self._handler(held.delivery)
            else:
                await asyncio.get_running_loop().run_in_executor(None, self._handler, held.delivery)
        except asyncio.CancelledError:
            if held.delivery.lease_lost:
                return
            raise
        except Reject as reject:
            action, parameters = "reject", {"error": _described(reject)}
        except Retry as retry:
            action, parameters = "nack", {"error": _described(retry), "delay_seconds": retry.delay_seconds}
        except Exception as error:
            _log.warning("the handler of %s failed for %s", self._queue, held.delivery.id, exc_info=error)
            action, parameters = "nack", {"error": _described(error)}
        if held.delivery.lease_lost:
            return
        call = calls.settle(self._queue, action, [held.delivery.ack_token], **parameters)
        try:
            # While the lease lives, and it is prolonged until this ends, the message is delivered to nobody else.
            await self._client._call(call, max(held.deadline - time.monotonic(), self._client.timeout_seconds))
            held.settled = True
        except LeaseLostError:
            _log.warning("the lease of %s on %s was over before its %s", held.delivery.id, self._queue, action)

    def _suspect_leases(self) -> None:
        """Ask for all leases soon. Those of a stream that ended are lost, unless its gateway was killed."""
        for held in self._running.values():
            held.suspected_at = time.monotonic()

    async def _keep_leases(self) -> None:
        """Prolong each lease when a third of it is over, or when it is suspected to be lost."""
        while True:
            await asyncio.sleep(self._lease_seconds / 12)
            due = time.monotonic() + self._lease_seconds * 2 / 3
            held = {
                each.delivery.ack_token: (task, each)
                for task, each in self._running.items()
                if (each.deadline < due or each.suspected_at is not None)
                and not each.settled
                and not each.delivery.lease_lost
            }
            if not held:
                continue
            asked = time.monotonic()
            call = calls.settle(self._queue, "extend", [*held], lease_seconds=self._lease_seconds)
            try:
                # An answer that comes too late must not hinder the next attempt.
                answer = await asyncio.wait_for(self._client._once(call), max(self._lease_seconds / 3, 1))
                codes = {result["index"]: result.get("code") for result in answer["results"]}
            except LeaseLostError:
                codes = {0: "lease_lost"}
            except (TimeoutError, BabelgateError) as error:
                _log.warning("%d leases of %s were not prolonged: %s", len(held), self._queue, error)
                continue
            for index, (task, each) in enumerate(held.values()):
                if codes.get(index) is None:
                    each.deadline = asked + self._lease_seconds
                    # What was asked before the end of the stream says nothing of the time after it.
                    if each.suspected_at is not None and asked > each.suspected_at:
                        each.suspected_at = None
                elif codes[index] == "lease_lost":
                    each.delivery._lost.append(True)
                    task.cancel()


class _Held:
    """A delivery, the time of ``time.monotonic`` at which its lease ends, and whether it is settled.

    ``suspected_at``: when its stream ended, until the gateway has prolonged the lease after that.
    """

    def __init__(self, delivery: Delivery, deadline: float) -> None:
        self.delivery = delivery
        self.deadline = deadline
        self.settled = False
        self.suspected_at: float | None = None


def _described(error: BaseException) -> dict[str, str]:
    return {"message": str(error)[:MOST_ERROR_CHARACTERS], "exception": type(error).__name__}
