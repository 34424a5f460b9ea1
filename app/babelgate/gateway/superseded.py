"""Finds the connections that other ones to the same servers have replaced, and on which nothing rests any more.

Each load of the configuration looks for them. So a password that changes every hour leaves one connection or two, and
not one for each hour. A connection that a drain uses stays: no look can prove that nothing comes any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable

from babelgate.brokers.binding import Binding
from babelgate.gateway.former_queues import Superseded
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Route
from babelgate.observe.logs import get_logger

log = get_logger(__name__)

REST_SECONDS = 300.0
"""How long a connection stays after it was replaced. Requests and moves of parked messages that began before have ended
then: each is a few calls of a broker one after the other, of at most 30 s each."""


def supersede(
    gateway: Gateway, replaced: Iterable[tuple[Binding, Binding]], stayed: Collection[str], left: Iterable[Route]
) -> None:
    """Remember which of the connections that were ``replaced``, each by the other one, lead to the same server as that
    one. ``stayed``: as of :func:`babelgate.gateway.switching.switch`. ``left``: the routes in use that lead elsewhere
    now, or over another connection."""
    former, used = gateway.former, list(gateway.bindings.values())
    same = [Superseded(was, successor, former.clock()) for was, successor in replaced if successor.name in stayed]
    former.superseded = [*(each for each in former.superseded if each.was not in used), *same]
    # Each load finds the routes of former runtimes again. References compare as their routes do: their ids differ.
    refs = [*former.left_routes, *map(weakref.ref, left)]
    former.left_routes = list({id(each): each for each in refs if each() is not None}.values())


def let_go(gateway: Gateway) -> list[Binding]:
    """The connections on which nothing rests any more, for the caller to close: the gateway has forgotten them."""
    idle = [each for each in gateway.former.superseded if not _is_needed(gateway, each)]
    for each in idle:
        gateway.former.let_go(each)
        gateway.queue_runtimes.forget(each.was)
        gateway.outages.forget(each.was)
        gateway.maintenance.forget(each.was)
        gateway.keys.forget(each.was)
        log.info("replaced connection is closed: nothing rests on it", broker=each.was.name)
    if idle:
        gateway.mover.configure({**gateway.former.connections, **gateway.bindings})
    return [each.was for each in idle]


def _is_needed(gateway: Gateway, superseded: Superseded) -> bool:
    """Whether something may rest on a connection: a request, a lease that this process keeps, a drain, a stream, a
    redrive, a parked message in the middle of its move, or an idempotency key that has to be settled."""
    was, former = superseded.was, gateway.former
    if former.clock() < superseded.since + REST_SECONDS or gateway.mover.uses(was) or gateway.keys.owes(was):
        return True
    if any(binding == id(was) for binding, _ in former.drains.left()):
        return True
    if not gateway.queue_runtimes.leave(was):
        return True
    # Whatever works with a route refers to it, and nothing else does.
    routes = [*(runtime.route for runtime in gateway.queue_runtimes), *(each() for each in former.left_routes)]
    return any(route is not None and _leads_over(route, was) for route in routes)


def _leads_over(route: Route, binding: Binding) -> bool:
    return route.binding is binding or (route.parking is not None and route.parking.binding is binding)
