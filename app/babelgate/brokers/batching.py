"""Makes the native forms of messages, splits items into batches, sends several batches at once, and collects the
confirms of one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.brokers.errors import failure_for_each
from babelgate.errors import BabelgateError, BrokerRejected
from babelgate.runtime import turns

Item = TypeVar("Item")
Made = TypeVar("Made")
Result = TypeVar("Result")


class Batch(Generic[Result]):
    """The messages of one write, which the broker confirms one by one. ``results``: of each, ``pending`` until then.
    ``done``: when all have a result, or no call waits for them any more.
    """

    __slots__ = ("_left", "done", "pending", "results")

    def __init__(self, count: int, pending: Result) -> None:
        self.results: list[Result] = [pending] * count
        self.pending = pending
        self._left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, position: int, result: Result) -> None:
        """Set the result of a message, once."""
        self.results[position] = result
        self._left -= 1
        if not self._left:
            self._end()

    async def wait(self, until: float) -> bool:
        """Wait until all messages have a result, at most until the loop's time ``until`` and GRACE_SECONDS; return
        whether they have."""
        loop = self.done.get_loop()
        # At the first timer this process may have stood still, and the confirms are there.
        timer = loop.call_at(until, loop.call_later, GRACE_SECONDS, self._end)
        try:
            await self.done
        finally:
            timer.cancel()
        return not self._left

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def made_of_each(
    broker: str, messages: Sequence[Outgoing], make: Callable[[Outgoing], Made]
) -> tuple[list[Outcome], dict[int, Made]]:
    """What ``make`` makes of each message, by its position; and the outcomes of all, None for those that were made.

    The outcome of another message is the BabelgateError that ``make`` raised, or BrokerRejected for a ValueError,
    TypeError or OverflowError.
    """

    def made(message: Outgoing) -> Made | BabelgateError:
        try:
            return make(message)
        except BabelgateError as error:
            return error.without_frames()
        except (ValueError, TypeError, OverflowError) as error:
            return BrokerRejected(broker, str(error).rstrip("."))

    outcomes: list[Outcome] = [None] * len(messages)
    ready: dict[int, Made] = {}
    for position, each in enumerate(await turns.mapped(made, messages, lambda message: len(message.body))):
        if isinstance(each, BabelgateError):
            outcomes[position] = each
        else:
            ready[position] = each
    return outcomes, ready


def batches(
    items: Iterable[Item], max_count: int, max_bytes: float = math.inf, sizes: Sequence[int] = ()
) -> Iterator[list[Item]]:
    """``items``, in order, in batches of at most ``max_count`` items and ``max_bytes`` bytes.

    ``sizes``: the bytes of each item; without them only the count is bounded. An item of more than ``max_bytes`` is a
    batch of its own.
    """
    items = list(items)
    if sum(sizes) <= max_bytes:
        for at in range(0, len(items), max_count):
            yield items[at : at + max_count]
        return
    batch: list[Item] = []
    total = 0
    for item, length in zip(items, sizes, strict=True):
        if batch and (len(batch) == max_count or total + length > max_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += length
    if batch:
        yield batch


async def send_batches(
    batches: Sequence[Sequence[Item]],
    send: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
    max_in_flight: float = math.inf,
) -> list[Result | BabelgateError]:
    """The results of ``send`` for each of ``batches``, one per item, in order.

    Batches are begun in order, at most ``max_in_flight`` at once. A BabelgateError of a batch is the result of each of
    its items; the other batches go on. Another error is raised after all batches that were begun have ended, and no
    further batch is begun. When the caller is cancelled, the batches in flight are cancelled and awaited.
    """
    answers: list[Sequence[Result] | Sequence[BabelgateError]] = [()] * len(batches)
    left = iter(enumerate(batches))
    failures: list[BaseException] = []

    async def work() -> None:
        for position, batch in left:
            if failures:
                return
            try:
                answers[position] = await send(batch)
            except BabelgateError as error:
                answers[position] = failure_for_each(error, len(batch))
            except Exception as error:
                failures.append(error)

    count = int(min(max_in_flight, len(batches)))
    if count == 1:
        # One batch is the usual case, on the path of every publish, and needs no task.
        await work()
    elif count:
        workers = [asyncio.ensure_future(work()) for _ in range(count)]
        try:
            await asyncio.wait(workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        if not failures:
            for worker in workers:
                worker.result()  # raises CancelledError when a batch was cancelled from elsewhere
    if failures:
        raise failures[0]
    return [result for answer in answers for result in answer]
