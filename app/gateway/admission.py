"""What one process takes on at a time: bounded amounts, so that load becomes refusals and not memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from app.errors import Overloaded


@dataclass(frozen=True)
class Bounds:
    """How much one process takes on at a time.

    With several brokers one gets at most half of each, so that one that hangs leaves room for the queues of the others.
    """

    max_publishes_in_flight: int = 10_000
    max_publish_bytes_in_flight: int = 67_108_864
    max_other_bytes_in_flight: int = 67_108_864
    max_receives_in_flight: int = 20_000
    max_unread_bytes_in_flight: int = 67_108_864
    max_held_leases: int = 50_000
    max_held_bytes: int = 268_435_456


class Pool:
    """An amount of ``what``, of which at most ``limit`` is taken at a time, and at most ``share`` for one broker.

    A broker for which nothing is taken gets what it asks for, however much: the largest request is served, and nobody
    waits for another broker's answers.
    """

    def __init__(self, what: str, limit: int, brokers: int = 1) -> None:
        self.what = what
        self.limit = limit
        self.share = limit if brokers < 2 else max(limit // 2, 1)
        self.taken = 0
        self._by_broker: defaultdict[str, int] = defaultdict(int)

    def of(self, broker: str) -> int:
        """What is taken for ``broker``."""
        return self._by_broker.get(broker, 0)

    def check(self, broker: str, amount: int) -> None:
        """Raise Overloaded when ``amount`` more is too much."""
        taken = self._by_broker[broker]
        if taken and (taken + amount > self.share or self.taken + amount > self.limit):
            bound = self.share if taken + amount > self.share else self.limit
            raise Overloaded(
                reason=f"at most {bound} {self.what} are in flight for the broker {broker!r}, and {taken} are"
            )

    def add(self, broker: str, amount: int) -> None:
        """Take ``amount``, or give it back where it is negative."""
        self.taken += amount
        self._by_broker[broker] += amount


SMALL_BYTES = 65_536
"""So much of a body has come with its head: to refuse a settle that is no larger would save nothing."""


class Permit:
    """What one request has taken; a context manager that gives it back."""

    __slots__ = ("_broker", "_bytes", "_count", "_free", "_size")

    def __init__(self, broker: str, count: Pool | None, data: Pool, free: int = 0) -> None:
        """``free``: so many bytes are there whether there is room for them or not."""
        self._broker = broker
        self._count = count
        self._bytes = data
        self._free = free
        self._size = 0

    @property
    def size(self) -> int:
        """The bytes it has."""
        return self._size

    def grow(self, size: int) -> None:
        """Have ``size`` bytes in all; never fewer than before. Raises Overloaded."""
        if size > self._size:
            if size > self._free:
                self._bytes.check(self._broker, size - self._size)
            self.hold(size)

    def hold(self, size: int) -> None:
        """Have ``size`` bytes in all, which are there whether there is room for them or not."""
        self._bytes.add(self._broker, size - self._size)
        self._size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._count is not None:
            self._count.add(self._broker, -1)
        self._bytes.add(self._broker, -self._size)


class Admission:
    """Takes on requests, or refuses them before anything is spent on them."""

    def __init__(self, bounds: Bounds | None = None, brokers: int = 1) -> None:
        self._bounds = bounds = bounds or Bounds()
        self._brokers = min(brokers, 2)
        self._publishes = Pool("publishes", bounds.max_publishes_in_flight, brokers)
        self._publish_bytes = Pool("bytes to publish", bounds.max_publish_bytes_in_flight, brokers)
        self._other_bytes = Pool("bytes of other calls", bounds.max_other_bytes_in_flight, brokers)
        self._receives = Pool("receives", bounds.max_receives_in_flight, brokers)
        self._unread_bytes = Pool("bytes that clients have not read yet", bounds.max_unread_bytes_in_flight, brokers)

    def publish(self, broker: str, size: int) -> Permit:
        """Room for a publish whose body has ``size`` bytes as far as is known. Raises Overloaded."""
        self._publishes.check(broker, 1)
        return self._ticket(broker, self._publishes, self._publish_bytes, size)

    def other(self, broker: str, size: int) -> Permit:
        """Room for a call of ``size`` bytes that is neither, so that no publish keeps a lease from ending; a small one
        is never refused. Raises Overloaded."""
        ticket = Permit(broker, None, self._other_bytes, SMALL_BYTES)
        ticket.grow(size)
        return ticket

    def publishing(self, broker: str) -> int:
        """How many publishes are served for ``broker``."""
        return self._publishes.of(broker)

    def receive(self, broker: str) -> Permit:
        """Room for a receive, which grows by the bytes of its answer. Raises Overloaded."""
        self._receives.check(broker, 1)
        return self._ticket(broker, self._receives, self._unread_bytes, 0)

    def check_handing_out(self, broker: str, count: int, size: int) -> None:
        """Raise Overloaded when consumers of ``broker`` are to read, or to settle, before they get more.

        ``count`` and ``size`` are the leases that this process keeps for them, and their bytes.
        """
        self._unread_bytes.check(broker, 1)
        if count * self._brokers >= self._bounds.max_held_leases or size * self._brokers >= self._bounds.max_held_bytes:
            raise Overloaded(reason=f"{count} leases of {size} bytes are held for the broker {broker!r} already")

    @staticmethod
    def _ticket(broker: str, count: Pool, data: Pool, size: int) -> Permit:
        ticket = Permit(broker, count, data)
        ticket.grow(size)
        count.add(broker, 1)
        return ticket
