"""The leases that count for limits of identities and queues: how many each scope holds, and who waits for room.

A lease counts from the moment it is handed out until it is settled, given back, lost, or over. Whoever waits for a
message holds none. So several receives may wait for the same room, and a delivery that was reserved in vain is given
back.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from babelgate.clock import Clock
from babelgate.errors import BabelgateError, LeaseLost
from babelgate.gateway.allowances import Allowance
from babelgate.gateway.authorization import Caller
from babelgate.gateway.model import Message
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Route

_STALE_DEADLINES = 1_000
"""Deadlines of ended leases in the heap, beyond the number of held leases, before the heap is rebuilt."""

_Key = tuple[str, str]
"""Queue and handle."""

Sticky = Callable[[Message], Message]
"""The message with a token whose settle is sent to this process, as long as it exists."""


class LeasesExceeded(BabelgateError):
    """{reason} Nothing was handed out. Settle some of them, and repeat the request."""

    code = "leases_exceeded"
    retryable = True


class _Held(Struct, eq=False):
    """A lease that counts for ``scopes``. ``ends``: the loop's time."""

    scopes: Sequence[Allowance]
    number: int
    ends: float


class CountedLeases:
    """The counted leases of one process.

    ``limits``: what is configured; None: no lease counts. ``held``: by queue and handle.
    """

    def __init__(self, clock: Clock, sticky: Sticky, limits: RateLimits | None) -> None:
        self.limits = limits
        self.held: dict[_Key, _Held] = {}
        self.version = 0
        """Rises when other limits are configured."""
        self._clock = clock
        self.sticky = sticky
        self._numbers = itertools.count()
        self._deadlines: list[tuple[float, int, _Key]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self._follow()

    @property
    def are_limited(self) -> bool:
        """Whether the number of leases of some identity or queue is limited."""
        return self.limits is not None and self.limits.counts_leases

    def configure(self, limits: RateLimits | None) -> None:
        """Limit as ``limits`` does from now on. What is held stays counted."""
        self.limits = limits
        self.version += 1
        self._follow()
        self._wake()

    def _follow(self) -> None:
        """See when the share of this process grows."""
        if self.limits is not None and self.limits.shared is not None:
            self.limits.shared.counts.when_grown = self._wake

    def holder(self, caller: Caller, route: Route) -> LeaseHolder | None:
        """Who will hold the leases of a receive; None: they do not count."""
        scopes = self.scopes(caller, route)
        return LeaseHolder(self, caller, route, scopes) if scopes else None

    def scopes(self, caller: Caller, route: Route) -> Sequence[Allowance]:
        """What the leases of ``caller`` on a queue count for."""
        return () if self.limits is None else self.limits.of_leases(caller, route)

    def add(self, scopes: Sequence[Allowance], messages: Sequence[Message]) -> None:
        """Count the leases of messages that are handed out."""
        loop = asyncio.get_running_loop()
        now = loop.time() - self._clock() / 1000
        for message in messages:
            key = message.lease.queue, message.lease.handle
            self.end(key)
            for scope in scopes:
                scope.running["leases"] += 1
            held = self.held[key] = _Held(scopes, next(self._numbers), now + message.lease_expires_at / 1000)
            self._watch(key, held)

    def settled(self, queue: str, handle: str, outcome: Any) -> None:
        """A lease was settled, extended or given back, with this outcome; an integer is its new deadline in Unix ms."""
        key = queue, handle
        held = self.held.get(key)
        if held is None:
            return
        if isinstance(outcome, int):
            held.ends = asyncio.get_running_loop().time() + (outcome - self._clock()) / 1000
            # A later deadline is looked at when the earlier one has come.
            self._watch(key, held)
        elif outcome is None or outcome == "dead_lettered" or isinstance(outcome, LeaseLost):
            self.end(key)

    def end(self, key: _Key) -> None:
        """Count a lease no more, if it counts."""
        held = self.held.pop(key, None)
        if held is None:
            return
        for scope in held.scopes:
            scope.running["leases"] -= 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._wake)

    def when_freed(self, call: Callable[[], None]) -> None:
        """Call ``call`` once, when a lease has ended or other limits are configured."""
        self._waiting[call] = None

    def forget(self, call: Callable[[], None]) -> None:
        """Do not call ``call`` any more."""
        self._waiting.pop(call, None)

    async def close(self) -> None:
        """Look for leases that are over no more; idempotent."""
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, key: _Key, held: _Held) -> None:
        if len(self._deadlines) > 2 * len(self.held) + _STALE_DEADLINES:
            self._deadlines = [(each.ends, each.number, of) for of, each in self.held.items()]
            heapq.heapify(self._deadlines)
        else:
            heapq.heappush(self._deadlines, (held.ends, held.number, key))
        if self._timer is None or held.ends < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        self._stop_timer()
        if self._deadlines:
            self._timer = asyncio.get_running_loop().call_at(self._deadlines[0][0], self._expire)

    def _expire(self) -> None:
        """Count those no more whose deadline has passed."""
        now = asyncio.get_running_loop().time()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, key = heapq.heappop(self._deadlines)
            held = self.held.get(key)
            if held is not None and held.number == number and held.ends <= now:
                self.end(key)
        self._set_timer()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call()


class LeaseHolder:
    """The caller of a receive, whose leases on a queue count."""

    __slots__ = ("_caller", "_route", "_scopes", "_version", "counted")

    def __init__(self, counted: CountedLeases, caller: Caller, route: Route, scopes: Sequence[Allowance]) -> None:
        self.counted = counted
        self._caller = caller
        self._route = route
        self._scopes = scopes
        self._version = counted.version

    @property
    def scopes(self) -> Sequence[Allowance]:
        """What the leases count for now: a reload of the configuration may change it."""
        if self._version != self.counted.version:
            self._version = self.counted.version
            self._scopes = self.counted.scopes(self._caller, self._route)
        return self._scopes

    def move(self, route: Route) -> None:
        """Count further leases for ``route``, to which the queue has moved."""
        self._route = route
        self._version = -1

    def room(self, most: int) -> int:
        """How many of ``most`` leases it may have beside those it has."""
        for scope in self.scopes:
            if (room := scope.room("leases")) is not None:
                most = min(most, room)
        return max(most, 0)

    async def know(self) -> bool:
        """Wait for the share of this process in the leases of all, for at most 0.5 s. Returns whether they have any."""
        shares = [scope.shares["leases"] for scope in self.scopes if "leases" in scope.shares]
        if shares:
            await shares[0].settle(shares)
        return bool(shares)

    def hold(self, messages: Sequence[Message]) -> list[Message]:
        """Count their leases. Returns the messages with tokens whose settle this process sees, whoever gets it."""
        self.counted.add(self.scopes, messages)
        return list(map(self.counted.sticky, messages))

    def refusal(self) -> LeasesExceeded:
        """Why nothing is handed out, once there is no room."""
        scope = next((each for each in self.scopes if not LeaseHolder.has_room(each)), None)
        limits = self.counted.limits
        if scope is None or limits is None:
            # Another configuration was loaded a moment ago.
            return LeasesExceeded(reason="There was no room for another lease.", retry_after=1)
        limits.refused[f"{scope.scope}-leases"] += 1
        count = scope.total("leases")
        return LeasesExceeded(reason=f"{scope.says} has {count} leases already.", retry_after=1)

    @staticmethod
    def has_room(scope: Allowance) -> bool:
        """Whether a scope may hold another lease."""
        room = scope.room("leases")
        return room is None or room > 0
