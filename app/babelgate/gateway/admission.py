"""Admission control: bounds the requests and bytes in flight in one process and refuses the excess."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from babelgate.errors import Overloaded
from babelgate.runtime import turns


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of one process.

    With several brokers, each broker gets at most half of each bound, so that a broker that hangs leaves capacity for
    the queues of the others.
    """

    max_publishes_in_flight: int = 10_000
    max_publish_bytes_in_flight: int = 67_108_864
    max_other_bytes_in_flight: int = 67_108_864
    max_receives_in_flight: int = 20_000
    max_unread_bytes_in_flight: int = 67_108_864
    max_held_leases: int = 50_000
    max_held_bytes: int = 268_435_456


class Pool:
    """A bounded amount of ``what``: at most ``limit`` is taken at a time, and at most ``share`` for one broker.

    A broker for which nothing is taken gets any amount, so that the largest request is served and no request waits for
    the answers of another broker.
    """

    def __init__(self, what: str, limit: int, brokers: int = 1) -> None:
        self.what = what
        self.limit = limit
        self.share_among(brokers)
        self.taken = 0
        self.by_broker: defaultdict[str, int] = defaultdict(int)

    def share_among(self, brokers: int) -> None:
        """Grant each of this number of ``brokers`` a share."""
        self.share = self.limit if brokers < 2 else max(self.limit // 2, 1)

    def of(self, broker: str) -> int:
        """The amount taken for ``broker``."""
        return self.by_broker.get(broker, 0)

    def take(self, broker: str, amount: int) -> None:
        """Take ``amount``. Raises Overloaded, and takes nothing, when it would exceed a bound."""
        if (taken := self.by_broker[broker]) and (taken + amount > self.share or self.taken + amount > self.limit):
            self.check(broker, amount)
        self.taken += amount
        self.by_broker[broker] = taken + amount

    def check(self, broker: str, amount: int) -> None:
        """Raise Overloaded when ``amount`` more would exceed a bound."""
        taken = self.by_broker[broker]
        if taken and (taken + amount > self.share or self.taken + amount > self.limit):
            bound = self.share if taken + amount > self.share else self.limit
            raise Overloaded(
                reason=f"at most {bound} {self.what} are in flight for the broker {broker!r}, and {taken} are"
            )

    def add(self, broker: str, amount: int) -> None:
        """Take ``amount``; a negative one is given back."""
        self.taken += amount
        self.by_broker[broker] += amount


SMALL_BYTES = 65_536
"""Bodies up to this size have mostly arrived together with the request's head, so refusing them saves no memory."""


class Permit:
    """The amounts taken by one request; a context manager that gives them back. ``size``: the bytes taken. ``then``:
    called when they are given back."""

    __slots__ = ("_broker", "_bytes", "_count", "_free", "size", "then")

    def __init__(self, broker: str, count: Pool | None, data: Pool, size: int = 0, free: int = 0) -> None:
        """Take ``size`` bytes, and one of ``count``. ``free``: this many bytes are granted without a check.

        Raises Overloaded.
        """
        self._broker = broker
        self._count = count
        self._bytes = data
        self._free = free
        self.then: Callable[[], None] | None = None
        self.size = 0
        if count is not None:
            count.take(broker, 1)
        if size > free:
            try:
                data.take(broker, size)
            except Overloaded:
                if count is not None:
                    count.add(broker, -1)
                raise
            self.size = size
        elif size:
            self.hold(size)

    def grow(self, size: int) -> None:
        """Raise the total to ``size`` bytes; a smaller ``size`` is ignored. Raises Overloaded."""
        if size > self.size:
            if size > self._free:
                self._bytes.check(self._broker, size - self.size)
            self.hold(size)

    def hold(self, size: int) -> None:
        """Set the total to ``size`` bytes without a check."""
        self._bytes.add(self._broker, size - self.size)
        self.size = size

    def __enter__(self) -> Self:
        return self

    def release(self, *_: object) -> None:
        """Give the budget back, once."""
        broker, count, data = self._broker, self._count, self._bytes
        if count is not None:
            count.taken -= 1
            count.by_broker[broker] -= 1
        data.taken -= self.size
        data.by_broker[broker] -= self.size
        if self.then is not None:
            self.then()

    __exit__ = release


class Admission:
    """Admits requests or refuses them before they use resources."""

    def __init__(self, bounds: Bounds | None = None, brokers: int = 1) -> None:
        self._bounds = bounds = bounds or Bounds()
        self._brokers = min(brokers, 2)
        self._publishes = Pool("publishes", bounds.max_publishes_in_flight, brokers)
        self._publish_bytes = Pool("bytes to publish", bounds.max_publish_bytes_in_flight, brokers)
        self._other_bytes = Pool("bytes of other calls", bounds.max_other_bytes_in_flight, brokers)
        self._receives = Pool("receives", bounds.max_receives_in_flight, brokers)
        self._unread_bytes = Pool("bytes that clients have not read yet", bounds.max_unread_bytes_in_flight, brokers)

    def share_among(self, brokers: int) -> None:
        """Share the bounds among this number of ``brokers`` from now on."""
        self._brokers = min(brokers, 2)
        bounds = self._bounds
        for pool, limit in (
            (self._publishes, bounds.max_publishes_in_flight),
            (self._publish_bytes, bounds.max_publish_bytes_in_flight),
            (self._other_bytes, bounds.max_other_bytes_in_flight),
            (self._receives, bounds.max_receives_in_flight),
            (self._unread_bytes, bounds.max_unread_bytes_in_flight),
        ):
            pool.limit = limit
            pool.share_among(brokers)

    def configure(self, bounds: Bounds, brokers: int) -> None:
        """Have these bounds, shared by this number of ``brokers``, from now on. What is in flight goes on."""
        self._bounds = bounds
        self.share_among(brokers)

    def publish(self, broker: str, size: int) -> Permit:
        """A permit for a publish with a body of ``size`` bytes, as far as the size is known. Raises Overloaded."""
        if size <= turns.LARGE_BYTES:
            turns.small_requests.count += 1
        return Permit(broker, self._publishes, self._publish_bytes, size)

    def batch(self, broker: str, size: int) -> Permit:
        """A permit for a batch, which is no small request. Raises Overloaded."""
        return Permit(broker, self._publishes, self._publish_bytes, size)

    def other(self, broker: str, size: int) -> Permit:
        """A permit for any other call of ``size`` bytes, with bounds of its own so that publishes cannot block settles.

        A small call is never refused. Raises Overloaded.
        """
        if size <= turns.LARGE_BYTES:
            turns.small_requests.count += 1
        return Permit(broker, None, self._other_bytes, size, SMALL_BYTES)

    def publishing(self, broker: str) -> int:
        """Number of publishes in flight for ``broker``."""
        return self._publishes.of(broker)

    def receive(self, broker: str) -> Permit:
        """A permit for a receive; the bytes of its answer are added later. Raises Overloaded."""
        turns.small_requests.count += 1
        return Permit(broker, self._receives, self._unread_bytes)

    def check_handing_out(self, broker: str, count: int, size: int) -> None:
        """Raise Overloaded while consumers of ``broker`` have too many unread answers or unsettled leases.

        ``count``: the leases that this process keeps for them. ``size``: the bytes of their bodies.
        """
        self._unread_bytes.check(broker, 1)
        if count * self._brokers >= self._bounds.max_held_leases or size * self._brokers >= self._bounds.max_held_bytes:
            raise Overloaded(reason=f"{count} leases of {size} bytes are held for the broker {broker!r} already")
