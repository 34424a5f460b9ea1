"""Settles leases: opens ack tokens and acks, nacks, rejects or extends at the broker."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from babelgate import envelope
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import DeadLetterRequest, LastFailure, Outcome
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerUnavailable, InternalError, LeaseLost
from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.broker_calls import TokenOutcome
from babelgate.gateway.model import Action, Extend, Nack, Reject, Settlement, SettleResult
from babelgate.gateway.outages import is_silence
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route
from babelgate.leases.manager import FailedDelivery, Way
from babelgate.observe.events import Event, Observe
from babelgate.runtime import turns

End = Callable[[Sequence[Lease]], Awaitable[Sequence[TokenOutcome]]]
"""Ends or extends leases; returns one outcome per lease."""


class Settler:
    """Settles the leases of this process or, where the broker keeps leases, of any process."""

    def __init__(self, sealer: TokenSealer, clock: Clock, observe: Observe) -> None:
        self._sealer = sealer
        self._clock = clock
        self._observe = observe

    async def settle(self, runtime: QueueRuntime, settlement: Settlement) -> list[SettleResult]:
        """Acks, then nacks, rejects, extends: one result per token, in order. A single ack is sent with others.

        Raises InvalidParameter or UnsupportedByBroker for a delay or a lease duration that the broker cannot keep. An
        unexpected error is the ``__cause__`` of an InternalError, the result of the tokens that it concerns. The caller
        logs it.
        """
        route, acks = runtime.route, settlement.acks
        if len(acks) == 1 and not (settlement.nacks or settlement.rejects or settlement.extends):
            return [SettleResult(0, "ack", await self._ack_one(runtime, acks[0]))]
        check(route, settlement)
        outcomes: defaultdict[Action, list[TokenOutcome]] = defaultdict(list)

        async def end(action: Action, tokens: Sequence[str], by: End) -> None:
            opened = await turns.mapped(partial(self.opened, route, ends=action != "extend"), tokens)
            each = await _each(opened, by(_leases(opened)))
            runtime.calls.report_settled(action, opened, each)
            outcomes[action] += each

        if acks:
            await end("ack", acks, partial(self._ack, runtime))
        for nack in settlement.nacks:
            await end("nack", nack.ack_tokens, partial(self._nack, runtime, nack))
        for reject in settlement.rejects:
            await end("reject", reject.ack_tokens, partial(self._reject, runtime, reject))
        for extend in settlement.extends:
            await end("extend", extend.ack_tokens, partial(self._extend, runtime, extend))
        return [
            _result(index, action, outcome) for action, each in outcomes.items() for index, outcome in enumerate(each)
        ]

    def opened(self, route: Route, token: str, *, ends: bool = True) -> Lease | BabelgateError:
        """The lease of ``token``, or why there is none. ``ends``: it is opened to end the lease."""
        try:
            lease = self._sealer.open(token, route.queue, keep=not ends)
        except BabelgateError as error:
            return error.without_frames()
        except Exception as error:
            return InternalError.caused_by(error)
        # The queue may have been routed elsewhere since: then its route cannot reach this lease.
        return lease if lease.is_at(route) else LeaseLost()

    async def _ack_one(self, runtime: QueueRuntime, token: str) -> Outcome:
        lease = self.opened(runtime.route, token)
        if isinstance(lease, BabelgateError):
            runtime.calls.report_settled("ack", [lease], [lease])
            return lease
        try:
            return await runtime.acker.submit(lease)
        except BabelgateError as error:
            return error
        except Exception as error:
            return InternalError.caused_by(error)

    async def _ack(self, runtime: QueueRuntime, leases: Sequence[Lease]) -> Sequence[TokenOutcome]:
        return await _in_chunks(
            runtime.route,
            leases,
            lambda chunk: runtime.calls.timed("ack", runtime.lease_manager.ack(_handles(chunk)), len(chunk)),
        )

    async def _nack(self, runtime: QueueRuntime, nack: Nack, leases: Sequence[Lease]) -> Sequence[TokenOutcome]:
        """Release after the given delay or the queue's backoff; dead-letter at the ``max_attempts``-th failure. Give
        back the untried ones."""
        route = runtime.route
        if not nack.failed:
            return await _in_chunks(
                route,
                leases,
                lambda chunk: runtime.calls.timed("nack", runtime.lease_manager.give_back(_handles(chunk)), len(chunk)),
            )
        exhausted: list[int] = []
        by_delay: defaultdict[float, list[int]] = defaultdict(list)
        for position, lease in enumerate(leases):
            way, delay = way_of(route, lease, nack)
            (exhausted if way == "dead_letter" else by_delay[delay]).append(position)
        by_position: dict[int, TokenOutcome] = {}
        for delay, positions in by_delay.items():
            release = partial(_release, runtime, nack, delay)
            outcomes = await _in_chunks(route, [leases[position] for position in positions], release)
            by_position.update(zip(positions, outcomes, strict=True))
        if exhausted:
            dead_letter = partial(self._dead_letter, runtime, nack.error, nack.exception, 1)
            outcomes = await _in_chunks(route, [leases[position] for position in exhausted], dead_letter)
            by_position.update(
                (position, "dead_lettered" if outcome is None else outcome)
                for position, outcome in zip(exhausted, outcomes, strict=True)
            )
        return [by_position[position] for position in range(len(leases))]

    async def _reject(self, runtime: QueueRuntime, reject: Reject, leases: Sequence[Lease]) -> Sequence[TokenOutcome]:
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
                deliveries=lease.attempts + 1,
            )
            for lease in leases
        ]
        outcomes = await runtime.calls.timed("reject", runtime.lease_manager.dead_letter(letters), len(letters))
        done = [lease.facts for lease, outcome in zip(leases, outcomes, strict=True) if outcome is None]
        if done:
            event = Event("dead_lettered", route.queue, route.broker, len(done), reason="failed", messages=done)
            self._observe(event)
        return outcomes

    async def _extend(self, runtime: QueueRuntime, extend: Extend, leases: Sequence[Lease]) -> Sequence[TokenOutcome]:
        lease_seconds = runtime.route.lease_seconds(extend.lease_seconds)

        async def prolong(chunk: Sequence[Lease]) -> Sequence[TokenOutcome]:
            return await runtime.calls.timed(
                "extend", runtime.lease_manager.extend(_handles(chunk), lease_seconds), len(chunk)
            )

        return await _in_chunks(runtime.route, leases, prolong)


def check(route: Route, settlement: Settlement) -> None:
    """Raise InvalidParameter or UnsupportedByBroker for a delay or a lease duration that the broker cannot keep."""
    for nack in settlement.nacks:
        if nack.delay_seconds is not None:
            route.check_retry_delay(nack.delay_seconds)
    for extend in settlement.extends:
        route.lease_seconds(extend.lease_seconds)


def way_of(route: Route, lease: Lease, request: Nack | Reject | Extend | None) -> tuple[Way, float]:
    """What ``request`` (None: an ack) does to the lease, and the delay of a release in seconds."""
    match request:
        case None:
            return "ack", 0
        case Extend():
            return "extend", 0
        case Nack(failed=False):
            return "give_back", 0
        case Nack() if (attempts := lease.attempts + 1) < route.policy.max_attempts:
            delay = request.delay_seconds
            return "release", route.policy.backoff(attempts) if delay is None else delay
    return "dead_letter", 0


def _handles(leases: Sequence[Lease]) -> list[str]:
    return [lease.handle for lease in leases]


async def _release(
    runtime: QueueRuntime, nack: Nack, delay_seconds: float, leases: Sequence[Lease]
) -> Sequence[Outcome]:
    failed = [
        FailedDelivery(lease.handle, LastFailure(lease.attempts + 1, nack.error, nack.exception)) for lease in leases
    ]
    return await runtime.calls.timed("nack", runtime.lease_manager.release(failed, delay_seconds), len(failed))


async def _in_chunks(route: Route, leases: Sequence[Lease], call: End) -> list[TokenOutcome]:
    """Call ``call`` once per native batch; return all outcomes. The error of a call applies to its own batch.

    After a batch without an answer the remaining batches are not sent: each could take the whole time-out.
    """
    outcomes: list[TokenOutcome] = []
    for chunk in batches(leases, route.capabilities.max_batch):
        if outcomes and is_silence(outcomes[-1]):
            reason = "it did not answer for the tokens before this one, so this one was not sent"
            outcomes += [BrokerUnavailable(route.broker, reason)] * len(chunk)
            continue
        outcomes += await _each(chunk, call(chunk))
    return outcomes


def _leases(opened: Sequence[Lease | BabelgateError]) -> list[Lease]:
    return [lease for lease in opened if isinstance(lease, Lease)]


async def _each(opened: Sequence[object], call: Awaitable[Sequence[TokenOutcome]]) -> list[TokenOutcome]:
    """One outcome per item: the item's own error, else its outcome of ``call``, whose error applies to all others."""
    outcomes: Iterator[TokenOutcome]
    try:
        outcomes = iter(await call)
    except BabelgateError as error:
        outcomes = itertools.repeat(error)
    except Exception as error:
        outcomes = itertools.repeat(InternalError.caused_by(error))
    return [each if isinstance(each, BabelgateError) else next(outcomes) for each in opened]


def _result(index: int, action: Action, outcome: TokenOutcome) -> SettleResult:
    if isinstance(outcome, int):
        return SettleResult(index, action, None, outcome)
    if outcome == "dead_lettered":
        return SettleResult(index, action, dead_lettered=True)
    return SettleResult(index, action, outcome)
