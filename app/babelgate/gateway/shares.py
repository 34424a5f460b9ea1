"""Divides messages among waiting receives: as many as each asks for, and as its caller may have leases of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from babelgate.gateway.allowances import Allowance
from babelgate.gateway.counted_leases import LeaseHolder


class Waiting(Protocol):
    """A receive that waits. ``holder``: None if its leases do not count."""

    limit: int
    lease_seconds: float
    holder: LeaseHolder | None

    @property
    def future(self) -> asyncio.Future[Any]: ...


_Waiter = TypeVar("_Waiter", bound=Waiting)


_Taken = list[tuple[Allowance, int]]
"""What receives may have, none of which holds anything yet."""


def _take(taken: _Taken, holder: LeaseHolder, most: int) -> int:
    """How many of ``most`` the next receive may have, beside what is held and what was taken before."""
    count = holder.room(most)
    for scope in holder.scopes:
        scope.running["leases"] += count
        taken.append((scope, count))
    return count


def _put_back(taken: _Taken) -> None:
    for scope, count in taken:
        scope.running["leases"] -= count


def grouped(waiters: Iterable[_Waiter], most: int) -> tuple[list[_Waiter], int, list[_Waiter]]:
    """The first that may have messages and those with the same lease duration; how many messages they ask for, up to
    ``most`` unless the first alone asks for more; and those that may have none.

    Those that would have none only if the ones before got all they ask for are in neither list: they are next.
    """
    group: list[_Waiter] = []
    full: list[_Waiter] = []
    taken: _Taken = []
    requested = 0
    for waiter in waiters:
        if group and waiter.lease_seconds != group[0].lease_seconds:
            continue
        # Each waiter gets its whole limit or waits for the next reserve.
        if group and requested + waiter.limit > most:
            break
        count = waiter.limit if waiter.holder is None else _take(taken, waiter.holder, waiter.limit)
        if count:
            group.append(waiter)
            requested += count
        else:
            full.append(waiter)
    if taken:
        _put_back(taken)
        full = [waiter for waiter in full if waiter.holder is not None and not waiter.holder.room(1)]
    return group, requested, full


def divided(
    waiters: Iterable[_Waiter], count: int, lease_seconds: float
) -> tuple[list[tuple[_Waiter, int]], int, list[_Waiter]]:
    """How many of ``count`` messages each gets, in order, which is none for those that have left; how many all get; and
    those that may have none."""
    served: list[tuple[_Waiter, int]] = []
    full: list[_Waiter] = []
    taken: _Taken = []
    left = count
    for waiter in waiters:
        if not left:
            break
        if waiter.lease_seconds != lease_seconds:
            continue
        if waiter.future.done():
            served.append((waiter, 0))
            continue
        share = waiter.limit if waiter.limit < left else left
        if waiter.holder is not None:
            share = _take(taken, waiter.holder, share)
        if share:
            served.append((waiter, share))
            left -= share
        else:
            full.append(waiter)
    if taken:
        _put_back(taken)
    return served, count - left, full
