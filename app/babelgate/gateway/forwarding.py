"""Forwards settlements to the replicas that own the leases, and merges their answers.

On a broker that binds a delivery to a connection, only the replica that handed it out can settle it. A token names that
replica, its owner. Tokens of other owners are forwarded, to all owners at once. Where any replica can settle, only what
needs the body, or the lease that the owner keeps, is forwarded. So is a lease at a place that only a configuration
leads to which this replica has not loaded yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from babelgate.brokers.binding import Outcome
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, InternalError, LeaseLost, OutcomeUnknown, OwnerUnreachable
from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.counted_leases import CountedLeases
from babelgate.gateway.former_queues import FormerQueues
from babelgate.gateway.model import Action, Extend, Nack, Reject, Settlement, SettleResult
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route
from babelgate.gateway.settle import Settler, check, way_of
from babelgate.observe.events import Event, Observe
from babelgate.runtime import turns

Answer = Sequence[SettleResult] | BabelgateError
"""The results of one owner, or an error that applies to all its tokens."""

Request = Nack | Reject | Extend | None
"""The request to which a token belongs; None for an ack."""

_CLOCKS_DIFFER_MS = 60_000
"""Largest assumed difference between the clocks of two replicas."""

_MANY_TOKENS = 100
"""To find the owners of more than these takes milliseconds."""


class Forwarder(Protocol):
    """Forwards settlements to other replicas."""

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        """Have the replica of incarnation ``owner`` settle; returns results as ``Gateway.settle`` does.

        ``traceparent``: the parent of the owner's span, if the settle is traced.
        Raises LeaseLost when the replica does not exist (any more), OwnerUnreachable when that is unknown, or when it
        refused the call (with the fact ``is_refusal``),
        OutcomeUnknown when it was called and did not answer, and the error that the owner raised for the whole call.
        """


class NoPeers:
    """A forwarder without peers: every lease of another replica is lost."""

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        """Raises LeaseLost."""
        raise LeaseLost


class Forwarding:
    """Settles in this process what it can, and forwards the rest.

    Nothing is forwarded where any replica can do it; else the tokens of other incarnations are.
    """

    def __init__(
        self,
        settler: Settler,
        sealer: TokenSealer,
        incarnation: str,
        forwarder: Forwarder,
        observe: Observe,
        clock: Clock,
        counted: CountedLeases,
    ) -> None:
        """``counted``: the receivers of leases that count have to see how they end."""
        self._counted = counted
        self._settler = settler
        self._sealer = sealer
        self._incarnation = incarnation
        self._forwarder = forwarder
        self._observe = observe
        self._clock = clock
        self.former: FormerQueues | None = None
        """Those that have left a broker; None: there are none."""

    async def settle(
        self, runtime: QueueRuntime, settlement: Settlement, traceparent: str | None = None
    ) -> list[SettleResult]:
        """Settle here or through the forwarder; results and errors as of ``Settler.settle``."""
        if self.former and (runtimes := self.former.runtimes(runtime, settlement)):
            return await self._settle_former(runtime, runtimes, settlement, partial(self._at, traceparent))
        return await self._at(traceparent, runtime, settlement)

    async def _at(self, traceparent: str | None, runtime: QueueRuntime, settlement: Settlement) -> list[SettleResult]:
        route = runtime.route
        strays = self._strays(route, settlement)
        if not (route.settles_elsewhere or self._counted.are_limited or strays):
            return await self._settler.settle(runtime, settlement)
        owners, results = await self._settle(runtime, settlement, self._forwarder, traceparent, strays)
        results = self._with_expired_as_lost(route, settlement, results)
        self._report(route, owners, results)
        return results

    def _strays(self, route: Route, settlement: Settlement) -> Collection[str]:
        """The tokens of leases at a place that this process does not know, but perhaps their receiver does."""
        strays = set()
        for token in settlement.tokens:
            # Settling it here gives the error as the result of the token.
            with contextlib.suppress(Exception):
                if not self._sealer.open(token, route.queue).is_at(route):
                    strays.add(token)
        return strays

    def begin_ack(self, runtime: QueueRuntime, token: str) -> asyncio.Future[Outcome] | None:
        """The future of the outcome of an ack that needs no other process; None for another one, and for one that is
        refused."""
        route = runtime.route
        try:
            lease = self._sealer.open(token, route.queue, keep=False)
        except BabelgateError:
            return None
        # As Lease.is_at(), without a call.
        is_at = lease.place == route.place if lease.place else lease.broker == route.broker
        if not is_at or ((route.settles_elsewhere or lease.sticky) and lease.receiver != self._incarnation):
            return None
        former = self.former
        if former is not None and former.is_used and former.holder(runtime, lease) is not None:
            return None
        outcome = runtime.acker.submit(lease)
        if route.settles_elsewhere:
            self._observe(Event("settled_here", route.queue, route.broker))
        return outcome

    async def settle_here(self, runtime: QueueRuntime, settlement: Settlement) -> list[SettleResult]:
        """Settle for a peer. Leases of other replicas are LeaseLost: a settlement is forwarded only once."""
        if self.former and (runtimes := self.former.runtimes(runtime, settlement)):
            return await self._settle_former(runtime, runtimes, settlement, self._here)
        return await self._here(runtime, settlement)

    async def _here(self, runtime: QueueRuntime, settlement: Settlement) -> list[SettleResult]:
        if not runtime.route.settles_elsewhere:
            return await self._settler.settle(runtime, settlement)
        return (await self._settle(runtime, settlement, NoPeers()))[1]

    async def _settle_former(
        self,
        runtime: QueueRuntime,
        runtimes: Mapping[str, QueueRuntime],
        settlement: Settlement,
        settle: Callable[[QueueRuntime, Settlement], Awaitable[list[SettleResult]]],
    ) -> list[SettleResult]:
        """Settle each lease by the runtime that has handed it out: one of ``runtimes``, by tokens, or ``runtime``."""
        by_name = {str(id(each)): each for each in runtimes.values()}

        def owner(token: str, request: Request) -> str:
            return str(id(runtimes[token])) if token in runtimes else ""

        async def answer(part: Settlement, at: QueueRuntime) -> Answer:
            try:
                return await settle(at, part)
            except BabelgateError as error:
                return error
            except Exception as error:
                return InternalError.caused_by(error)

        parts, owners = split(settlement, owner)
        answers = await asyncio.gather(*(answer(part, by_name.get(of, runtime)) for of, part in parts.items()))
        return merge(owners, dict(zip(parts, answers, strict=True)))

    async def _settle(
        self,
        runtime: QueueRuntime,
        settlement: Settlement,
        forwarder: Forwarder,
        traceparent: str | None = None,
        strays: Collection[str] = (),
    ) -> tuple[Mapping[Action, Sequence[str]], list[SettleResult]]:
        route = runtime.route
        is_anywhere = route.capabilities.ack_scope == "anywhere"
        is_kept = runtime.held is not None
        adopted: dict[str, Lease] = {}
        """The leases of other receivers that are settled here."""

        def owner(token: str, request: Request) -> str:
            try:
                lease = self._sealer.open(token, route.queue)
                if token in strays:
                    return lease.receiver
                way, delay = way_of(route, lease, request)
                if lease.sticky or runtime.lease_manager.needs_receiver(way, lease.handle, lease.deadline, delay):
                    return lease.receiver
            except Exception:
                # Settling it here gives the same error as the result of the token.
                return self._incarnation
            if is_kept and lease.receiver != self._incarnation:
                adopted[token] = lease
            return self._incarnation

        async def answer(owner: str, part: Settlement) -> Answer:
            try:
                if owner == self._incarnation:
                    return await self._settler.settle(runtime, part)
                return await forwarder.settle(owner, route, part, traceparent)
            except LeaseLost as error:
                # The owner does not exist.
                if is_anywhere:
                    return await self._settled_for(runtime, part)
                # So this process reports the lost leases.
                self._report_lost(route, sum(of.count(owner) for of in owners.values()))
                return error
            except OwnerUnreachable as error:
                is_acks = not (part.nacks or part.rejects or part.extends)
                needs_owner = (not is_acks and route.settles_elsewhere) or any(each in strays for each in part.tokens)
                is_bound = route.capabilities.lease_bound_to is not None
                if not is_anywhere or needs_owner or (is_bound and error.facts.get("is_refusal")):
                    return error
                # It was only forwarded for the owner to see it, and to know whether its lease has ended.
                if is_kept:
                    adopted.update((token, self._sealer.open(token, route.queue)) for token in part.acks)
                return await self._settled_for(runtime, part)
            except BabelgateError as error:
                return error
            except Exception as error:
                return InternalError.caused_by(error)

        parts, owners = split(settlement, owner)
        if sum(map(len, owners.values())) > _MANY_TOKENS:
            await turns.next_turn()
        if parts.keys() <= {self._incarnation}:
            results = await self._settler.settle(runtime, settlement)
        else:
            # An error that applies to the whole call is raised before any owner acts on its part.
            check(route, settlement)
            answers = dict(zip(parts, await asyncio.gather(*itertools.starmap(answer, parts.items())), strict=True))
            results = merge(owners, answers)
        return owners, self._with_late_as_unknown(route, settlement.acks, adopted, results)

    def _with_late_as_unknown(
        self, route: Route, acks: Sequence[str], adopted: Mapping[str, Lease], results: list[SettleResult]
    ) -> list[SettleResult]:
        """Replace success with OutcomeUnknown for acks that were done here only after the deadlines of leases which
        others keep. By then the receiver may have published the message again."""
        now = self._clock()
        late = {token for token, lease in adopted.items() if lease.deadline <= now}
        if not late:
            return results
        reason = "the acknowledgement was answered after the lease had ended"
        unknown = OutcomeUnknown(broker=route.broker, reason=reason)
        return [
            replace(result, error=unknown)
            if result.action == "ack" and result.error is None and acks[result.index] in late
            else result
            for result in results
        ]

    async def _settled_for(self, runtime: QueueRuntime, part: Settlement) -> Answer:
        """Settle here what an owner that has ended would have settled, as far as that needs no body."""
        try:
            return await self._settler.settle(runtime, part)
        except BabelgateError as error:
            return error

    def _with_expired_as_lost(
        self, route: Route, settlement: Settlement, results: list[SettleResult]
    ) -> list[SettleResult]:
        """Replace OwnerUnreachable with LeaseLost where the lease must have expired."""
        if not any(isinstance(result.error, OwnerUnreachable) for result in results):
            return results
        replaced = [
            replace(result, error=LeaseLost())
            if isinstance(result.error, OwnerUnreachable) and self._must_have_expired(token, route)
            else result
            for token, result in zip(settlement.tokens, results, strict=True)
        ]
        self._report_lost(route, sum(one is not other for one, other in zip(replaced, results, strict=True)))
        return replaced

    def _must_have_expired(self, token: str, route: Route) -> bool:
        capabilities = route.capabilities
        # A lease that a gateway keeps is bounded from its receive on, all extends included.
        longest = round(capabilities.max_lease_seconds * 1000) + _CLOCKS_DIFFER_MS
        return (
            capabilities.lease_bound_to is not None
            and self._clock() > self._sealer.open(token, route.queue).deadline + longest
        )

    def _report_lost(self, route: Route, count: int) -> None:
        """Report lost leases of replicas that do not exist any more."""
        if count:
            self._observe(Event("lease_lost", route.queue, route.broker, count))

    def _report(self, route: Route, owners: Mapping[Action, Sequence[str]], results: Sequence[SettleResult]) -> None:
        """Report how many tokens were settled here and forwarded. The owner reports the outcome of each lease."""
        forwarded: Counter[str] = Counter()
        for owner, result in zip(itertools.chain.from_iterable(owners.values()), results, strict=True):
            if owner != self._incarnation:
                forwarded[_outcome(result.error)] += 1
        if local := len(results) - forwarded.total():
            self._observe(Event("settled_here", route.queue, route.broker, count=local))
        for outcome, count in forwarded.items():
            self._observe(Event("forwarded", route.queue, route.broker, count=count, reason=outcome))


def split(
    settlement: Settlement, owner: Callable[[str, Request], str]
) -> tuple[dict[str, Settlement], dict[Action, list[str]]]:
    """The part of each owner, with tokens in order, and per action the ``owner`` of each token."""
    acks: defaultdict[str, list[str]] = defaultdict(list)
    requests: defaultdict[str, defaultdict[Action, list[Any]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[Action, list[str]] = {"ack": [], "nack": [], "reject": [], "extend": []}
    for token in settlement.acks:
        owned_by = owner(token, None)
        owners["ack"].append(owned_by)
        acks[owned_by].append(token)
    by_action: tuple[tuple[Action, Sequence[Nack | Reject | Extend]], ...] = (
        ("nack", settlement.nacks),
        ("reject", settlement.rejects),
        ("extend", settlement.extends),
    )
    for action, several in by_action:
        for request in several:
            shares: defaultdict[str, list[str]] = defaultdict(list)
            for token in request.ack_tokens:
                owned_by = owner(token, request)
                owners[action].append(owned_by)
                shares[owned_by].append(token)
            for of, tokens in shares.items():
                requests[of][action].append(replace(request, ack_tokens=tokens))
    parts = {
        of: Settlement(acks[of], requests[of]["nack"], requests[of]["reject"], requests[of]["extend"])
        for of in dict.fromkeys((*acks, *requests))
    }
    return parts, owners


def merge(owners: Mapping[Action, Sequence[str]], answers: Mapping[str, Answer]) -> list[SettleResult]:
    """One result per token, with indexes of the whole call: the reverse of ``split``."""
    each: dict[str, Iterator[SettleResult]] = {
        owner: iter(answer) for owner, answer in answers.items() if not isinstance(answer, BabelgateError)
    }
    results = []
    for action, of in owners.items():
        for index, owner in enumerate(of):
            answer = answers[owner]
            if isinstance(answer, BabelgateError):
                results.append(SettleResult(index, action, answer))
            else:
                results.append(replace(next(each[owner]), index=index))
    return results


def _outcome(error: BabelgateError | None) -> str:
    match error:
        case None:
            return "settled"
        case LeaseLost():
            return "lease_lost"
        case OwnerUnreachable():
            return "unreachable"
        case OutcomeUnknown():
            return "unknown"
        case _:
            return "failed"
