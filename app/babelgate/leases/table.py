"""The table of leases that this process keeps: settles each lease once, and signals expired ones."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.errors import for_each
from babelgate.clock import Clock
from babelgate.errors import LeaseLost, OutcomeUnknown
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

_ENDED_BYTES = 32 * 1024 * 1024
"""Of the newest ended leases that a process remembers per broker, so that a second ack succeeds: about 100,000."""

_STALE_DEADLINES = 1_000
"""Deadlines of ended leases in the heap, beyond the number of held leases, before the heap is rebuilt."""

TRY_AGAIN_MS = 5_000
"""Pause before the next attempt to end a lease at the broker that this process alone can end."""

PendingSettle = asyncio.Future[Outcome]
"""A settle in progress; its result is the outcome."""

EndLeases = Callable[[Sequence["HeldLease"]], Awaitable[Sequence[Outcome]]]
"""Ends leases at the broker: returns one outcome per delivery, or raises a BabelgateError for all."""


class BrokerUsage:
    """The leases that a process keeps of one broker, over all queues: their ``count``, and the ``size`` in bytes of the
    bodies."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.ended: Cache[str, bool] = Cache(_ENDED_BYTES)
        """Whether the latest leases ended by an ack, by their handles."""


class HeldLease:
    """The lease of a delivery, the ``number``-th of its queue, from ``since`` to ``deadline`` (by :func:`steady_ms`).

    ``adopted``: another process received the delivery, so its body is not here. ``expired``: the lease is over, and
    ``deadline`` is the time of the next attempt to return the delivery to the broker. ``reported``: and its end was
    reported.

    ``copy`` of the message: ``made``, and ``deadline`` is the time of the next attempt to ack the original; ``unsure``,
    the broker did not confirm one, which may exist, so that an expiry publishes no other; or the outcome of its write,
    which goes on, so that the original stays here until it is known.
    """

    __slots__ = (
        "acking",
        "adopted",
        "claim",
        "copy",
        "deadline",
        "delivery",
        "expired",
        "number",
        "reported",
        "since",
    )

    def __init__(self, delivery: Delivery, number: int, since: int, deadline: int) -> None:
        self.delivery = delivery
        self.number = number
        self.since = since
        self.deadline = deadline
        self.claim: PendingSettle | None = None
        self.acking = False
        self.adopted = False
        self.copy: Literal["made", "unsure"] | PendingSettle | None = None
        self.expired = False
        self.reported = False

    @property
    def handle(self) -> str:
        """The handle of the delivery."""
        return self.delivery.handle

    @property
    def is_copied(self) -> bool:
        """Whether a copy of the message is confirmed."""
        return self.copy == "made"

    @property
    def is_copying(self) -> bool:
        """Whether a copy of the message is being written."""
        return isinstance(self.copy, asyncio.Future)

    def is_over(self, now: int) -> bool:
        """Whether the lease has passed its deadline at ``now``."""
        return self.expired or self.is_copied or self.deadline <= now


