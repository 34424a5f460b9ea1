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


class RateStore(Protocol):
    """Adds up what processes take. The rules of :mod:`babelgate.brokers.binding` apply."""

    async def take(self, rates: Sequence[TakenRate]) -> Sequence[float]:
        """Add what was taken; for each rate the seconds until its bucket is empty no more, negative for those since
        when it fills."""


@runtime_checkable
class SharesRates(Protocol):
    """A broker in which processes share rates."""

    shared_rates: RateStore
