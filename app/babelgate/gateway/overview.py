"""Information about queues and brokers for operators."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from babelgate.brokers.batching import batches
from babelgate.brokers.binding import Binding, Lists, Peeked, Peeks, Purges, QueueStats, ReportsVersion
from babelgate.brokers.registry import driver
from babelgate.errors import BabelgateError, BrokerError, InvalidParameter, QueueNotFound, UnsupportedByBroker
from babelgate.gateway.authorization import OPERATORS, Caller
from babelgate.gateway.idempotency import KeyStores
from babelgate.gateway.issuer_state import IssuerState
from babelgate.gateway.loaded import LoadedConfiguration
from babelgate.gateway.model import BrokerInfo, QueueInfo, Source
from babelgate.gateway.names import QUEUE_NAME
from babelgate.gateway.outages import Outages
from babelgate.gateway.page_sizes import affordable
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.redacting import described
from babelgate.gateway.replicas import Replicas
from babelgate.gateway.route_warnings import broker_warnings, warnings_of
from babelgate.gateway.routing import Route, Router
from babelgate.gateway.runtimes import QueueRuntimes
from babelgate.observe.audit.notes import note
from babelgate.runtime import turns
from babelgate.runtime.cache import Cache

_QUERIED_AT_ONCE = 100
"""Number of queues whose counts are read from the brokers at a time."""

_ROUTES_AT_ONCE = 100
"""Number of routes that are looked up at a time for their retention."""

_WARNED_SECONDS = 30.0
"""How long the warnings about a queue are reused: programs that scale consumers read a queue every few seconds."""

_WARNED_BYTES = 4 * 1024 * 1024
_WARNED_ENTRY_BYTES = 8_192
"""Of the warnings about a queue: at most about twenty sentences, each once."""


class WatchedPushes(Protocol):
    """The pushes of this process, which are no part of the gateway."""

    def circuits(self) -> Mapping[str, str | None]:
        """For each queue that is pushed, a sentence why nothing is pushed for a while; None: its circuit is closed."""


class NoPushes:
    """The pushes of a process that has none."""

    def circuits(self) -> Mapping[str, str | None]:
        return {}


class Overview:
    """The read operations for operators. All but ``missing`` check the right of their Caller (raise Forbidden)."""

    def __init__(
        self,
        router: Router,
        bindings: Mapping[str, Binding],
        required: frozenset[str],
        urls: Mapping[str, str],
        keys: KeyStores,
        runtimes: QueueRuntimes,
        outages: Outages,
        pauses: Pauses,
    ) -> None:
        """``urls``: each broker's URL without secrets; ``required``: brokers that readiness needs; ``runtimes``: of
        the queues that this process has used."""
        self._outages = outages
        self.pauses = pauses
        self.replicas: Replicas | None = None
        """Who serves; None where only this object does."""
        self.pushes: WatchedPushes = NoPushes()
        self.loaded: LoadedConfiguration | None = None
        """Which configuration this process serves by; None for a gateway that was made without one."""
        self.issuers: Callable[[], Mapping[str, IssuerState]] = dict
        """The keys of each issuer of tokens."""
        self.certificate_ends_at: Callable[[], float | None] = lambda: None
        """When the certificate of the server ends, Unix seconds; None without one."""
        self._warned: Cache[str, tuple[float, Sequence[str]]] = Cache(_WARNED_BYTES, _WARNED_ENTRY_BYTES)
        self._runtimes = runtimes
        self._router = router
        self._keys = keys
        self._bindings = bindings
        self._required = required
        self._urls = urls

    def configure(self, required: frozenset[str], urls: Mapping[str, str]) -> None:
        """Show these from now on, after a reload of the configuration."""
        self._required, self._urls = required, urls
        self._warned.clear()

    async def queues(
        self, caller: Caller, limit: int, cursor: str | None, paused: bool | None = None
    ) -> tuple[list[QueueInfo], str | None]:
        """A page of the known queues on which the caller has any right, by name; the cursor after it (None: no more).

        Known are the queues that are configured by name, listed by a broker, used by this process, or paused.
        ``cursor``: the name of the last queue of the page before. ``paused``: only those that are, or are not. Raises
        InvalidParameter for another cursor.
        """
        if cursor is not None and not QUEUE_NAME.fullmatch(cursor):
            raise InvalidParameter(name="cursor", reason="it is not the next_cursor of a list of queues")
        used = [*self._runtimes.queues(), *(each.queue for each in self.pauses.in_force())]
        sources = await known_queues(self._router, self._bindings, used)
        later = sorted(name for name in sources if cursor is None or name > cursor)
        if paused is not None:
            later = [name for name in later if (self.pauses.get(name) is not None) is paused]
        rights = await turns.mapped(caller.rights, later)
        names = [name for name, granted in zip(later, rights, strict=True) if granted]
        found: list[QueueInfo] = []
        for batch in batches(names[:limit], _QUERIED_AT_ONCE):
            infos = await asyncio.gather(*(self._info(each, strict=False) for each in routes_of(self._router, batch)))
            found += [replace(info, source=sources[info.queue]) for info in infos]
        return found, names[limit - 1] if len(names) > limit else None

    async def queue(self, caller: Caller, queue: str) -> QueueInfo:
        """One queue. Raises InvalidParameter, Forbidden, QueueNotFound, and the broker's error."""
        caller.require_any(queue)
        route = self._router.route(queue)
        info, warnings = await asyncio.gather(self._info(route, strict=True), self._warnings(route))
        return replace(info, warnings=warnings)

    async def brokers(self, caller: Caller) -> list[BrokerInfo]:
        """The brokers of :meth:`managed`, each queried for at most 2 s; needs the right to manage or observe some
        queue."""
        caller.require_anywhere(*OPERATORS)
        names = self.managed(caller)
        queries = (
            broker_info(
                binding,
                self._urls.get(name, ""),
                name in self._required,
                self.routes_to(name),
                self._outages.circuits[name].is_open,
                self._outages.storage(name),
            )
            for name, binding in self._bindings.items()
            if name in names
        )
        return list(await asyncio.gather(*queries))

    def addresses(self, caller: Caller) -> dict[str, str]:
        """The URLs, without secrets, of those brokers of :meth:`managed` that are servers. Asks none of them."""
        names = self.managed(caller)
        return {name: url for name, url in self._urls.items() if name in names and not driver(name, url).embedded}

    def routes_to(self, broker: str) -> list[Route]:
        """The routes to ``broker`` of the queues that are configured by name or have a runtime in this process."""
        # A runtime may be that of a route that the queue had before a reload.
        names = dict.fromkeys((*self._router.configured(), *(runtime.route.queue for runtime in self._runtimes)))
        return [route for route in routes_of(self._router, names) if route.broker == broker]

    async def retaining_routes(self) -> AsyncIterator[Route]:
        """If any route has a retention, the routes of the queues that are configured by name, used by this process, or
        listed by a broker as used by a gateway."""
        if self._router.retains:
            names = await known_queues(self._router, self._bindings, self._runtimes.queues(), foreign=False)
            # A file may have any number of queues.
            for some in batches(names, _ROUTES_AT_ONCE):
                for routes in await turns.mapped(lambda name: routes_of(self._router, [name]), some):
                    for route in routes:
                        yield route

    def managed(self, caller: Caller) -> frozenset[str]:
        """The brokers of the queues that ``caller`` may manage or observe; all brokers for a caller who may do so with
        every queue.

        Only names and patterns of the routes and of the caller's rights are compared, not queues. A pattern counts
        when the caller may do so with all queues that match it; its broker is that of the first route that matches all
        of them. A route that shares only some names with a right does not count.
        """
        if not caller.rights("*").isdisjoint(OPERATORS):
            return frozenset(self._bindings)
        names = {*caller.patterns(*OPERATORS), *(rule.match for rule in self._router.rules)}
        rules = [self._router.rule(name) for name in names if not caller.rights(name).isdisjoint(OPERATORS)]
        return frozenset(rule.binding.name for rule in rules if rule is not None)

    async def _info(self, route: Route, *, strict: bool) -> QueueInfo:
        """The queue with its counts. If its broker is down: raises BrokerError if ``strict``, else without counts."""
        try:
            stats = await route.stats()
        except BrokerError:
            if strict:
                raise
            stats = QueueStats()
        return QueueInfo(
            queue=route.queue,
            broker=route.broker,
            native_name=route.native.name,
            dead_letter_queue=route.native.dead_letters,
            stored_as=route.native.stored_as,
            stats=stats,
            capabilities=route.capabilities,
            policy=described(route.policy),
            idempotency=self._keys.info(route),
            pause=self.pauses.get(route.queue),
        )

    async def _warnings(self, route: Route) -> Sequence[str]:
        """The warnings about the settings of the queue, asked for at most every _WARNED_SECONDS."""
        now, known = time.monotonic(), self._warned.get(route.queue)
        if known is not None and now - known[0] < _WARNED_SECONDS:
            return known[1]
        found = await warnings_of(route)
        self._warned.keep(route.queue, (now, found))
        return found

    async def missing(self) -> list[str]:
        """The required brokers that do not answer a ping; takes at most 2 s."""

        async def answers(name: str) -> bool:
            try:
                await self._bindings[name].ping()
            except BrokerError as error:
                self._outages.lost(name, error)
                return False
            except BabelgateError:
                return False
            return True

        names = sorted(self._required)
        return [name for name, up in zip(names, await asyncio.gather(*map(answers, names)), strict=True) if not up]


