"""Dead letters on RabbitMQ: read by taking them, requeued, removed once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import DeadRecord, NativeQueue, Outgoing
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.dead_letters import QueueBrowser
from babelgate.brokers.rabbitmq.profile import NativeMessage
from babelgate.errors import InvalidParameter
from tests.brokers.rabbitmq.harness import binding, browse, count
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import linked
from tests.harness.world import until

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
async def other(rabbit: RabbitServer) -> AsyncIterator[RabbitBinding]:
    """Another process."""
    async with binding(rabbit.url()) as opened:
        yield opened


@pytest.fixture(params=["classic", "quorum"])
def native(request: pytest.FixtureRequest, one: RabbitBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {"queue_type": request.param})


def letter(mark: int, failed_at: int | None = None) -> Outgoing:
    frame = {"job": "urn:a", "trace_id": "t", "data": {"mark": mark}, "meta": {"id": "i"}, "attempts": 0}
    if failed_at is not None:
        frame["dead_letter"] = {"reason": "failed", "failed_at": failed_at}
    return Outgoing(json.dumps(frame, separators=(",", ":")).encode())


def marks(records: Sequence[DeadRecord]) -> list[int]:
    return [json.loads(record.body)["data"]["mark"] for record in records]


async def buried(one: RabbitBinding, native: NativeQueue, *letters: Outgoing) -> None:
    assert set(await one.publish_dead_letters(native, letters)) == {None}


async def all_of(one: RabbitBinding, native: NativeQueue) -> list[int]:
    found: list[int] = []
    cursor: str | None = None
    while True:
        records, cursor = await one.read_dead(native, cursor, 100)
        found += marks(records)
        if cursor is None:
            return found


async def shown(one: RabbitBinding, native: NativeQueue, count: int) -> None:
    """Wait until a process sees what another one has put back: a busy quorum queue takes its time."""

    async def are_there() -> bool:
        return (await one.stats(native)).dead == count

    await until(are_there)


class TestReading:
    async def test_pages_follow_one_another(self, one: RabbitBinding, native: NativeQueue) -> None:
        await buried(one, native, *map(letter, range(450)))
        assert await all_of(one, native) == list(range(450))
        assert await all_of(one, native) == list(range(450)), "all are back in their places"

    async def test_at_the_end_all_is_put_back_at_once(
        self, rabbit: RabbitServer, one: RabbitBinding, other: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        await buried(one, native, *map(letter, range(30)))
        assert len((await one.read_dead(native, None, 100))[0]) == 30
        await shown(other, native, 30)
        assert len(await asyncio.to_thread(browse, rabbit.url(), f"{queue}.dlq")) == 30

    async def test_who_does_not_read_on_keeps_nothing_from_others(
        self, one: RabbitBinding, other: RabbitBinding, native: NativeQueue
    ) -> None:
        await buried(one, native, *map(letter, range(30)))
        records, cursor = await one.read_dead(native, None, 10)
        assert (marks(records), cursor) == (list(range(10)), "10")
        assert (await one.stats(native)).dead == 30, "what this process looks at counts"
        await shown(other, native, 30)
        assert await all_of(other, native) == list(range(30))

    async def test_a_cursor_is_good_in_another_process_and_later(
        self, one: RabbitBinding, other: RabbitBinding, native: NativeQueue
    ) -> None:
        await buried(one, native, *map(letter, range(30)))
        _, cursor = await one.read_dead(native, None, 20)
        await one.close()
        await shown(other, native, 30)
        records, cursor = await other.read_dead(native, cursor, 20)
        assert (marks(records), cursor) == (list(range(20, 30)), None)

    async def test_a_page_that_was_read_long_ago_can_be_read_again(self, one: RabbitBinding, queue: str) -> None:
        # A quorum queue without a delivery limit has at its end what was put back.
        native = one.native_queue(queue, {})
        await buried(one, native, *map(letter, range(600)))
        for start in (0, 100, 200, 300, 400, 0, 300):
            records, _ = await one.read_dead(native, str(start), 100)
            assert marks(records) == list(range(start, start + 100))

    async def test_a_queue_that_is_not_there_is_empty(self, one: RabbitBinding, native: NativeQueue) -> None:
        assert await one.read_dead(native, None, 10) == ([], None)
        assert await one.read_dead(native, "50", 10) == ([], None)
        assert await one.purge_dead(native) == 0
        assert (await one.stats(native)).dead == 0

    async def test_a_cursor_of_nobody_is_refused(self, one: RabbitBinding, native: NativeQueue) -> None:
        for cursor in ("", "-1", "a", "1.5", "9" * 19):
            with pytest.raises(InvalidParameter):
                await one.read_dead(native, cursor, 10)


class TestRemoving:
    async def test_what_is_removed_is_gone_and_the_cursor_moves(self, one: RabbitBinding, native: NativeQueue) -> None:
        await buried(one, native, *map(letter, range(25)))
        records, cursor = await one.read_dead(native, None, 10)
        removed, cursor = await one.remove_dead(native, records[::2], cursor)
        assert (removed, cursor) == ([True] * 5, "5")
        records, cursor = await one.read_dead(native, cursor, 100)
        assert (marks(records), cursor) == (list(range(10, 25)), None)
        assert await all_of(one, native) == [1, 3, 5, 7, 9, *range(10, 25)]

    async def test_what_was_put_back_meanwhile_is_found_again(self, one: RabbitBinding, native: NativeQueue) -> None:
        await buried(one, native, *map(letter, range(150)))
        records, cursor = await one.read_dead(native, None, 200)
        assert cursor is None
        assert (await one.remove_dead(native, records[120:], None)) == ([True] * 30, None)
        assert await all_of(one, native) == list(range(120))

    async def test_each_is_removed_once(self, one: RabbitBinding, other: RabbitBinding, native: NativeQueue) -> None:
        await buried(one, native, *[letter(1)] * 3, letter(2))
        records, _ = await one.read_dead(native, None, 10)
        assert (await one.remove_dead(native, records[:2], None))[0] == [True, True]
        await shown(other, native, 2)
        assert await all_of(other, native) == [1, 2]
        assert (await other.remove_dead(native, [records[3]], None))[0] == [True]
        assert (await one.remove_dead(native, [records[3]], None))[0] == [False]
        await shown(one, native, 1)
        assert await all_of(one, native) == [1]

    async def test_a_close_right_after_it_brings_none_back(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        await buried(one, native, *map(letter, range(100)))
        records, _ = await one.read_dead(native, None, 100)
        assert all((await one.remove_dead(native, records[1:], None))[0])
        await one.close()

        async def one_is_left() -> bool:
            return await asyncio.to_thread(count, rabbit.url(), f"{queue}.dlq") == 1

        await until(one_is_left)


class TestPurging:
    async def test_all(self, one: RabbitBinding, native: NativeQueue) -> None:
        await buried(one, native, *map(letter, range(30)))
        await one.read_dead(native, None, 10)
        assert await one.purge_dead(native) == 30
        assert await all_of(one, native) == []

    async def test_the_main_queue(self, one: RabbitBinding, native: NativeQueue) -> None:
        assert await one.purge(native) == 0
        await one.publish(native, [letter(1), letter(2)])
        await buried(one, native, letter(3))
        assert await one.purge(native) == 2
        assert (await one.stats(native)).depth == 0
        assert await all_of(one, native) == [3]


class Slow:
    """A channel to a queue that shows requeued messages after ``looks`` more counts, and sends none to the first of
    ``deaf`` consumers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._hidden = 0
        self.looks = self.deaf = 0

    @property
    def rpc(self) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name) if hasattr(self._channel, name) else getattr(self._channel.rpc, name)

    async def queue_declare(self, queue: str, *, passive: bool) -> Any:
        declared: Any = await self._channel.rpc.queue_declare(queue, passive=passive)
        if self._hidden and self.looks:
            self.looks -= 1
            declared.message_count -= self._hidden
        return declared

    async def elsewhere(self, queue: str) -> int:
        """The number of ready messages, counted on another channel."""
        self.looks -= 1
        return 0 if self.looks > 0 else 3

    async def ready(self, queue: str) -> int:
        declared = await self.queue_declare(queue, passive=True)
        return int(declared.message_count)

    def give_back(self, tags: Sequence[int]) -> None:
        self._channel.give_back(tags)
        self._hidden = len(tags)

    async def consume(
        self, queue: str, prefetch: int, arrived: Callable[[NativeMessage], None], cancelled: Callable[[], None]
    ) -> str:
        self.deaf -= 1
        source = f"{queue}.empty" if self.deaf >= 0 else queue
        return await self._channel.consume(source, prefetch, arrived, cancelled)