class LeaseTable:
    """The held leases of one queue, by handle.

    A settle first claims the lease. Of two concurrent operations one acts, two acks share one outcome, and a lease
    that expires while it is claimed waits for the outcome of the claim. If a settle fails and the delivery is still
    outstanding, the lease continues until its deadline. After the deadline it can only expire. ``due`` is called in
    the event loop when a lease has expired, and again only after :meth:`overdue` has returned all expired leases.

    ``shared``: other processes settle these leases, too, and this one settles theirs. The end of each lease is then
    remembered, not only of those acked. ``late``: the broker decides whether a lease is over. ``clock``: a clock that
    is never set, such as :func:`babelgate.clock.steady_ms`; a wall clock that steps back would keep leases from
    expiring.
    """

    def __init__(
        self,
        broker_usage: BrokerUsage,
        clock: Clock,
        outstanding: Callable[[Sequence[str]], Sequence[bool]],
        due: Callable[[], None],
        *,
        shared: bool = False,
        late: bool = False,
    ) -> None:
        self._shared = shared
        self._late = late
        self._usage = broker_usage
        self._clock = clock
        self._outstanding = outstanding
        self._due = due
        self._held: dict[str, HeldLease] = {}
        self._numbers = itertools.count()
        self._deadlines: list[tuple[int, int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        self._closed = False
        self._settling: BackgroundTasks[Sequence[Outcome]] = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, delivery: Delivery, since: int, deadline: int) -> None:
        """Add the lease of ``delivery``, from ``since`` to ``deadline``."""
        held = self._held[delivery.handle] = HeldLease(delivery, next(self._numbers), since, deadline)
        self._usage.count += 1
        self._usage.size += len(delivery.body)
        self._watch(held)

    def prolong(self, held: HeldLease, deadline: int) -> None:
        """Set a new deadline."""
        held.deadline = deadline
        self._watch(held)

    def prolong_held(self, handle: str, deadline: int) -> None:
        """Set a new deadline if the lease of ``handle`` is held."""
        held = self._held.get(handle)
        if held is not None:
            self.prolong(held, deadline)

    def holds(self, handle: str) -> bool:
        """Whether this table has the lease of ``handle``."""
        return handle in self._held

    def is_known(self, handle: str) -> bool:
        """Whether this process holds the lease of ``handle``, or remembers its end."""
        return handle in self._held or self.has_ended(handle)

    def has_ended(self, handle: str) -> bool:
        """Whether this process has ended the lease of ``handle``, as far as it remembers."""
        return self._usage.ended.get(handle) is not None

    def drop(self, handles: Sequence[str]) -> None:
        """Forget these leases."""
        for held in filter(None, map(self._held.get, handles)):
            self._drop(held)

    async def find(self, handles: Sequence[str]) -> list[HeldLease | None]:
        """The live leases of ``handles``, None for all others; waits for claims in progress."""
        while claims := [held.claim for held in map(self._held.get, handles) if held is not None and held.claim]:
            await asyncio.wait(claims)
        now = self._clock()
        found = [None if held is None or held.is_over(now) else held for held in map(self._held.get, handles)]
        for position, is_out in enumerate(self._outstanding(handles)):
            held = found[position]
            if held is not None and not is_out:
                self._drop(held)
                found[position] = None
        return found

    async def settle(
        self, handles: Sequence[str], act: EndLeases, *, acking: bool = False, expiring: bool = False
    ) -> list[Outcome]:
        """One outcome per handle: that of ``act`` for held leases, LeaseLost for all others.

        A lease past its deadline is LeaseLost unless ``expiring`` is set, or the broker decides. Leases claimed by
        another settle are waited for. ``act`` runs to its end even if the caller is cancelled.
        """
        outcomes: list[Outcome] = [None] * len(handles)
        left = list(range(len(handles)))
        while left:
            positions: list[int] = []
            claims: list[tuple[int, PendingSettle, bool]] = []
            claimed: list[HeldLease] = []
            now = self._clock()
            for position in left:
                handle = handles[position]
                held = self._held.get(handle)
                if held is None and self._shared and self._usage.ended.get(handle) is None:
                    held = self._held[handle] = self._adopted(handle)
                if held is None:
                    outcomes[position] = None if acking and self._usage.ended.get(handle) else LeaseLost()
                elif held.claim is not None and held.expired and not expiring:
                    outcomes[position] = LeaseLost()
                elif held.claim is not None:
                    claims.append((position, held.claim, acking and held.acking))
                elif held.is_over(now) and not (expiring or self._late or held.adopted):
                    outcomes[position] = LeaseLost()
                else:
                    held.claim, held.acking = asyncio.get_running_loop().create_future(), acking
                    positions.append(position)
                    claimed.append(held)
            if claimed:
                ending = self._settling.start(self._end(claimed, act))
                for position, outcome in zip(positions, await asyncio.shield(ending), strict=True):
                    outcomes[position] = outcome
            if claims:
                await asyncio.wait([claim for _, claim, _ in claims])
            left = []
            for position, claim, shared in claims:
                if shared and not claim.cancelled():
                    outcomes[position] = claim.result()
                else:
                    left.append(position)
        return outcomes

    def overdue(self, limit: int) -> list[str]:
        """Up to ``limit`` handles of unclaimed leases past their deadline, earliest first."""
        now = self._clock()
        found: list[str] = []
        while self._deadlines and len(found) < limit and self._deadlines[0][0] <= now:
            deadline, _, handle = heapq.heappop(self._deadlines)
            held = self._held.get(handle)
            if held is not None and held.deadline == deadline and held.claim is None:
                found.append(handle)
        if not found:
            self._set_timer()
        return found

    async def idle(self) -> None:
        """Wait until no settle is in progress."""
        while self._settling:
            await self._settling.wait()

    def close(self) -> None:
        """Stop signalling expired leases. From now on nothing here refers to the owner of ``due``."""
        self._closed = True
        self._due = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _end(self, claimed: Sequence[HeldLease], act: EndLeases) -> Sequence[Outcome]:
        try:
            outcomes = await for_each(act(claimed), len(claimed))
            outstanding = self._outstanding([held.handle for held in claimed])
            for held, outcome, is_out in zip(claimed, outcomes, outstanding, strict=True):
                claim, held.claim = held.claim, None
                assert claim is not None
                # A broker that keeps the leases delivers an original again that stays beside its copy.
                if outcome is None or held.adopted or not is_out or (held.is_copied and self._late):
                    self._drop(held)
                    if outcome is None and (held.acking or self._shared):
                        self._usage.ended.keep(held.handle, held.acking)
                elif held.is_copied:
                    self.prolong(held, self._clock() + TRY_AGAIN_MS)
                else:
                    self._watch(held)
                if isinstance(held.copy, asyncio.Future):
                    held.copy.add_done_callback(partial(self._learn, held))
                claim.set_result(outcome)
            return outcomes
        finally:
            # After an unexpected error the leases continue.
            for held in claimed:
                if held.claim is not None:
                    held.claim.cancel()
                    held.claim = None
                    if held.adopted:
                        self._drop(held)
                    else:
                        self._watch(held)

    def _learn(self, held: HeldLease, later: PendingSettle) -> None:
        """The outcome of a copy is known: the original is acked now, or may be copied again."""
        if held.copy is not later:
            return
        outcome = later.result()
        held.copy = "made" if outcome is None else "unsure" if isinstance(outcome, OutcomeUnknown) else None
        if outcome is None and held.claim is None and self._held.get(held.handle) is held:
            self.prolong(held, self._clock())

    def _adopted(self, handle: str) -> HeldLease:
        """The lease of another process, held while it is settled here."""
        held = HeldLease(Delivery(b"", handle, 0), next(self._numbers), 0, 0)
        held.adopted = True
        return held

    def _drop(self, held: HeldLease) -> None:
        if self._held.pop(held.handle, None) is not None and not held.adopted:
            self._usage.count -= 1
            self._usage.size -= len(held.delivery.body)

    def _watch(self, held: HeldLease) -> None:
        """Schedule a wake-up at the deadline of ``held``."""
        if len(self._deadlines) > 2 * len(self._held) + _STALE_DEADLINES:
            self._deadlines = [(each.deadline, each.number, handle) for handle, each in self._held.items()]
            heapq.heapify(self._deadlines)
        else:
            heapq.heappush(self._deadlines, (held.deadline, held.number, held.handle))
        if self._timer is None or held.deadline < self._wakes_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines and not self._closed:
            self._wakes_at = self._deadlines[0][0]
            delay = max(self._wakes_at - self._clock(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._due()


def _nothing() -> None:
    """The ``due`` of a table that is closed."""
