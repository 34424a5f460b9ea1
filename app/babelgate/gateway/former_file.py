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
    """How a queue was routed until ``moved_at`` (Unix ms). The others: as of :class:`Rule`."""

    queue: str
    broker: str
    native_name: str
    options: Mapping[str, Any]
    moved_at: int


_routes = msgspec.json.Decoder(list[FormerRoute])


class FormerFile(StateFile[list[FormerRoute]]):
    """``former_routes.json`` in a directory: none without a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "former_routes.json", _routes, list, "is damaged, and forgotten if it is removed")

    def add(self, moved: Sequence[FormerRoute], now: int) -> None:
        """Keep the routes that queues have left just now, and drop the oldest. Blocks for a few file operations. Raises
        StateUnavailable."""
        left = {(each.queue, each.broker): each for each in moved}

        def added(stored: list[FormerRoute]) -> list[FormerRoute]:
            known = {(each.queue, each.broker): each for each in stored if now - each.moved_at < KEPT_MS}
            return list((known | left).values())

        self.change(added)


def former_routes(moved: Iterable[Route], rules: Mapping[str, Rule | None], now: int) -> list[FormerRoute]:
    """The routes that ``moved`` queues had by ``rules``, those of the queues before."""
    return [
        FormerRoute(each.queue, each.broker, rule.native_name, dict(rule.options or {}), now)
        for each in moved
        if (rule := rules.get(each.queue)) is not None
    ]


def restore(gateway: Gateway, routes: Iterable[FormerRoute], now: int) -> None:
    """Settle leases of former routes, and empty their queues, as before the restart. A former broker has to be
    configured; a warning names one that is not. Needs a running event loop."""
    generations: list[dict[str, Rule]] = []
    found: list[Route] = []
    missing: dict[str, list[str]] = {}
    for each in routes:
        current = _current(gateway.router, each.queue)
        if current is None or current.broker == each.broker or now - each.moved_at >= KEPT_MS:
            continue
        binding = gateway.bindings.get(each.broker)
        if binding is None:
            missing.setdefault(each.broker, []).append(each.queue)
            continue
        rule = Rule(each.queue, binding, current.policy, each.native_name, each.options)
        try:
            found.append(rule.route(each.queue))
        except ConfigError as error:
            log.warning("former route not usable", queue=each.queue, broker=each.broker, error=error)
            continue
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
        gateway.former.drains.start(route, gateway.router.route, gateway.outages)


def _current(router: Router, queue: str) -> Route | None:
    try:
        return router.route(queue)
    except BabelgateError:
        return None
