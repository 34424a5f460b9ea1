"""Batches keep order, limits and every item; several in flight keep their bound, and fail one by one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.brokers.batching import Batch, batches, made_of_each, send_batches
from babelgate.brokers.binding import Outgoing
from babelgate.errors import BodyTooLarge, BrokerRejected, BrokerUnavailable

SIZES = st.lists(st.integers(0, 50), max_size=60)


@given(SIZES, st.integers(1, 20), st.integers(1, 100))
def test_order_limits_and_every_item(sizes: list[int], max_count: int, max_bytes: int) -> None:
    items = list(enumerate(sizes))
    cut = list(batches(iter(items), max_count, max_bytes, sizes))
    assert [item for batch in cut for item in batch] == items
    for batch in cut:
        assert 0 < len(batch) <= max_count
        assert sum(size for _, size in batch) <= max_bytes or len(batch) == 1


@given(SIZES, st.integers(1, 20), st.integers(1, 100))
def test_no_two_neighbours_would_fit_in_one(sizes: list[int], max_count: int, max_bytes: int) -> None:
    cut = list(batches(sizes, max_count, max_bytes, sizes))
    for before, after in itertools.pairwise(cut):
        assert len(before) == max_count or sum(before) + after[0] > max_bytes


def test_an_item_over_the_limit_travels_alone() -> None:
    assert list(batches([1, 99, 1, 1], 10, 10, [1, 99, 1, 1])) == [[1], [99], [1, 1]]


def test_a_limit_of_items_only() -> None:
    assert list(batches("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]


class Broker:
    """Answers a batch with its items, the later begun the sooner; counts what is in flight."""

    def __init__(self) -> None:
        self.in_flight = self.most = 0
        self.begun: list[Sequence[int]] = []
        self.cancelled = 0
        self.failing: dict[int, Exception] = {}

    async def send(self, batch: Sequence[int]) -> Sequence[int]:
        self.begun.append(batch)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(0.02 / len(self.begun))
            if (error := self.failing.get(batch[0])) is not None:
                raise error
            return batch
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1


TEN = [[n, n] for n in range(10)]


@pytest.mark.parametrize("bound", [1, 3, 10, 99])
async def test_results_in_order_and_the_bound_kept(bound: int) -> None:
    broker = Broker()
    assert await send_batches(TEN, broker.send, bound) == [n for batch in TEN for n in batch]
    assert broker.most == min(bound, 10) and broker.begun == TEN


async def test_no_bound_and_nothing_to_send() -> None:
    broker = Broker()
    assert await send_batches([], broker.send) == []
    await send_batches(TEN, broker.send)
    assert broker.most == 10


async def test_a_failed_batch_fails_its_items_and_no_others() -> None:
    broker = Broker()
    broker.failing[4] = error = BrokerUnavailable(broker="x", reason="lost")
    results = await send_batches(TEN, broker.send, 3)
    assert results == [*(n for n in (0, 0, 1, 1, 2, 2, 3, 3)), error, error, *(n for n in range(5, 10) for _ in "ab")]


async def test_a_defect_is_raised_once_all_in_flight_have_ended() -> None:
    broker = Broker()
    broker.failing[1] = ValueError("a defect")
    with pytest.raises(ValueError, match="a defect"):
        await send_batches(TEN, broker.send, 3)
    assert broker.in_flight == 0 and len(broker.begun) < 10 and broker.cancelled == 0


async def test_a_batch_that_is_cancelled_from_elsewhere_is_not_left_out_of_the_results() -> None:
    async def send(batch: Sequence[int]) -> Sequence[int]:
        if batch[0] == 1:
            raise asyncio.CancelledError
        return batch

    with pytest.raises(asyncio.CancelledError):
        await send_batches(TEN, send, 3)


async def test_a_cancelled_caller_cancels_what_is_in_flight() -> None:
    broker = Broker()
    sending = asyncio.ensure_future(send_batches(TEN, broker.send, 3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert broker.in_flight == 0 and broker.cancelled == 3 and len(broker.begun) == 3


async def test_one_batch_is_sent_by_the_caller_itself() -> None:
    broker = Broker()
    tasks = asyncio.all_tasks()
    sent: list[set[asyncio.Task[object]]] = []

    async def send(batch: Sequence[int]) -> Sequence[int]:
        sent.append(asyncio.all_tasks() - tasks)
        return await broker.send(batch)

    assert await send_batches([[1, 2]], send) == [1, 2]
    assert sent == [set()]
    broker.failing[3] = error = BrokerUnavailable(broker="x", reason="lost")
    assert await send_batches([[3, 3]], broker.send) == [error, error]
    sending = asyncio.ensure_future(send_batches([[4]], broker.send))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert broker.in_flight == 0 and broker.cancelled == 1


async def test_a_write_ends_with_its_last_confirm_whatever_their_order() -> None:
    batch: Batch[int | None] = Batch(3, None)
    waiting = asyncio.ensure_future(batch.wait(asyncio.get_running_loop().time() + 30))
    for position in (2, 0):
        batch.settle(position, position)
    assert (batch.results, batch.done.done()) == ([0, None, 2], False)
    batch.settle(1, 1)
    assert (await waiting, batch.results) == (True, [0, 1, 2])


async def test_a_write_without_all_confirms_ends_at_its_time_and_takes_late_ones() -> None:
    batch: Batch[int | None] = Batch(2, None)
    batch.settle(0, 0)
    assert not await batch.wait(asyncio.get_running_loop().time())
    assert batch.results == [0, batch.pending]
    batch.settle(1, 1)
    assert batch.results == [0, 1]


async def test_each_message_is_made_or_has_its_own_error() -> None:
    too_large = BodyTooLarge(actual=2, limit=1)

    def make(message: Outgoing) -> int:
        if message.body == b"large":
            raise too_large
        return int(message.body)

    messages = [Outgoing(body) for body in (b"1", b"large", b"word.", b"4")]
    (first, second, third, fourth), made = await made_of_each("b", messages, make)
    assert (first, second, fourth) == (None, too_large, None)
    assert isinstance(third, BrokerRejected) and "word." in str(third)
    assert made == {0: 1, 3: 4}
    assert await made_of_each("b", [], make) == ([], {})
