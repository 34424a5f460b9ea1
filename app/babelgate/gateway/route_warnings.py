"""Warns of routes that no queue can use, and of those whose broker drops messages or moves them away by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from itertools import chain

from babelgate.brokers.binding import Binding, LimitsDeliveries
from babelgate.brokers.settings import WarnsOfQueues
from babelgate.errors import BabelgateError
from babelgate.gateway.names import Pattern
from babelgate.gateway.routing import Route

_MAX_WARNED = 50
"""How many routes of one broker are checked: each is a call to it."""

WEEKEND_SECONDS = 3 * 86_400.0
"""For how long a queue should keep messages whose consumers are down."""


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


async def broker_warnings(binding: Binding, routes: Iterable[Route]) -> list[str]:
    """The warnings of ``binding`` and of the first 50 of ``routes``, which lead to it; at most 2 s.

    Raises BrokerUnavailable.
    """
    of_broker, of_routes = await asyncio.gather(binding.warnings(), route_warnings(routes))
    return [*of_broker, *of_routes]


async def route_warnings(routes: Iterable[Route]) -> list[str]:
    """Sentences about the first 50 of ``routes``, which lead to one broker; at most 2 s. Raises nothing."""
    found = await asyncio.gather(*map(warnings_of, list(routes)[:_MAX_WARNED]))
    return list(dict.fromkeys(chain.from_iterable(found)))


async def warnings_of(route: Route) -> list[str]:
    """Sentences about the settings of one queue at its broker; at most 2 s. Empty where it gives no answer."""
    of_queue, of_deliveries = await asyncio.gather(_queue_warnings(route), _delivery_warning(route))
    return [*of_queue, *of_deliveries]


def kept_seconds(route: Route) -> float:
    """How long a message may have to stay on the queue: ``ttl_seconds``, or without any WEEKEND_SECONDS, and
    at least its longest lease and delay."""
    policy = route.policy
    waits = policy.ttl_seconds if policy.ttl_seconds is not None else WEEKEND_SECONDS
    return max(waits, policy.lease_seconds, *policy.backoff_seconds)


async def _queue_warnings(route: Route) -> Sequence[str]:
    if isinstance(route.binding, WarnsOfQueues):
        with contextlib.suppress(BabelgateError):
            return await route.binding.queue_warnings(route.native, kept_seconds(route))
    return ()


async def _delivery_warning(route: Route) -> Sequence[str]:
    if isinstance(route.binding, LimitsDeliveries):
        with contextlib.suppress(BabelgateError):
            limit = await route.binding.delivery_limit(route.native)
            if limit is not None and limit.deliveries < route.policy.max_attempts:
                return (
                    f"The broker {route.broker!r} itself moves a message of the queue {route.queue!r} to "
                    f"{limit.target!r} after {limit.deliveries} deliveries, so that max_attempts "
                    f"{route.policy.max_attempts} of its route is never reached.",
                )
    return ()