def noted_purge(removed: int, dry_run: bool) -> int:
    """``removed``, the number of messages that a purge removed or would remove, noted for the audit trail."""
    note(removed=0 if dry_run else removed, dry_run=dry_run or None)
    return removed


async def count_purge(route: Route, counts: Sequence[str]) -> int:
    """The number of messages that a purge would remove: the sum of ``counts``, fields of the queue's stats.

    Raises UnsupportedByBroker if the broker does not report one of them, or if there are none.
    """
    route.offering(Purges)
    stats = await route.binding.stats(route.native)
    found: list[int | None] = [getattr(stats, name) for name in counts]
    if route.parking is not None:
        found.append(await route.parking.count())
    known = [count for count in found if count is not None]
    if not found or len(known) < len(found):
        reason = f"The broker {route.broker!r} cannot count what a purge of {route.queue!r} would remove."
        raise UnsupportedByBroker(code="unsupported_by_broker", pointer="/dry_run", reason=reason)
    return sum(known)


async def peek(route: Route, limit: int) -> Sequence[Peeked]:
    """Up to ``limit`` ready messages, fewer where these are large, redacted as the route says. Raises
    UnsupportedByBroker."""
    peeks, few = route.offering(Peeks), affordable(0, 0)
    found = await peeks.peek(route.native, min(limit, few))
    if len(found) == few < limit:
        size = sum(len(message.body) for message in found)
        found = await peeks.peek(route.native, min(limit, affordable(len(found), size)))
    redaction = route.policy.redaction
    if redaction is None:
        return found
    shown = await turns.mapped(redaction.redacted, [each.body for each in found], len, background=True)
    return [Peeked(body, each.headers) for each, body in zip(found, shown, strict=True)]


