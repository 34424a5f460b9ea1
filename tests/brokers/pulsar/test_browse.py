"""What a reader of a topic shows when the broker sends messages twice."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from babelgate.brokers.binding import Delivery
from babelgate.brokers.pulsar.browse import PulsarBrowser
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.queue import ReceivingQueue
from babelgate.brokers.pulsar.url import PulsarQueue


class Client:
    """A client that is not connected."""

    timeout_seconds = 30.0


class Resending:
    """Consumers that get these entries, reserve by reserve."""

    def __init__(self, *reserves: list[int]) -> None:
        self._reserves = deque(reserves)
        self._number = 0

    async def reserve(self, limit: int, wait_seconds: float) -> list[Delivery]:
        return [self._delivery(entry) for entry in (self._reserves.popleft() if self._reserves else [])]

    def _delivery(self, entry: int) -> Delivery:
        self._number += 1
        return Delivery(b"%d" % entry, f"7-{entry}---{'0' * 16}-1-{self._number}", 0, {}, 0, False, None)

    async def close(self) -> None:
        """Nothing is held."""


async def test_a_message_that_comes_twice_is_shown_once_and_counts_once() -> None:
    consumers = Resending([0, 1], [0, 1, 2], [3])
    browser = PulsarBrowser(cast(PulsarClient, Client()), lambda _: cast(ReceivingQueue, consumers), lambda: 0)
    queue: Any = cast(PulsarQueue, None)
    shown = await browser.peek(queue, 4)
    assert [each.body for each in shown] == [b"0", b"1", b"2", b"3"]
    assert [each.handle.rpartition("-")[2] for each in shown] == ["3", "4", "5", "6"], "of each the one that is held"
