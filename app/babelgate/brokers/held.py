"""Deliveries that belong to a connection: which ones are held, and how handles settle them.

A handle is ``generation.number``: the random generation of a connection or channel, and the number of a delivery on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Literal, Protocol, TypeVar

from babelgate.brokers.binding import Outcome
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown

State = Literal["held", "acked", "lost"]

_MAX_RETURNED = 10_000
"""How many of the deliveries that were given back are remembered by number, for each connection."""

What = TypeVar("What")


class HolderEnded(Exception):
    """The connection or channel of a delivery has ended: the broker has taken its deliveries back."""


class Held(Generic[What]):
    """The unsettled deliveries of one connection, by number. Numbers only rise."""

    __slots__ = ("_forgotten", "_held", "_last", "_returned")

    def __init__(self) -> None:
        self._held: dict[int, What] = {}
        self._last = 0
        self._returned: set[int] = set()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, number: int, what: What) -> None:
        """Add a delivery."""
        self._held[number] = what
        self._last = max(self._last, number)

    def state(self, number: int) -> State:
        """The state of a delivery. Acked ones are not stored: one in no other state was acked."""
        if number in self._held:
            return "held"
        if number > self._last or number <= self._forgotten or number in self._returned:
            return "lost"
        return "acked"

    def acked(self, numbers: Sequence[int]) -> list[What]:
        """End deliveries that are held; what was held of them."""
        return [self._held.pop(number) for number in numbers]

    def returned(self, numbers: Sequence[int]) -> list[What]:
        """End deliveries that are held, which the broker delivers again."""
        self._returned.update(numbers)
        if len(self._returned) > _MAX_RETURNED:
            # Forgotten ones count as lost: their messages may have been delivered again.
            self._forgotten = max(self._returned)
            self._returned.clear()
        return self.acked(numbers)

    def where(self, wanted: Callable[[What], bool]) -> list[int]:
        """The numbers of the deliveries of which that is held which is ``wanted``."""
        return [number for number, what in self._held.items() if wanted(what)]

    def clear(self) -> None:
        """End all: their connection has ended."""
        self._held.clear()


class Holder(Protocol):
    """A connection, or a channel of one, as what its deliveries are settled on."""

    def state(self, number: int) -> State:
        """The state of a delivery."""

    def accept(self, numbers: Sequence[int]) -> None:
        """Write that held deliveries are done. Raises HolderEnded."""

    def give_back(self, numbers: Sequence[int], *, failed: bool = False) -> None:
        """Write that held deliveries go back to their places in the queue; ``failed``: counted. Raises like
        :meth:`accept`."""

    async def barrier(self) -> None:
        """Wait for a round trip: the broker has processed all earlier frames. Raises an error
        where it has ended."""


class HandleSettler:
    """Settles deliveries by their handles. ``holder_of``: the open holder of a generation; None after its end."""

    def __init__(self, broker: str, timeout_seconds: float, holder_of: Callable[[str], Holder | None]) -> None:
        self._broker = broker
        self._timeout_seconds = timeout_seconds
        self._holder_of = holder_of

    async def ack(self, handles: Sequence[str]) -> list[Outcome]:
        """Accept; returns when the broker has processed it. A repeated ack is done. LeaseLost where the connection has
        ended, and for a delivery that was given back.

        OutcomeUnknown where the connection ends between the write and the answer, or after ``timeout_seconds``.
        """
        return await self._settle(handles, {"held", "acked"}, lambda holder, numbers: holder.accept(numbers))

    async def give_back(self, handles: Sequence[str], *, failed: bool = False) -> list[Outcome]:
        """Return messages to their places in the queue; LeaseLost for settled ones. Otherwise like :meth:`ack`."""
        return await self._settle(handles, {"held"}, lambda holder, numbers: holder.give_back(numbers, failed=failed))

    def outstanding(self, handles: Sequence[str]) -> list[bool]:
        """Whether each can still be settled."""
        found = [False] * len(handles)
        for holder, at in self._by_holder(handles):
            for position, number in at:
                found[position] = holder.state(number) == "held"
        return found

    async def prove(self, handles: Sequence[str]) -> list[Outcome]:
        """None for each that can still be settled after an answer of the broker, LeaseLost for the others;
        BrokerUnavailable without an answer."""
        reasons = await self._unanswered([holder for holder, _ in self._by_holder(handles)])
        if reason := next(filter(None, reasons), None):
            return [BrokerUnavailable(self._broker, reason)] * len(handles)
        return [None if is_out else LeaseLost() for is_out in self.outstanding(handles)]

    async def _settle(
        self, handles: Sequence[str], good: Collection[State], write: Callable[[Holder, Sequence[int]], None]
    ) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        written: list[Holder] = []
        waiting: list[list[int]] = []
        for holder, at in self._by_holder(handles):
            states = {number: holder.state(number) for _, number in at}
            fresh = [number for number, state in states.items() if state == "held"]
            try:
                if fresh:
                    write(holder, fresh)
            except HolderEnded:
                continue
            # A repeated ack waits, too: the first one may not have reached the broker yet.
            positions = [position for position, number in at if states[number] in good]
            if positions:
                written.append(holder)
                waiting.append(positions)
        for positions, reason in zip(waiting, await self._unanswered(written), strict=True):
            for position in positions:
                outcomes[position] = None if reason is None else OutcomeUnknown(self._broker, reason)
        return [outcomes[position] if position in outcomes else LeaseLost() for position in range(len(handles))]

    async def _unanswered(self, holders: Sequence[Holder]) -> list[str | None]:
        """Per holder the reason why the broker may not have processed the frames; None when it has."""
        if len(holders) == 1:
            # Mostly one, which needs no task.
            return [await self._answer(holders[0])]
        return await asyncio.gather(*map(self._answer, holders))

    async def _answer(self, holder: Holder) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await holder.barrier()
        except TimeoutError:
            return f"no answer within {self._timeout_seconds:g} s"
        except Exception as error:
            return str(error) or type(error).__name__
        return None

    def _by_holder(self, handles: Sequence[str]) -> list[tuple[Holder, list[tuple[int, int]]]]:
        """The open holders of ``handles``, each with the positions and numbers of its deliveries."""
        grouped: dict[str, list[tuple[int, int]]] = {}
        for position, handle in enumerate(handles):
            generation, _, number = handle.partition(".")
            if number.isascii() and number.isdigit():
                grouped.setdefault(generation, []).append((position, int(number)))
        found = ((self._holder_of(generation), at) for generation, at in grouped.items())
        return [(holder, at) for holder, at in found if holder is not None]
