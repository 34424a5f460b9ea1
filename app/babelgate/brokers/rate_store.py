"""The RateStore protocol of brokers in which processes share rates, and its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct


class TakenRate(Struct, frozen=True):
    """What one process has taken of a rate. ``name``: of the rate, at most 100 ASCII characters. ``taken``: in seconds
    that the rate needs for it. ``span``: seconds in which an empty bucket fills."""

    name: str
    taken: float
    span: float


class HeldCount(Struct, frozen=True):
    """What one process has at a time of a limited number. ``name``: of the number, at most 100 ASCII
    characters. ``own``: how many it has. ``most``: how many all processes may have. ``is_active``: whether it may soon
    have more."""

    name: str
    own: int
    most: int
    is_active: bool


class CountShare(Struct, frozen=True):
    """``granted``: how many a process may have until it asks again. ``others``: how many the others have."""

    granted: int
    others: int


class RateStore(Protocol):
    """Adds up what processes take and have. The rules of :mod:`babelgate.brokers.binding` apply."""

    async def take(self, rates: Sequence[TakenRate]) -> Sequence[float]:
        """Add what was taken; for each rate the seconds until its bucket is empty no more, negative for those since
        when it fills."""

    async def share(self, process: str, patience: float, counts: Sequence[HeldCount]) -> Sequence[CountShare]:
        """Divide each number among the processes that use it. What ``process``, at most 100 ASCII characters, has and
        may have counts until it calls again, and for at most ``patience`` seconds. Repeating a call changes nothing."""


@runtime_checkable
class SharesRates(Protocol):
    """A broker in which processes share rates."""

    shared_rates: RateStore
