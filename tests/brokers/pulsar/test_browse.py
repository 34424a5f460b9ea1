"""What a reader of a topic shows and removes when the broker sends messages twice."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from babelgate.brokers.binding import DeadRecord, Delivery, Outcome
from babelgate.brokers.pulsar.browse import PulsarBrowser
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.queue import ReceivingQueue
from babelgate.brokers.pulsar.url import PulsarQueue
from babelgate.errors import LeaseLost


class Client:
    """A client that is not connected."""

    timeout_seconds = 30.0


class Resending:
    """Consumers that get these entries, reserve by reserve. They hold the latest delivery of an entry; of those of
    ``soon_resent`` the first delivery is resent, by the next reserve, before it is acknowledged."""

    def __init__(self, *reserves: list[int], soon_resent: Sequence[int] = ()) -> None:
        self._reserves = deque(reserves)
        self._number = 0
        self._lost = set(soon_resent)
        self._latest: dict[int, str] = {}
        self.acked: list[int] = []

    async def reserve(self, limit: int, wait_seconds: float) -> list[Delivery]:
        return [self._delivery(entry) for entry in (self._reserves.popleft() if self._reserves else [])]

    def _delivery(self, entry: int) -> Delivery:
        self._number += 1
        handle = self._latest[entry] = f"7-{entry}-0--{'0' * 16}-1-{self._number}"
        return Delivery(b"%d" % entry, handle, 0, {}, 0, False, None)

    async def ack(self, handles: Sequence[str]) -> list[Outcome]:
        return [self._acked(handle) for handle in handles]

    def _acked(self, handle: str) -> Outcome:
        entry = int(handle.split("-")[1])
        if handle != self._latest[entry] or entry in self._lost:
            self._lost.discard(entry)
            return LeaseLost()
        self.acked.append(entry)
        return None

    async def undelivered(self) -> int:
        return 0

    async def close(self) -> None:
        """Nothing is held."""


QUEUE: Any = cast(PulsarQueue, None)


class Alone(PulsarBrowser):
    """A browser that no other one shares its topics with."""

    @asynccontextmanager
    async def _reading(self, queue: PulsarQueue) -> AsyncIterator[ReceivingQueue]:
        async with self._browsing(queue) as consumers:
            yield consumers


def browser_of(consumers: Resending) -> PulsarBrowser:
    return Alone(cast(PulsarClient, Client()), lambda _: cast(ReceivingQueue, consumers), lambda: 0)


async def test_a_message_that_comes_twice_is_shown_once_and_counts_once() -> None:
    consumers = Resending([0, 1], [0, 1, 2], [3])
    shown = await browser_of(consumers).peek(QUEUE, 4)
    assert [each.body for each in shown] == [b"0", b"1", b"2", b"3"]
    assert [each.handle.rpartition("-")[2] for each in shown] == ["3", "4", "5", "6"], "of each the one that is held"


async def test_a_purge_removes_and_counts_a_message_that_comes_twice_once() -> None:
    # Twice in one reserve, again after its acknowledgement, and before it.
    consumers = Resending([0, 1, 0], [1, 2, 3], [3], soon_resent=[3])
    assert await browser_of(consumers).purge(QUEUE) == 4
    assert set(consumers.acked) == {0, 1, 2, 3}


async def test_dead_letters_that_come_twice_are_removed_once() -> None:
    consumers = Resending([0, 1, 0], [1, 2, 3], [3], soon_resent=[3])
    records = [DeadRecord(f"7-{entry}-0--{'0' * 16}-9-9", b"", {}, None) for entry in (0, 1, 3, 4)]
    assert await browser_of(consumers).remove_dead(QUEUE, records) == [True, True, True, False]
    assert consumers.acked == [0, 1, 3]
