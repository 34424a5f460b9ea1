"""Deliveries whose leases this process keeps: who may end them, and when they run out."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from app.brokers.binding import Delivery, Outcome
from app.clock import Clock
from app.errors import BabelgateError, LeaseLost
from app.gateway.admission import Admission
from app.runtime.background import BackgroundTasks

REMEMBERED = 100_000
"""Acked handles that a process remembers for each broker, the newest: a second ack of one of them is done as well."""

_STALE_DEADLINES = 1_000
"""Deadlines of leases that ended which are kept before they are swept out, beside as many as there are leases."""

PendingSettle = asyncio.Future[Outcome]
"""A settle under way; its result is what the settle came to."""

EndLeases = Callable[[Sequence["HeldLease"]], Awaitable[Sequence[Outcome]]]
"""Ends leases at the broker: one outcome per delivery, or a BabelgateError for all of them."""


class BrokerUsage:
    """What a process holds of one broker, over all queues: ``count`` deliveries whose bodies have ``size`` bytes."""

    def __init__(self, broker: str, admission: Admission) -> None:
        self._broker = broker
        self._admission = admission
        self.count = 0
        self.size = 0
        self._acked: OrderedDict[str, None] = OrderedDict()

    def check(self) -> None:
        """Raise Overloaded when no more is to be handed out."""
        self._admission.check_handing_out(self._broker, self.count, self.size)

    def remember(self, handle: str) -> None:
        """It was acked."""
        self._acked[handle] = None
        if len(self._acked) > REMEMBERED:
            self._acked.popitem(last=False)

    def was_acked(self, handle: str) -> bool:
        """Whether it was acked, as far back as is remembered."""
        return handle in self._acked


class HeldLease:
    """A delivery, the ``number``-th of its queue. ``since`` and ``deadline`` are Unix ms.

    ``copied``: a copy of it has taken its place already. ``expired``: its lease is over, and ``deadline`` says when to
    try again to return it to the broker.
    """

    __slots__ = ("acking", "claim", "copied", "deadline", "delivery", "expired", "number", "since")

    def __init__(self, delivery: Delivery, number: int, since: int, deadline: int) -> None:
        self.delivery = delivery
        self.number = number
        self.since = since
        self.deadline = deadline
        self.claim: PendingSettle | None = None
        self.acking = False
        self.copied = False
        self.expired = False

    @property
    def handle(self) -> str:
        """The handle of the delivery."""
        return self.delivery.handle

    def is_over(self, now: int) -> bool:
        """Whether its lease has ended at ``now`` (Unix ms) by its deadline."""
        return self.expired or self.deadline <= now


class LeaseTable:
    """The held deliveries of one queue, by handle.

    To settle one is to claim it first: of two verbs one acts, two acks share one outcome, and a lease that runs out
    while it is claimed waits for what the claim comes to. A claim that failed while the delivery is outstanding still
    puts it back, and its lease goes on until its deadline. After that nobody settles it. ``due`` is called in the event
    loop when a lease has run out, and then again only after :meth:`overdue` has told all of them.
    """

    def __init__(
        self,
        broker_usage: BrokerUsage,
        clock: Clock,
        outstanding: Callable[[Sequence[str]], Sequence[bool]],
        due: Callable[[], None],
    ) -> None:
        self._usage = broker_usage
        self._clock = clock
        self._outstanding = outstanding
        self._due = due
        self._held: dict[str, HeldLease] = {}
        self._numbers = itertools.count()
        self._deadlines: list[tuple[int, int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0
        self._closed = False
        self._ending: BackgroundTasks[Sequence[Outcome]] = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, delivery: Delivery, since: int, deadline: int) -> None:
        """Hold a delivery from ``since`` to ``deadline`` (Unix ms)."""
        held = self._held[delivery.handle] = HeldLease(delivery, next(self._numbers), since, deadline)
        self._usage.count += 1
        self._usage.size += len(delivery.body)
        self._watch(held)

    def prolong(self, held: HeldLease, deadline: int) -> None:
        """Set another deadline, in Unix ms."""
        held.deadline = deadline
        self._watch(held)

    async def find(self, handles: Sequence[str]) -> list[HeldLease | None]:
        """Those that are held and outstanding, None for the others and past the deadline; waits for what is claimed."""
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
        """One outcome per handle: of ``act``, which gets those that are held; LeaseLost for the others.

        A lease whose deadline has passed is lost, except to who ends it for that reason (``expiring``).
        What another settle has claimed is waited for. Once begun ``act`` runs to its end, even if the caller goes.
        """
        outcomes: list[Outcome] = [None] * len(handles)
        left = list(range(len(handles)))
        while left:
            mine: list[int] = []
            claims: list[tuple[int, PendingSettle, bool]] = []
            claimed: list[HeldLease] = []
            now = self._clock()
            for position in left:
                handle = handles[position]
                held = self._held.get(handle)
                if held is None:
                    outcomes[position] = None if acking and self._usage.was_acked(handle) else LeaseLost()
                elif held.claim is not None:
                    claims.append((position, held.claim, acking and held.acking))
                elif held.is_over(now) and not expiring:
                    outcomes[position] = LeaseLost()
                else:
                    held.claim, held.acking = asyncio.get_running_loop().create_future(), acking
                    mine.append(position)
                    claimed.append(held)
            if claimed:
                ending = self._ending.start(self._end(claimed, act))
                for position, outcome in zip(mine, await asyncio.shield(ending), strict=True):
                    outcomes[position] = outcome
            if claims:
                await asyncio.wait([claim for _, claim, _ in claims])
            left = []
            for position, claim, joined in claims:
                if joined and not claim.cancelled():
                    outcomes[position] = claim.result()
                else:
                    left.append(position)
        return outcomes

    def overdue(self, limit: int) -> list[str]:
        """Up to ``limit`` handles whose lease has run out and that nobody has claimed, earliest first."""
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
        """Wait until no settle is under way."""
        while self._ending:
            await self._ending.wait()

    def close(self) -> None:
        """No lease runs out any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def _end(self, claimed: Sequence[HeldLease], act: EndLeases) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome]
        try:
            try:
                outcomes = await act(claimed)
            except BabelgateError as error:
                outcomes = [error.without_frames()] * len(claimed)
            outstanding = self._outstanding([held.handle for held in claimed])
            for held, outcome, is_out in zip(claimed, outcomes, outstanding, strict=True):
                claim, held.claim = held.claim, None
                assert claim is not None
                if outcome is None or held.copied or not is_out:
                    self._drop(held)
                    if held.acking and outcome is None:
                        self._usage.remember(held.handle)
                else:
                    self._watch(held)
                claim.set_result(outcome)
            return outcomes
        finally:
            # After an error that nobody foresaw: the leases go on.
            for held in claimed:
                if held.claim is not None:
                    held.claim.cancel()
                    held.claim = None
                    self._watch(held)

    def _drop(self, held: HeldLease) -> None:
        if self._held.pop(held.handle, None) is not None:
            self._usage.count -= 1
            self._usage.size -= len(held.delivery.body)

    def _watch(self, held: HeldLease) -> None:
        """Wake up at its deadline."""
        if len(self._deadlines) > 2 * len(self._held) + _STALE_DEADLINES:
            self._deadlines = [(each.deadline, each.number, handle) for handle, each in self._held.items()]
            heapq.heapify(self._deadlines)
        else:
            heapq.heappush(self._deadlines, (held.deadline, held.number, held.handle))
        if self._timer is None or held.deadline < self._rings_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines and not self._closed:
            self._rings_at = self._deadlines[0][0]
            delay = max(self._rings_at - self._clock(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._due()