def routes_of(router: Router, queues: Iterable[str]) -> list[Route]:
    """The routes of those of ``queues`` that have one: a reload of the configuration may have taken that of others."""
    routes: list[Route] = []
    for queue in queues:
        with contextlib.suppress(QueueNotFound, InvalidParameter, UnsupportedByBroker):
            routes.append(router.route(queue))
    return routes


async def known_queues(
    router: Router, bindings: Mapping[str, Binding], used: Iterable[str], *, foreign: bool = True
) -> dict[str, Source]:
    """The queues that are known, and from where. The configuration comes first, then the brokers, then ``used``.

    Without ``foreign`` the lists of brokers count only if they contain no queues of other programs. A broker that is
    down adds nothing, nor does a used queue without a route. The process has a bounded number of ``used`` queues, and a
    broker's list is bounded by its binding.
    """
    sources: dict[str, Source] = dict.fromkeys(router.configured(), "configured")
    for binding in bindings.values():
        if isinstance(binding, Lists) and (foreign or not binding.lists_foreign):
            try:
                listed = await binding.queues()
            except BrokerError:
                continue
            natives = await turns.mapped(partial(router.found, binding), listed)
            found = {queue: native for queue, native in filter(None, natives)}
            # The default may lead to the dead-letter queue of another route, as to any other queue.
            dead = router.dead_letters(binding) | {native.dead_letters for native in found.values()}
            sources |= {
                queue: "broker" for queue, native in found.items() if native.name not in dead and queue not in sources
            }
    used = [queue for queue in used if queue not in sources]
    for queue, rule in zip(used, await turns.mapped(router.rule, used), strict=True):
        if rule is not None:
            sources[queue] = "process"
    return sources


async def broker_info(
    binding: Binding,
    url: str,
    required: bool,
    routes: Sequence[Route] = (),
    is_open: bool = False,
    refused: str | None = None,
) -> BrokerInfo:
    """The broker with its state and warnings, queried for at most 2 s. ``is_open``: its circuit is. ``refused``: why
    its storage has refused a call within the last minute."""
    detail, warnings = None, []
    try:
        await binding.ping()
        warnings = await broker_warnings(binding, routes)
    except BabelgateError as error:
        detail = error.detail
    return BrokerInfo(
        broker=binding.name,
        kind=driver(binding.name, url).kind if url else "",
        url=url,
        required=required,
        up=detail is None,
        circuit="open" if is_open else "closed",
        detail=detail,
        warnings=warnings if refused is None else [refused, *warnings],
        capabilities=binding.capabilities(binding.native_queue("any", {})),
        version=binding.server_version if isinstance(binding, ReportsVersion) else None,
    )
