"""Warns of routes that no queue can use, and of those whose broker moves messages away before their policy does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from app.brokers.binding import LimitsDeliveries
from app.errors import BabelgateError
from app.gateway.names import Pattern
from app.gateway.routing import Route

_MAX_WARNED = 50
"""How many routes of one broker are checked: each is a call to it."""


def unused(keys: Iterable[str]) -> list[str]:
    """Sentences about the rules that can never match. ``keys``: of all rules, in the order of look-up."""
    found: list[str] = []
    before: dict[str, Pattern] = {}
    for key in keys:
        match = "*" if key == "default" else key.removeprefix("queues.")
        if "*" in match:
            # As a name, a pattern matches those that match all its names.
            cover = next((other for other, pattern in before.items() if pattern.matches(match)), None)
            if cover is not None:
                advice = "remove one of them" if key == "default" else "move it to the front, or remove it"
                found.append(f"{key} is never used, because {cover} before it matches all its queues: {advice}")
            before[key] = Pattern(match)
    return found


async def delivery_warnings(routes: Iterable[Route]) -> list[str]:
    """Sentences about the first 50 of ``routes``, which lead to one broker; at most 2 s. Raises nothing."""
    asked = list(routes)[:_MAX_WARNED]
    found = await asyncio.gather(*map(_delivery_warning, asked))
    return [each for each in found if each is not None]


async def _delivery_warning(route: Route) -> str | None:
    if not isinstance(route.binding, LimitsDeliveries):
        return None
    with contextlib.suppress(BabelgateError):
        limit = await route.binding.delivery_limit(route.native)
        if limit is not None and limit.deliveries < route.policy.max_attempts:
            return (
                f"The broker {route.broker!r} itself moves a message of the queue {route.queue!r} to {limit.target!r} "
                f"after {limit.deliveries} deliveries, so that max_attempts {route.policy.max_attempts} of its route "
                "is never reached."
            )
    return None