class TestSlowQueues:
    """A busy queue is no empty queue."""

    @pytest.fixture
    async def slow(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> AsyncIterator[tuple[Slow, QueueBrowser]]:
        await buried(one, native, *map(letter, range(3)))
        async with linked(rabbit.url()) as link:
            channel = await link.channel()
            await channel.rpc.queue_declare(f"{queue}.dlq.empty")
            slow: Any = Slow(channel)
            yield slow, QueueBrowser(slow, f"{queue}.dlq", 30, slow.elsewhere)

    async def test_a_read_waits_for_what_was_put_back(self, slow: tuple[Slow, QueueBrowser]) -> None:
        channel, browser = slow
        assert len(await browser.page(0, 100)) == 3
        channel.looks = 15
        await browser.put_back()
        assert channel.looks, "it was not waited for"
        assert len(await browser.page(0, 100)) == 3

    async def test_what_is_counted_comes_to_another_consumer(self, slow: tuple[Slow, QueueBrowser]) -> None:
        channel, browser = slow
        channel.deaf = 2
        assert len(await browser.page(0, 100)) == 3
        assert channel.deaf < 0

    async def test_the_end_waits_for_what_is_put_back(self, slow: tuple[Slow, QueueBrowser]) -> None:
        channel, browser = slow
        assert len(await browser.page(0, 100)) == 3
        channel.looks = 15
        await browser.end()
        assert (channel.looks, channel.is_open) == (0, False)
