"""Outages of brokers: a circuit breaker for each, and a few log lines per outage, however many calls fail.

A broker is lost when a call ends without its answer. It is back when it answers a ping and no call has failed for the
duration of a call's time-out, because by then every earlier call has ended.

A lost broker is pinged at once, and the circuit opens when the ping is not answered in the time of a call either. While
it is open, calls are refused before they are sent. The ping is the probe: the circuit closes with the first ping that
is answered in this time. Errors of one queue do not open it, because the broker answers pings.

A broker whose storage is full, or cannot be written, is not lost: it still serves calls that need no room. Its first
refusal is logged, then one line a minute, and the end, a minute after the last one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeGuard

from babelgate.brokers.batcher import Circuit
from babelgate.brokers.binding import Binding
from babelgate.errors import BrokerError, BrokerUnavailable, OutcomeUnknown
from babelgate.gateway.watched_writes import Refusal, watch_writes
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks, error_seen

PING_EVERY_SECONDS = 1.0
"""How often a lost broker is pinged that answers pings."""

PROBE_EVERY_SECONDS = 0.25
"""The pause between two pings while the circuit is open."""

REMIND_EVERY_SECONDS = 60.0
"""How often a continuing outage is logged."""

REFUSED_SECONDS = 60.0
"""How long after its last refusal the storage of a broker counts as full."""

log = get_logger(__name__)


def is_silence(outcome: object) -> TypeGuard[BrokerUnavailable | OutcomeUnknown]:
    """Whether the broker did not answer a call with this outcome: each further call could take the whole time-out."""
    return isinstance(outcome, BrokerUnavailable | OutcomeUnknown)


class _Outage:
    __slots__ = ("answers_since", "calls", "reminded_at", "since")

    def __init__(self, since: float) -> None:
        self.since = self.reminded_at = since
        self.calls = 0
        self.answers_since: float | None = None
        """Time of the first answered ping since the last failed call or ping."""


class _Refusals:
    """The calls that a broker has refused for its storage, from ``since`` to ``last``, and the last ``reason``."""

    __slots__ = ("calls", "last", "reason", "since")

    def __init__(self, since: float) -> None:
        self.since = self.last = since
        self.calls = 0
        self.reason = ""


class Outages:
    """The lost brokers of one process. ``clock``: seconds. ``refused_seconds``: see REFUSED_SECONDS."""

    def __init__(
        self,
        bindings: Mapping[str, Binding],
        clock: Callable[[], float] = time.monotonic,
        refused_seconds: float = REFUSED_SECONDS,
    ) -> None:
        self.circuits: dict[str, Circuit] = {broker: Circuit(broker) for broker in bindings}
        """Of each broker."""
        self._bindings = dict(bindings)
        self._clock = clock
        self._refused_seconds = refused_seconds
        self._lost: dict[str, _Outage] = {}
        self._refusing: dict[str, _Refusals] = {}
        self._watching: BackgroundTasks[None] = BackgroundTasks()
        self._closed = False
        self._left: dict[int, Outages] = {}
        """Of connections whose broker has another one now, by the binding's id."""
        self._main: Outages | None = None
        """Those that watch all brokers, if these watch such a connection."""
        for binding in bindings.values():
            watch_writes(binding, self.refused)

    def add(self, binding: Binding) -> None:
        """Watch a broker that a reload of the configuration has added."""
        self._bindings[binding.name] = binding
        self.circuits.setdefault(binding.name, Circuit(binding.name))
        watch_writes(binding, self.refused)

    def replace(self, binding: Binding) -> None:
        """Watch ``binding`` instead of another one of its name, which is watched on its own from now on, with its
        circuit. One that was replaced itself is taken back."""
        name = binding.name
        left = self._left[id(self._bindings[name])] = Outages({}, self._clock, self._refused_seconds)
        left._main = self
        left._take(self._bindings[name], self.circuits[name], self._lost.pop(name, None))
        own = self._left.pop(id(binding), None)
        if own is None:
            self._take(binding, Circuit(name), None)
            watch_writes(binding, self.refused)
        else:
            self._take(binding, own.circuits[name], own._lost.pop(name, None))

    def forget(self, binding: Binding) -> None:
        """Watch a connection no more that was replaced: it is closed."""
        if (left := self._left.pop(id(binding), None)) is not None:
            left._closed = True
            for task in left._watching:
                task.cancel()

    def of(self, binding: Binding) -> Outages:
        """Those that watch ``binding``."""
        main = self._main or self
        return main._left.get(id(binding), main) if main._left else main

    def _take(self, binding: Binding, circuit: Circuit, outage: _Outage | None) -> None:
        name = binding.name
        self._bindings[name], self.circuits[name] = binding, circuit
        if outage is not None:
            self.lost(name, BrokerUnavailable(name, circuit.reason))

    @property
    def _facts(self) -> Mapping[str, bool]:
        return {} if self._main is None else {"is_replaced": True}

    def call_ended(self, broker: str, outcome: object) -> None:
        """Record the ``outcome`` of a call to ``broker``. OutcomeUnknown means that it is lost, and BrokerUnavailable
        does unless the broker has answered."""
        if not isinstance(outcome, BrokerError):
            return
        if outcome.broker in self.circuits:
            # A call for a queue may have parked messages on another broker.
            broker = outcome.broker
        elif self._main is not None and outcome.broker in self._main.circuits:
            self._main.call_ended(outcome.broker, outcome)
            return
        if isinstance(outcome, OutcomeUnknown) or (isinstance(outcome, BrokerUnavailable) and not outcome.answered):
            self.lost(broker, outcome)
            if (outage := self._lost.get(broker)) is not None:
                outage.calls += 1

    def storage(self, broker: str) -> str | None:
        """Why the storage of ``broker`` has refused a call within the last minute; None if it has not."""
        refusals = self._refusing.get(broker)
        return None if refusals is None else refusals.reason

    def lost(self, broker: str, error: BrokerError) -> None:
        """Record that ``broker`` is lost, without counting a failed call."""
        outage = self._lost.get(broker)
        if outage is None:
            if self._closed:
                return
            outage = self._lost[broker] = _Outage(self._clock())
            log.warning("broker lost", broker=broker, reason=error.reason, **self._facts)
            self._watching.start(self._watch(broker))
        self.circuits[broker].reason = error.reason
        outage.answers_since = None

    def refused(self, error: Refusal) -> None:
        """Record that the storage of the broker of ``error`` has refused a call."""
        refusals = self._refusing.get(error.broker)
        if refusals is None:
            if self._closed:
                return
            refusals = self._refusing[error.broker] = _Refusals(self._clock())
            log.warning("storage refuses", broker=error.broker, code=error.problem_code, reason=error.reason)
            self._watching.start(self._watch_storage(error.broker, refusals))
        refusals.last, refusals.reason = self._clock(), error.detail
        refusals.calls += 1

    async def check(self, broker: str) -> bool:
        """Ping a lost broker, and open or close its circuit; return whether it is back."""
        outage, binding, circuit = self._lost.get(broker), self._bindings[broker], self.circuits[broker]
        if outage is None:
            return True
        ping = asyncio.ensure_future(binding.ping())
        ping.add_done_callback(error_seen)
        try:
            in_time, _ = await asyncio.wait((ping,), timeout=binding.timeout_seconds)
            if not in_time:
                circuit.is_open = True
                outage.answers_since = None
            await ping
        except Exception as error:
            outage.answers_since = None
            circuit.is_open = True
            circuit.reason = getattr(error, "reason", type(error).__name__)
        else:
            if in_time:
                circuit.is_open = False
                outage.answers_since = self._clock() if outage.answers_since is None else outage.answers_since
        finally:
            ping.cancel()
        now, answers_since = self._clock(), outage.answers_since
        if answers_since is not None and now - answers_since >= binding.timeout_seconds:
            if self._lost.get(broker) is outage:
                del self._lost[broker]
                seconds = round(answers_since - outage.since, 1)
                log.info("broker back", broker=broker, seconds=seconds, failed_calls=outage.calls, **self._facts)
            return True
        # A connection that was replaced may lead to no server, and the broker is well.
        if self._main is None and now - outage.reminded_at >= REMIND_EVERY_SECONDS:
            outage.reminded_at = now
            seconds = round(now - outage.since, 1)
            log.warning(
                "broker still lost", broker=broker, seconds=seconds, failed_calls=outage.calls, reason=circuit.reason
            )
        return False

    async def close(self) -> None:
        """Stop watching; idempotent."""
        self._closed = True
        await asyncio.gather(self._watching.cancel(), *(each.close() for each in self._left.values()))

    async def _watch_storage(self, broker: str, refusals: _Refusals) -> None:
        while (left := refusals.last + self._refused_seconds - self._clock()) > 0:
            await asyncio.sleep(left)
            if refusals.last + self._refused_seconds > self._clock():
                log.warning(
                    "storage still refuses", broker=broker, refused_calls=refusals.calls, reason=refusals.reason
                )
        del self._refusing[broker]
        seconds = round(refusals.last - refusals.since, 1)
        log.info("storage refuses no more", broker=broker, seconds=seconds, refused_calls=refusals.calls)

    async def _watch(self, broker: str) -> None:
        while True:
            if await self.check(broker):
                return
            await asyncio.sleep(PROBE_EVERY_SECONDS if self.circuits[broker].is_open else PING_EVERY_SECONDS)
