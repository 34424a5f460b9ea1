"""How leases end: ack, nack, reject; and how they are prolonged."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from app import envelope
from app.brokers.binding import DeadLetterRequest, LastFailure, Outcome
from app.clock import Clock
from app.errors import BabelgateError, BrokerUnavailable, LeaseLost, OutcomeUnknown
from app.gateway.ack_tokens import NO_FACTS, Lease, TokenSealer
from app.gateway.lease_manager import FailedDelivery
from app.gateway.model import Action, Extend, Nack, Reject, Settlement, SettleResult
from app.gateway.queue_runtime import QueueRuntime
from app.gateway.routing import Route, chunks
from app.observe.events import Event, EventKind, Facts, Observe

Fate = Outcome | int
"""What became of a token: ``None`` settled, an error, or the new deadline of an extended lease in Unix ms."""

End = Callable[[Sequence[Lease]], Awaitable[Sequence[Fate]]]
"""Ends leases, or prolongs them: one fate each."""

_SETTLED: Mapping[Action, EventKind] = {"ack": "acked", "nack": "nacked", "reject": "rejected", "extend": "extended"}


class Settler:
    """Turns tokens into leases and ends them at their broker."""

    def __init__(self, sealer: TokenSealer, clock: Clock, observe: Observe) -> None:
        self._sealer = sealer
        self._clock = clock
        self._observe = observe

    async def settle(self, runtime: QueueRuntime, settlement: Settlement) -> list[SettleResult]:
        """Acks, then nacks, rejects, extends: one result per token, in order.

        Raises only what is wrong for all of them: a delay or a lease that the broker cannot keep.
        """
        route = runtime.route
        check(route, settlement)
        fates: defaultdict[Action, list[Fate]] = defaultdict(list)

        async def end(action: Action, tokens: Sequence[str], by: End) -> None:
            opened = self._open(route, tokens)
            each = await _each(opened, by(_leases(opened)))
            self._report(route, action, opened, each)
            fates[action] += each

        if settlement.acks:
            await end("ack", settlement.acks, partial(self._ack, runtime))
        for nack in settlement.nacks:
            await end("nack", nack.ack_tokens, partial(self._nack, runtime, nack))
        for reject in settlement.rejects:
            await end("reject", reject.ack_tokens, partial(self._reject, runtime, reject))
        for extend in settlement.extends:
            await end("extend", extend.ack_tokens, partial(self._extend, runtime, extend))
        return [_result(index, action, fate) for action, each in fates.items() for index, fate in enumerate(each)]

    def _open(self, route: Route, tokens: Sequence[str]) -> list[Lease | BabelgateError]:
        opened: list[Lease | BabelgateError] = []
        for token in tokens:
            try:
                lease = self._sealer.open(token, route.queue)
            except BabelgateError as error:
                opened.append(error.without_frames())
            else:
                # A queue that has moved to another broker since cannot reach this lease by its route.
                opened.append(lease if lease.broker == route.broker else LeaseLost())
        return opened

    async def _ack(self, runtime: QueueRuntime, leases: Sequence[Lease]) -> Sequence[Fate]:
        if len(leases) == 1:
            return [await runtime.acker.submit(leases[0].handle)]
        return await _in_chunks(
            runtime.route,
            leases,
            lambda chunk: runtime.timed("ack", runtime.lease_manager.ack(_handles(chunk)), len(chunk)),
        )

    async def _nack(self, runtime: QueueRuntime, nack: Nack, leases: Sequence[Lease]) -> Sequence[Fate]:
        """Again, after the given delay or the queue's backoff; the ``max_attempts``-th failure dead-letters."""
        route = runtime.route
        spent: list[int] = []
        by_delay: defaultdict[float, list[int]] = defaultdict(list)
        for position, lease in enumerate(leases):
            attempts = lease.attempts + 1
            if attempts >= route.policy.max_attempts:
                spent.append(position)
            else:
                delay = route.policy.backoff(attempts) if nack.delay_seconds is None else nack.delay_seconds
                by_delay[delay].append(position)
        fates: dict[int, Fate] = {}
        for delay, positions in by_delay.items():
            release = partial(_release, runtime, nack, delay)
            outcomes = await _in_chunks(route, [leases[position] for position in positions], release)
            fates.update(zip(positions, outcomes, strict=True))
        if spent:
            publish_dead_letters = partial(self._dead_letter, runtime, nack.error, nack.exception, 1)
            outcomes = await _in_chunks(route, [leases[position] for position in spent], publish_dead_letters)
            fates.update(zip(spent, outcomes, strict=True))
        return [fates[position] for position in range(len(leases))]

    async def _reject(self, runtime: QueueRuntime, reject: Reject, leases: Sequence[Lease]) -> Sequence[Fate]:
        return await _in_chunks(
            runtime.route, leases, partial(self._dead_letter, runtime, reject.error, reject.exception, 0)
        )

    async def _dead_letter(
        self, runtime: QueueRuntime, error: str | None, exception: str | None, counted: int, leases: Sequence[Lease]
    ) -> Sequence[Outcome]:
        route, now = runtime.route, self._clock()
        letters = [
            DeadLetterRequest(
                lease.handle,
                envelope.dead_letter_block("failed", route.queue, lease.attempts + counted, now, error, exception),
            )
            for lease in leases
        ]
        outcomes = await runtime.timed("reject", runtime.lease_manager.dead_letter(letters), len(letters))
        done = [lease.facts for lease, outcome in zip(leases, outcomes, strict=True) if outcome is None]
        if done:
            event = Event("dead_lettered", route.queue, route.broker, len(done), reason="failed", messages=done)
            self._observe(event)
        return outcomes

    async def _extend(self, runtime: QueueRuntime, extend: Extend, leases: Sequence[Lease]) -> Sequence[Fate]:
        lease_seconds = runtime.route.lease_seconds(extend.lease_seconds)

        async def prolong(chunk: Sequence[Lease]) -> Sequence[Fate]:
            return await runtime.timed(
                "extend", runtime.lease_manager.extend(_handles(chunk), lease_seconds), len(chunk)
            )

        return await _in_chunks(runtime.route, leases, prolong)

    def _report(
        self, route: Route, action: Action, opened: Sequence[Lease | BabelgateError], fates: Sequence[Fate]
    ) -> None:
        settled: list[Facts] = []
        lost: list[Facts] = []
        for lease, fate in zip(opened, fates, strict=True):
            if not isinstance(fate, BabelgateError):
                assert isinstance(lease, Lease)
                settled.append(lease.facts)
            elif isinstance(fate, LeaseLost):
                lost.append(lease.facts if isinstance(lease, Lease) else NO_FACTS)
        if settled:
            self._observe(Event(_SETTLED[action], route.queue, route.broker, len(settled), messages=settled))
        if lost:
            self._observe(Event("lease_lost", route.queue, route.broker, len(lost), messages=lost))


