"""Switches a running gateway to other brokers and routes, in one step of the event loop.

A queue that stays where it is keeps its runtime: its waiting receives, streams and leases go on under the new policy. A
queue that moves, or whose broker has another connection, has a new runtime. The former one settles the leases that it
has handed out. If another server or native queue is meant, :mod:`babelgate.gateway.draining` moves what is left.
Waiting receives and streams go on at the new place. Streams of a queue without a route end once all is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from babelgate.brokers.binding import Binding, Lists
from babelgate.brokers.idempotency_store import KeepsKeys
from babelgate.errors import BabelgateError, BrokerError
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.overview import known_queues
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Route, Router, Rule
from babelgate.gateway.superseded import supersede
from babelgate.leases.factory import adopt_attempts
from babelgate.leases.table import BrokerUsage
from babelgate.observe.logs import get_logger
from babelgate.schemas.job_schemas import JobSchemas

log = get_logger(__name__)

MANY_FORMER = 10
"""From this number of connections that are not in use any more, each load that leaves one is a warning."""


class GatewayParts(Struct, frozen=True, kw_only=True):
    """What a configuration makes of a gateway. ``bindings``: those that stay are the same objects as before.

    ``urls``, ``required``, ``rate_limits``: as of :class:`Gateway`.
    """

    bindings: Mapping[str, Binding]
    router: Router
    required: frozenset[str]
    urls: Mapping[str, str]
    rate_limits: RateLimits | None
    schemas: JobSchemas


class Switched(Struct, frozen=True):
    """What a switch has changed. ``opened``, ``removed``: brokers; ``replaced``: those that have another connection;
    ``moved``: the former route of each queue that is at another place now."""

    opened: Sequence[Binding]
    removed: Sequence[Binding]
    replaced: Sequence[Binding]
    moved: Sequence[Route]


async def opened(bindings: Iterable[Binding]) -> dict[str, BrokerError]:
    """Open new bindings; the errors of those that are down, by name, which are tried again as at a start.

    Raises ConfigError if a broker refuses its configuration. Then, and when it is cancelled, all are closed.
    """
    bindings = list(bindings)
    try:
        results = await asyncio.gather(*(binding.open() for binding in bindings), return_exceptions=True)
    except asyncio.CancelledError:
        await closed(bindings)
        raise
    refused = [result for result in results if result is not None and not isinstance(result, BrokerError)]
    if refused:
        await closed(bindings)
        raise refused[0]
    pairs = zip(bindings, results, strict=True)
    return {binding.name: result for binding, result in pairs if isinstance(result, BrokerError)}


async def closed(bindings: Iterable[Binding]) -> None:
    """Close bindings, all at once. Never raises."""
    await asyncio.gather(*(binding.close() for binding in bindings), return_exceptions=True)


async def queues_in_use(gateway: Gateway) -> list[str]:
    """The queues that may have messages: those that are configured, used by this process, or listed by a broker as used
    by gateways. A native queue that is listed, and that a queue has left, has messages of that one."""
    used = gateway.queue_runtimes.queues()
    found = await known_queues(gateway.router, gateway.bindings, used, foreign=False)
    left = gateway.former.drains.left()
    known = {*used, *gateway.router.configured()}

    def is_left(name: str) -> bool:
        # No route is remembered: it would count as one in use.
        rule = None if name in known else gateway.router.rule(name)
        return rule is not None and left.get((id(rule.binding), rule.native(name).name), name) != name

    return [name for name in found if not (left and is_left(name))]


async def unlisted(gateway: Gateway) -> list[str]:
    """The brokers that cannot say now which queues of gateways they have."""

    async def lists(binding: Binding) -> bool:
        if not isinstance(binding, Lists) or binding.lists_foreign:
            return False
        try:
            await binding.ping()
        except BabelgateError:
            return False
        return True

    bindings = list(gateway.bindings.values())
    answers = await asyncio.gather(*map(lists, bindings))
    return [binding.name for binding, is_listed in zip(bindings, answers, strict=True) if not is_listed]


def warn_of_unused(old: Router, new: Router, brokers: Sequence[str]) -> None:
    """Log each of ``brokers`` whose queues a pattern or the default routes elsewhere now. Those that this process has
    not used are not known, and are not emptied."""
    before = {**{rule.match: rule for rule in old.rules if "*" in rule.match}, "": old.default}
    after = {**{rule.match: rule for rule in new.rules if "*" in rule.match}, "": new.default}
    left = {}
    for match, rule in before.items():
        now = after.get(match) or (new.rule(match) if match else None)
        if rule is not None and now is not None and _differ(rule, now):
            left[rule.binding.name] = now.binding.name
    for broker in sorted(left.keys() & set(brokers)):
        log.warning("queues that this process has not used are not moved", broker=broker, to=left[broker])


def _leads_elsewhere(old: Router, new: Router) -> bool:
    """Whether a name, a pattern or the default has another broker now."""
    matches = {rule.match for rule in (*old.rules, *new.rules)}
    pairs = [(old.default, new.default), *((old.rule(match), new.rule(match)) for match in matches)]
    return any(before and now and (before.binding is not now.binding or _differ(before, now)) for before, now in pairs)


def _differ(before: Rule, now: Rule) -> bool:
    """Whether two rules lead to different places."""
    places = [(each.binding.name, each.address, each.native_name) for each in (before, now)]
    return places[0] != places[1]


def switch(
    gateway: Gateway,
    parts: GatewayParts,
    names: Iterable[str],
    down: Mapping[str, BrokerError],
    stayed: Collection[str] = (),
) -> Switched:
    """Serve by ``parts`` from now on; nothing else runs meanwhile. ``names``: those of :func:`queues_in_use`, whose
    messages follow their queues. ``down``: new brokers that did not answer. ``stayed``: the brokers whose server is the
    same as before.
    """
    before, open_still = dict(gateway.bindings), gateway.former.brokers
    old = Router(gateway.router.rules, gateway.router.default)
    added = [binding for name, binding in parts.bindings.items() if before.get(name) is not binding]
    removed = [binding for name, binding in before.items() if name not in parts.bindings]
    replaced = []
    for binding in added:
        was = before.get(binding.name) or open_still.pop(binding.name, None)
        if was is None:
            gateway.outages.add(binding)
            _add(gateway, binding, down.get(binding.name))
        elif was is binding:
            gateway.bindings[binding.name] = binding
            gateway.maintenance.warn(binding)
        else:
            replaced.append((was, binding))
            _replace(gateway, was, binding, down.get(binding.name))
    for binding in removed:
        open_still[binding.name] = gateway.bindings.pop(binding.name)
        gateway.maintenance.leave(binding)
    former = _adopt(gateway, parts.router)
    supersede(gateway, replaced, stayed, former)
    moved = [route for name in names if (route := _former(old, gateway.router, name)) is not None]
    moving = {each.location: each for each in (*former, *moved)}
    # Another worker or replica may have handed out leases of queues that this process has not used.
    if moving or _leads_elsewhere(old, gateway.router):
        gateway.former.remember(old)
    for name in old.configured():
        if (left_route := _route(old, name)) is not None:
            gateway.former.drains.left_by(left_route)
    for route in moving.values():
        _move(gateway, route)
    gateway.admission.share_among(len(gateway.bindings))
    gateway.overview.configure(parts.required, parts.urls)
    gateway.queue_list.configure()
    gateway.mover.configure({**gateway.former.connections, **gateway.bindings})
    gateway.schema_checks.schemas = parts.schemas
    _limit(gateway, parts.rate_limits, former)
    gateway.accesses.clear()
    return Switched(
        added, removed, [was for was, _ in replaced], [each for each in moved if _is_elsewhere(each, gateway.router)]
    )


def log_left(gateway: Gateway, switched: Switched) -> None:
    """Log the connections that a switch has left, which stay open, and warn where many have become so."""
    superseded = [each.was for each in gateway.former.superseded]
    stays = False
    for each in (*switched.removed, *switched.replaced):
        if each in superseded:
            log.info("replaced connection stays open until nothing rests on it", broker=each.name)
            continue
        stays = True
        is_replaced = each in switched.replaced
        log.info("removed broker stays open until a restart", broker=each.name, is_replaced=is_replaced)
    count = len(gateway.former.open_bindings) - len(superseded)
    if count >= MANY_FORMER and stays:
        log.warning("many connections that are not in use stay open until a restart", connections=count)


def _replace(gateway: Gateway, was: Binding, binding: Binding, error: BrokerError | None) -> None:
    """Use another connection to a broker. The one before stays open, for the leases that came over it."""
    replaced = gateway.former.replaced
    is_new = all(each is not binding for each in replaced)
    gateway.former.replaced = [*(each for each in replaced if each is not binding), was]
    gateway.maintenance.leave(was)
    gateway.outages.replace(binding)
    for runtime in gateway.queue_runtimes:
        runtime.calls.report_to(gateway.outages)
    if is_new:
        _add(gateway, binding, error)
        return
    gateway.bindings[binding.name] = binding
    if isinstance(binding, KeepsKeys):
        gateway.keys.add(binding.name, binding.keys)
    gateway.maintenance.warn(binding)


def _add(gateway: Gateway, binding: Binding, error: BrokerError | None) -> None:
    gateway.bindings[binding.name] = binding
    gateway.broker_usage.setdefault(binding.name, BrokerUsage())
    if isinstance(binding, KeepsKeys):
        gateway.keys.add(binding.name, binding.keys)
    if error is None:
        gateway.maintenance.warn(binding)
    else:
        gateway.outages.lost(binding.name, error)
        gateway.maintenance.reopen(binding)


def _adopt(gateway: Gateway, router: Router) -> list[Route]:
    """Route by ``router``. The routes that lead where they did stay, with their new policies; returns the others that
    are in use."""
    in_use = [*gateway.router.remembered(), *(runtime.route for runtime in gateway.queue_runtimes)]
    in_use += gateway.streams.routes()
    kept: dict[str, Route] = {}
    left: list[Route] = []
    for route in in_use:
        new = _route(router, route.queue)
        if new is None or not route.leads_where(new):
            left.append(route)
            continue
        route.adopt(new)
        kept[route.queue] = route
    for runtime in gateway.queue_runtimes:
        if (manager := vars(runtime).get("lease_manager")) is not None:
            adopt_attempts(manager, runtime.route.policy.max_attempts)
        if kept.get(runtime.route.queue) is not None and runtime.route.leads_where(kept[runtime.route.queue]):
            kept[runtime.route.queue] = runtime.route
    gateway.router.switch(router, kept.values())
    return left


def _former(old: Router, new: Router, queue: str) -> Route | None:
    """The route that ``queue`` had, if it leads elsewhere now, or over another connection."""
    before, now = _route(old, queue), _route(new, queue)
    return None if before is None or now is None or before.leads_where(now) else before


def _is_elsewhere(former: Route, router: Router) -> bool:
    """Whether a queue that has left ``former`` is at another place."""
    now = _route(router, former.queue)
    return now is not None and now.place != former.place


def _route(router: Router, queue: str) -> Route | None:
    try:
        return router.route(queue)
    except BabelgateError:
        return None


def _move(gateway: Gateway, former: Route) -> None:
    """Serve a queue by its new route; what it has at the place of ``former`` follows. One without a route is left."""
    route = _route(gateway.router, former.queue)
    gateway.streams.move(former, route)
    runtimes = gateway.queue_runtimes
    if route is None:
        runtime = runtimes.get(former.queue)
        if runtime is not None:
            runtime.end_waits()
        return
    if route.leads_where(former):
        return
    current = runtimes.get(former.queue)
    if current is None or current.route.leads_where(former):
        before = runtimes.move(route, former)
        if before is not None and before.waiters:
            before.receiver.hand_over(runtimes.of(route).receiver, route)
    if route.place != former.place:
        gateway.former.drains.start(former, gateway.router, gateway.outages)


def _limit(gateway: Gateway, limits: RateLimits | None, left: Iterable[Route]) -> None:
    before = gateway.rate_limits
    if before is not None and limits is not None:
        before.configure(limits, left)
    else:
        gateway.rate_limits = limits
    gateway.counted.configure(gateway.rate_limits)
    if gateway.counted.are_limited:
        gateway.streams.ask_anew()
