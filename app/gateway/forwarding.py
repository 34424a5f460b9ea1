"""Settling where the deliveries are: who gets which tokens of a call, and one answer made of all their answers.

On a broker that binds a delivery to a connection, only the replica that handed it out can settle it. A token names that
replica; what this one did not hand out itself goes to its owner, all owners at once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from app.clock import Clock
from app.errors import BabelgateError, InvalidAckToken, LeaseLost, OutcomeUnknown, OwnerUnreachable
from app.gateway.ack_tokens import TokenSealer
from app.gateway.model import Action, Extend, Nack, Reject, Settlement, SettleResult
from app.gateway.queue_runtime import QueueRuntime
from app.gateway.routing import Route
from app.gateway.settle import Settler, check
from app.observe.events import Event, Observe

Answer = Sequence[SettleResult] | BabelgateError
"""One owner's results, or what is wrong for all its tokens."""

_CLOCKS_DIFFER_MS = 60_000
"""How far the clocks of two replicas may be apart."""


class Forwarder(Protocol):
    """The way to the other replicas."""

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        """Have the replica of incarnation ``owner`` settle; its results as ``Gateway.settle`` gives them.

        ``traceparent``: the span that its own is to be a child of, where the settle is traced.
        Raises LeaseLost when there is no such replica (any more), OwnerUnreachable when that cannot be told,
        OutcomeUnknown when it was asked and did not answer, and whatever it raised for the whole call.
        """


class NoPeers:
    """Knows nobody: a delivery that was not handed out here is out of reach."""

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        """Raises LeaseLost."""
        raise LeaseLost


