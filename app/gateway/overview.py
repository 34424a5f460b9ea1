"""Information about queues and brokers for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from app.brokers.batching import batches
from app.brokers.binding import Binding, Lists, Peeked, Peeks, QueueStats
from app.brokers.registry import driver
from app.errors import BabelgateError, BrokerError, InvalidParameter, QueueNotFound
from app.gateway.authorization import Caller, Right
from app.gateway.idempotency import KeyStores
from app.gateway.model import BrokerInfo, QueueInfo
from app.gateway.routing import Route, Router, affordable, offering
from app.runtime import turns

_QUERIED_AT_ONCE = 100
"""Number of queues whose counts are read from the brokers at a time."""


class Overview:
    """The read operations for operators. All but ``missing`` check the right of their Caller (raise Forbidden)."""

    def __init__(
        self,
        router: Router,
        bindings: Mapping[str, Binding],
        required: frozenset[str],
        urls: Mapping[str, str],
        keys: KeyStores,
    ) -> None:
        """``urls``: each broker's URL without secrets; ``required``: brokers that readiness needs."""
        self._router = router
        self._keys = keys
        self._bindings = bindings
        self._required = required
        self._urls = urls

    async def queues(self, caller: Caller) -> list[QueueInfo]:
        """The queues, configured or listed by a broker, on which the caller has any right; sorted by name."""
        known = await known_queues(self._router, self._bindings)
        rights = await turns.mapped(caller.rights, known)
        names = [name for name, granted in zip(known, rights, strict=True) if granted]
        found: list[QueueInfo] = []
        for batch in batches(names, _QUERIED_AT_ONCE):
            found += await asyncio.gather(*(self._info(self._router.route(name), strict=False) for name in batch))
        return found

    async def queue(self, caller: Caller, queue: str) -> QueueInfo:
        """One queue. Raises Forbidden, QueueNotFound, and the broker's error."""
        caller.require_any(queue)
        return await self._info(self._router.route(queue), strict=True)

    async def brokers(self, caller: Caller) -> list[BrokerInfo]:
        """The brokers of :meth:`managed`, each queried for at most 2 s; needs the right to manage some queue."""
        caller.require_anywhere(Right.MANAGE)
        names = self.managed(caller)
        queries = (
            broker_info(binding, self._urls.get(name, ""), name in self._required)
            for name, binding in self._bindings.items()
            if name in names
        )
        return list(await asyncio.gather(*queries))

    def managed(self, caller: Caller) -> frozenset[str]:
        """The brokers of the queues that ``caller`` may manage; all brokers for a caller who may manage every queue.

        Only names and patterns of the routes and of the caller's rights are compared, not queues. A pattern counts
        when the caller may manage all queues that match it; its broker is that of the first route that matches all of
        them. A route that shares only some names with a right does not count.
        """
        if Right.MANAGE in caller.rights("*"):
            return frozenset(self._bindings)
        names = {*caller.patterns(Right.MANAGE), *(rule.match for rule in self._router.rules)}
        rules = [self._router.rule(name) for name in names if Right.MANAGE in caller.rights(name)]
        return frozenset(rule.binding.name for rule in rules if rule is not None)

    async def _info(self, route: Route, *, strict: bool) -> QueueInfo:
        """The queue with its counts. If its broker is down: raises BrokerError if ``strict``, else without counts."""
        try:
            stats = await route.binding.stats(route.native)
        except BrokerError:
            if strict:
                raise
            stats = QueueStats()
        native, policy, keys = route.native.name, asdict(route.policy), self._keys.info(route)
        return QueueInfo(route.queue, route.broker, native, stats, route.capabilities, policy, keys)

    async def missing(self) -> list[str]:
        """The required brokers that do not answer a ping; takes at most 2 s."""

        async def answers(name: str) -> bool:
            try:
                await self._bindings[name].ping()
            except BabelgateError:
                return False
            return True

        names = sorted(self._required)
        return [name for name, up in zip(names, await asyncio.gather(*map(answers, names)), strict=True) if not up]


async def peek(route: Route, limit: int) -> Sequence[Peeked]:
    """Up to ``limit`` ready messages, fewer where these are large. Raises UnsupportedByBroker."""
    peeks, few = offering(route, Peeks), affordable(0, 0)
    found = await peeks.peek(route.native, min(limit, few))
    if len(found) == few < limit:
        size = sum(len(message.body) for message in found)
        found = await peeks.peek(route.native, min(limit, affordable(len(found), size)))
    return found


async def known_queues(router: Router, bindings: Mapping[str, Binding]) -> list[str]:
    """The configured exact names, and the queues that brokers can list, sorted."""
    names = set(router.configured())
    for binding in bindings.values():
        if isinstance(binding, Lists):
            try:
                listed = await binding.queues()
            except BrokerError:
                continue
            ours = await turns.mapped(partial(is_queue, router, binding), listed)
            names.update(name for name, is_ours in zip(listed, ours, strict=True) if is_ours)
    return sorted(names)


def is_queue(router: Router, binding: Binding, native_name: str) -> bool:
    """Whether the route of the queue of this name leads to the native queue of the same name."""
    try:
        route = router.route(native_name)
    except (QueueNotFound, InvalidParameter):
        return False
    return route.binding is binding and route.native.name == native_name


async def broker_info(binding: Binding, url: str, required: bool) -> BrokerInfo:
    """The broker with its state and warnings, queried for at most 2 s."""
    detail, warnings = None, []
    try:
        await binding.ping()
        warnings = list(await binding.warnings())
    except BabelgateError as error:
        detail = error.detail
    return BrokerInfo(
        broker=binding.name,
        kind=driver(binding.name, url).kind if url else "",
        url=url,
        required=required,
        up=detail is None,
        detail=detail,
        warnings=warnings,
        capabilities=binding.capabilities(binding.native_queue("any", {})),
    )
