"""Keeps the former routes of queues that have moved in a file, so that what is left there follows after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from babelgate.errors import BabelgateError, ConfigError
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Route, Router, Rule
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import StateFile

KEPT_MS = 30 * 86_400_000
"""How long a former route is kept after a queue has left it. No look can prove that nothing comes back any more."""

log = get_logger(__name__)


class FormerRoute(Struct, frozen=True):
    """How a queue was routed until ``moved_at`` (Unix ms). ``place``: of the route; 0 in files of versions that did not
    have it. The others: as of :class:`Rule`."""

    queue: str
    broker: str
    native_name: str
    options: Mapping[str, Any]
    moved_at: int
    place: int = 0


_routes = msgspec.json.Decoder(list[FormerRoute])


class FormerFile(StateFile[list[FormerRoute]]):
    """``former_routes.json`` in a directory: none without a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "former_routes.json", _routes, list, "is damaged, and forgotten if it is removed")

    def add(self, moved: Sequence[FormerRoute], now: int) -> None:
        """Keep the routes that queues have left just now, and drop the oldest. Blocks for a few file operations. Raises
        StateUnavailable."""
        left = {(each.queue, each.broker, each.place): each for each in moved}

        def added(stored: list[FormerRoute]) -> list[FormerRoute]:
            kept = (each for each in stored if now - each.moved_at < KEPT_MS)
            known = {(each.queue, each.broker, each.place): each for each in kept}
            return list((known | left).values())

        self.change(added)


def former_routes(moved: Iterable[Route], rules: Mapping[str, Rule | None], now: int) -> list[FormerRoute]:
    """The routes that ``moved`` queues had by ``rules``, those of the queues before."""
    return [
        FormerRoute(each.queue, each.broker, rule.native_name, dict(rule.options or {}), now, each.place)
        for each in moved
        if (rule := rules.get(each.queue)) is not None
    ]


def restore(gateway: Gateway, routes: Iterable[FormerRoute], now: int, addresses: Mapping[str, str]) -> None:
    """Settle leases of former routes, and empty their queues, as before the restart. A former broker has to be
    configured, with the same address; a warning names one that is not. ``addresses``: of all brokers, by name. Needs a
    running event loop."""
    generations: list[dict[str, Rule]] = []
    found: list[Route] = []
    missing: dict[str, list[str]] = {}
    for each in sorted(routes, key=lambda route: route.moved_at):
        current = _current(gateway.router, each.queue)
        if current is None or now - each.moved_at >= KEPT_MS:
            continue
        binding = gateway.bindings.get(each.broker)
        if binding is None:
            missing.setdefault(each.broker, []).append(each.queue)
            continue
        address = addresses.get(each.broker, "")
        rule = Rule(each.queue, binding, current.policy, each.native_name, each.options, address=address)
        try:
            route = rule.route(each.queue)
        except ConfigError as error:
            log.warning("former route not usable", queue=each.queue, broker=each.broker, error=error)
            continue
        if current.place in (route.place, each.place):
            continue
        if each.place not in (0, route.place):
            missing.setdefault(each.broker, []).append(each.queue)
            continue
        found.append(route)
        for generation in generations:
            if each.queue not in generation:
                generation[each.queue] = rule
                break
        else:
            generations.append({each.queue: rule})
    for broker, queues in missing.items():
        log.warning(
            "former broker is not configured: what it still has of queues that have moved stays there",
            broker=broker,
            queues=queues[:20],
        )
    for generation in generations:
        gateway.former.remember(Router(list(generation.values())))
    for route in found:
        gateway.former.drains.left_by(route)
        gateway.former.drains.start(route, gateway.router, gateway.outages)


def _current(router: Router, queue: str) -> Route | None:
    try:
        return router.route(queue)
    except BabelgateError:
        return None