def check(route: Route, settlement: Settlement) -> None:
    """Raise InvalidParameter or UnsupportedByBroker for a delay or a lease that the broker cannot keep."""
    for nack in settlement.nacks:
        if nack.delay_seconds is not None:
            route.check_delay(nack.delay_seconds)
    for extend in settlement.extends:
        route.lease_seconds(extend.lease_seconds)


def _handles(leases: Sequence[Lease]) -> list[str]:
    return [lease.handle for lease in leases]


async def _release(
    runtime: QueueRuntime, nack: Nack, delay_seconds: float, leases: Sequence[Lease]
) -> Sequence[Outcome]:
    failed = [
        FailedDelivery(lease.handle, LastFailure(lease.attempts + 1, nack.error, nack.exception)) for lease in leases
    ]
    return await runtime.timed("nack", runtime.lease_manager.release(failed, delay_seconds), len(failed))


async def _in_chunks(route: Route, leases: Sequence[Lease], call: End) -> list[Fate]:
    """The fates by ``call``, made with as many leases as the broker takes at once; a call that fails fails alone.

    A broker that did not answer is not asked about the rest: one that hangs costs its whole time-out each time.
    """
    fates: list[Fate] = []
    for chunk in chunks(leases, route.capabilities.max_batch):
        if fates and isinstance(fates[-1], BrokerUnavailable | OutcomeUnknown):
            reason = "it did not answer about the tokens before, and was not asked about this one"
            fates += [BrokerUnavailable(route.broker, reason)] * len(chunk)
            continue
        fates += await _each(chunk, call(chunk))
    return fates


def _leases(opened: Sequence[Lease | BabelgateError]) -> list[Lease]:
    return [lease for lease in opened if isinstance(lease, Lease)]


async def _each(opened: Sequence[object], call: Awaitable[Sequence[Fate]]) -> list[Fate]:
    """The fate of each: its own error, else its place in the answer of ``call``, whose failure is everybody's."""
    fates: Iterator[Fate]
    try:
        fates = iter(await call)
    except BabelgateError as error:
        fates = itertools.repeat(error)
    return [each if isinstance(each, BabelgateError) else next(fates) for each in opened]


def _result(index: int, action: Action, fate: Fate) -> SettleResult:
    if isinstance(fate, int):
        return SettleResult(index, action, None, fate)
    return SettleResult(index, action, fate)