class Forwarding:
    """Settles here what can be: all of it on brokers where any replica can, else what ``incarnation`` handed out."""

    def __init__(
        self,
        settler: Settler,
        sealer: TokenSealer,
        incarnation: str,
        forwarder: Forwarder,
        observe: Observe,
        clock: Clock,
    ) -> None:
        self._settler = settler
        self._sealer = sealer
        self._incarnation = incarnation
        self._forwarder = forwarder
        self._observe = observe
        self._clock = clock

    async def settle(
        self, runtime: QueueRuntime, settlement: Settlement, traceparent: str | None = None
    ) -> list[SettleResult]:
        """What cannot be settled here goes through the forwarder. Results and errors as of ``Settler.settle``."""
        route = runtime.route
        if route.capabilities.ack_scope == "anywhere":
            return await self._settler.settle(runtime, settlement)
        owners, results = await self._settle(runtime, settlement, self._forwarder, traceparent)
        results = self._known_as_over(route, settlement, results)
        self._report(route, owners, results)
        return results

    async def settle_here(self, runtime: QueueRuntime, settlement: Settlement) -> list[SettleResult]:
        """For a peer: what cannot be settled here is LeaseLost, for it is forwarded once only."""
        if runtime.route.capabilities.ack_scope == "anywhere":
            return await self._settler.settle(runtime, settlement)
        return (await self._settle(runtime, settlement, NoPeers()))[1]

    async def _settle(
        self, runtime: QueueRuntime, settlement: Settlement, forwarder: Forwarder, traceparent: str | None = None
    ) -> tuple[Mapping[Action, Sequence[str]], list[SettleResult]]:
        route = runtime.route

        def owner(token: str) -> str:
            try:
                return self._sealer.open(token, route.queue).receiver
            except InvalidAckToken:
                return self._incarnation

        async def answer(owner: str, part: Settlement) -> Answer:
            try:
                if owner == self._incarnation:
                    return await self._settler.settle(runtime, part)
                return await forwarder.settle(owner, route, part, traceparent)
            except LeaseLost as error:
                # There is no such replica, and so nobody else who would report it.
                self._lost(route, sum(of.count(owner) for of in owners.values()))
                return error
            except BabelgateError as error:
                return error

        parts, owners = split(settlement, owner)
        if parts.keys() <= {self._incarnation}:
            return owners, await self._settler.settle(runtime, settlement)
        # Wrong for the whole call, before any owner acts on its part.
        check(route, settlement)
        answers = dict(zip(parts, await asyncio.gather(*itertools.starmap(answer, parts.items())), strict=True))
        return owners, merge(owners, answers)

    def _known_as_over(self, route: Route, settlement: Settlement, results: list[SettleResult]) -> list[SettleResult]:
        """Results in which no owner counts as unreachable whose lease cannot live any more, wherever that owner is."""
        if not any(isinstance(result.error, OwnerUnreachable) for result in results):
            return results
        asks: Sequence[Sequence[Nack | Reject | Extend]] = (settlement.nacks, settlement.rejects, settlement.extends)
        tokens = itertools.chain(settlement.acks, *(ask.ack_tokens for several in asks for ask in several))
        known = [
            replace(result, error=LeaseLost())
            if isinstance(result.error, OwnerUnreachable) and self._is_over(token, route)
            else result
            for token, result in zip(tokens, results, strict=True)
        ]
        self._lost(route, sum(one is not other for one, other in zip(known, results, strict=True)))
        return known

    def _is_over(self, token: str, route: Route) -> bool:
        able = route.capabilities
        # Who keeps leases here bounds them from the receive on, extends included; so the first deadline is no later.
        longest = round(able.max_lease_seconds * 1000) + _CLOCKS_DIFFER_MS
        return (
            able.lease_keeper == "gateway" and self._clock() > self._sealer.open(token, route.queue).deadline + longest
        )

    def _lost(self, route: Route, count: int) -> None:
        """Report the leases of replicas that are no more."""
        if count:
            self._observe(Event("lease_lost", route.queue, route.broker, count))

    def _report(self, route: Route, owners: Mapping[Action, Sequence[str]], results: Sequence[SettleResult]) -> None:
        """Count the forwarded; the owner, where there is one, reports what became of each lease."""
        forwarded: Counter[str] = Counter()
        for owner, result in zip(itertools.chain.from_iterable(owners.values()), results, strict=True):
            if owner != self._incarnation:
                forwarded[_outcome(result.error)] += 1
        if local := len(results) - forwarded.total():
            self._observe(Event("settled_here", route.queue, route.broker, count=local))
        for outcome, count in forwarded.items():
            self._observe(Event("forwarded", route.queue, route.broker, count=count, reason=outcome))


def split(settlement: Settlement, owner: Callable[[str], str]) -> tuple[dict[str, Settlement], dict[Action, list[str]]]:
    """The part of each owner, tokens in their order; and per action the ``owner`` of each token."""
    acks: defaultdict[str, list[str]] = defaultdict(list)
    asks: defaultdict[str, defaultdict[Action, list[Any]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[Action, list[str]] = {"ack": [], "nack": [], "reject": [], "extend": []}
    for token in settlement.acks:
        of = owner(token)
        owners["ack"].append(of)
        acks[of].append(token)
    asked: tuple[tuple[Action, Sequence[Nack | Reject | Extend]], ...] = (
        ("nack", settlement.nacks),
        ("reject", settlement.rejects),
        ("extend", settlement.extends),
    )
    for action, several in asked:
        for ask in several:
            shares: defaultdict[str, list[str]] = defaultdict(list)
            for token in ask.ack_tokens:
                of = owner(token)
                owners[action].append(of)
                shares[of].append(token)
            for of, tokens in shares.items():
                asks[of][action].append(replace(ask, ack_tokens=tokens))
    parts = {
        of: Settlement(acks[of], asks[of]["nack"], asks[of]["reject"], asks[of]["extend"])
        for of in dict.fromkeys((*acks, *asks))
    }
    return parts, owners


def merge(owners: Mapping[Action, Sequence[str]], answers: Mapping[str, Answer]) -> list[SettleResult]:
    """One result per token, indexed as the whole call's: the reverse of ``split`` for what each owner answered."""
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
