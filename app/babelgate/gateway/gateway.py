"""The gateway: one object with all operations on queues, whatever their brokers.

A message takes these steps:

- publish: :mod:`babelgate.gateway.publish` reads the body. The queue's batcher (:mod:`babelgate.gateway.queue_runtime`)
  sends the message to the broker together with others. The receipt is returned once the broker has confirmed.
- receive: :mod:`babelgate.gateway.receive` reserves deliveries, inspects them, and seals their ack tokens.
- settle: :mod:`babelgate.gateway.forwarding` sends each token to the replica that must settle it. There
  :mod:`babelgate.gateway.settle` opens the tokens and ends the leases through the queue's lease manager
  (:mod:`babelgate.leases`).
- redrive: :mod:`babelgate.gateway.redrive` publishes dead letters again and removes them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from babelgate.brokers.binding import Binding, Outcome, Peeked
from babelgate.brokers.errors import failure_for_each
from babelgate.clock import Clock, now_ms
from babelgate.envelope import Limits
from babelgate.errors import BabelgateError, BrokerError, Overloaded
from babelgate.gateway.access import ACCESS_BYTES, ACCESSES_BYTES, Access
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.admission import Admission
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.counted_leases import CountedLeases, LeaseHolder
from babelgate.gateway.dead_letter_operations import DeadLetterOperations
from babelgate.gateway.deliver import Deliverer
from babelgate.gateway.former_queues import FormerQueues
from babelgate.gateway.forwarding import Forwarder, Forwarding, NoPeers
from babelgate.gateway.history import History
from babelgate.gateway.idempotency import KeyPolicy, KeyStores
from babelgate.gateway.inspection import as_consumed
from babelgate.gateway.maintenance import Maintenance
from babelgate.gateway.model import Message, Projection, Receipt, Settlement, SettleResult
from babelgate.gateway.outages import Outages
from babelgate.gateway.overview import Overview, count_purge, noted_purge, peek
from babelgate.gateway.parking import Mover
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.publish import Begun, Publisher
from babelgate.gateway.queue_list import QueueList
from babelgate.gateway.queue_runtime import QueueRuntime, Shared
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.rates import Rates
from babelgate.gateway.receive import Receiver, Waiter
from babelgate.gateway.recent_counts import RecentCounts
from babelgate.gateway.routing import Router
from babelgate.gateway.runtimes import QueueRuntimes
from babelgate.gateway.schema_checks import SchemaChecks
from babelgate.gateway.settle import Settler
from babelgate.gateway.spans import receiving, settling
from babelgate.leases.table import BrokerUsage
from babelgate.observe.events import Observe
from babelgate.observe.rates import RateCounters
from babelgate.observe.tracing.trace import Trace, Tracing
from babelgate.runtime.cache import Cache


class Gateway:
    """The operations on queues over all bindings. Each takes a Caller and first checks its right (raises Forbidden).

    ``queue`` is the name of the queue, or the caller's Access to it. A request that calls :meth:`access` before it
    reads its body passes the Access on, so that its right and its route are looked up once.
    """

    def __init__(
        self,
        bindings: Mapping[str, Binding],
        router: Router,
        sealer: TokenSealer,
        *,
        required: frozenset[str] = frozenset(),
        urls: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        clock: Clock = now_ms,
        observe: Observe = lambda event: None,
        admission: Admission | None = None,
        forwarder: Forwarder | None = None,
        tracing: Tracing | None = None,
        idempotency: KeyPolicy | None = None,
        capacity: Callable[[], Awaitable[None]] | None = None,
        jobs_directory: Path | None = None,
        counters: RateCounters | None = None,
        history: History | None = None,
        pauses: Pauses | None = None,
        rate_limits: RateLimits | None = None,
    ) -> None:
        """``urls``: each broker's URL without secrets, for operators; ``required``: brokers that readiness depends on.
        ``forwarder``: settles at the gateways that share the brokers. ``capacity``: awaited before each operation until
        the journal has room; raises Overloaded. ``jobs_directory``: keeps the records of redrive jobs. ``counters``: an
        observer, whose figures :attr:`rates` shows. ``history``: the reader of the journals.
        """
        bindings = self.bindings = dict(bindings)
        self.router = router
        self.keys = KeyStores(bindings, idempotency or KeyPolicy())
        self.outages = Outages(bindings)
        self.limits = limits or Limits()
        self.clock = clock
        self.observe = observe
        self.tracing = tracing or Tracing()
        self.admission = admission or Admission()
        self.rate_limits = rate_limits
        self.started = self.draining = False
        self._sealer, self._capacity = sealer, capacity
        self.incarnation = os.urandom(8).hex()
        """Identifies this process to its peers and in its tokens; random at each start."""
        self._deliverer = Deliverer(sealer, self.incarnation, observe)
        counted = self.counted = CountedLeases(clock, self._deliverer.sticky, rate_limits)
        self.schema_checks = SchemaChecks(observe)
        self._publisher = Publisher(self.limits, clock, self.schema_checks)
        settler, others = Settler(sealer, clock, observe), forwarder or NoPeers()
        self._forwarding = Forwarding(settler, sealer, self.incarnation, others, observe, clock, counted)
        self.broker_usage = {name: BrokerUsage() for name in bindings}
        """The leases that this process keeps, per broker."""
        pauses = self.pauses = pauses or Pauses(clock, check_route=router.route)
        parts = self.keys, self.outages, self._deliverer, self.admission, pauses, self.schema_checks, counted
        shared = Shared(self.limits, clock, observe, *parts)
        self.queue_runtimes = QueueRuntimes(lambda route: QueueRuntime(route, self.broker_usage[route.broker], shared))
        """The runtimes of the queues that this process has used."""
        self.streams, runtimes, outages, keys = shared.streams, self.queue_runtimes, self.outages, self.keys
        self.overview = Overview(router, bindings, required, urls or {}, keys, runtimes, outages, pauses)
        self.accesses: Cache[tuple[Caller, Right, str], Access] = Cache(ACCESSES_BYTES, ACCESS_BYTES)
        self.history = history or History()
        self.maintenance = Maintenance(self.overview.retaining_routes, clock, self.keys.sweep, self.overview.routes_to)
        self.mover = Mover(router, bindings, runtimes, pauses)
        self.former = self._forwarding.former = FormerQueues(runtimes, sealer, pauses, self.limits)
        counters, counts = counters or RateCounters(clock), RecentCounts(outages)
        self.rates = Rates(counters, clock, router, self.overview, outages, self.maintenance, counts)
        self.queue_list = QueueList(router, bindings, runtimes.queues, self.rates, counts, pauses)
        common = self.limits, clock, observe, self.tracing, jobs_directory
        self.letters = DeadLetterOperations(lambda queue: self.queue_runtimes.of(router.route(queue)), *common)

    async def start(self) -> None:
        """Open all bindings and start maintenance. A broker that is down does not fail the start.

        Raises ConfigError when a broker refuses its configuration.
        """
        results = await asyncio.gather(*(binding.open() for binding in self.bindings.values()), return_exceptions=True)
        for binding, result in zip(self.bindings.values(), results, strict=True):
            if isinstance(result, BrokerError):
                self.outages.lost(binding.name, result)
                self.maintenance.reopen(binding)
            elif result is not None:
                raise result
            else:
                self.maintenance.warn(binding)
        self.maintenance.start()
        self.mover.start()
        self.started = True

    async def drain(self) -> None:
        """End all waiting receives and fail readiness; idempotent."""
        self.draining = True
        self.letters.jobs.drain()
        self.streams.drain()
        self.queue_runtimes.stop_receives()

    async def close(self) -> None:
        """Finish all operations in flight, then close all bindings; idempotent."""
        await self.drain()
        limits = (self.counted,) if self.rate_limits is None else (self.counted, self.rate_limits)
        parts = (self.outages, self.letters.jobs, self.queue_list, self.streams, self.mover, self.former, *limits)
        await asyncio.gather(self.maintenance.stop(), *(part.close() for part in parts))
        await asyncio.gather(*(runtime.close() for runtime in self.queue_runtimes))
        await self.keys.close()
        bindings = [*self.bindings.values(), *self.former.open_bindings]
        await asyncio.gather(*(binding.close() for binding in bindings), return_exceptions=True)

    def access(self, caller: Caller, right: Right, queue: str | Access) -> Access:
        """Check ``right`` on ``queue`` and find the route. An Access of this caller with this right is returned as is.

        Raises Forbidden, InvalidParameter, QueueNotFound.
        """
        if isinstance(queue, Access):
            if queue.caller is caller and queue.right is right:
                return queue
            queue = queue.route.queue
        found = self.accesses.get((caller, right, queue))
        if found is None:
            caller.require(right, queue)
            found = Access(caller, right, self.router.route(queue))
            self.accesses.keep((caller, right, queue), found)
        return found

    def has_backlog(self, queue: str) -> bool:
        """Whether a publish to ``queue`` would wait too long for its batch."""
        runtime = self.queue_runtimes.get(queue)
        return runtime is not None and runtime.has_backlog

    async def publish(
        self,
        caller: Caller,
        queue: str | Access,
        body: bytes,
        *,
        delay_seconds: float | None = None,
        ordering_key: str | None = None,
        trace: Trace | None = None,
        idempotency_key: str | None = None,
        sent: bytes | None = None,
        broker_properties: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """Publish one envelope, draft or entry; return once the broker has durably accepted it.

        ``delay_seconds``, ``ordering_key``, ``idempotency_key``, ``broker_properties`` (JSON values by their names) and
        further ``options`` by name must be those of the body, if it has any.
        ``trace``, here and below: the trace of the request. With an idempotency key the message is published once;
        later calls return a Replay. ``sent``: the bytes that the client sent, if ``body`` was converted from them.
        """
        runtime = self._runtime(caller, Right.SEND, queue)
        if self.rate_limits is not None and (quota := self.rate_limits.of(caller, runtime.route)) is not None:
            await quota.publish(len(body if sent is None else sent))
        if self._capacity is not None:
            await self._capacity()
        asked = delay_seconds, ordering_key, trace, idempotency_key, sent, broker_properties, options
        return await self._publisher.publish(runtime, caller, body, *asked)

    def begin_publish(self, access: Access, body: bytes) -> Begun | bytes:
        """Begin to publish an ordinary body, without options, in one step: its receipt, and the future of its outcome.
        It counts for no rate: whoever calls this counts it.

        Returns the body with which :meth:`publish` must be called instead, when it is another one, has to be traced, or
        may have to wait for the journal. Raises what publish raises.
        """
        if self._capacity is not None:
            return body
        return self._publisher.begin(self._runtime(access.caller, Right.SEND, access), body, self.tracing)

    async def publish_many(
        self, caller: Caller, queue: str | Access, bodies: Sequence[bytes], trace: Trace | None = None
    ) -> list[Receipt | BabelgateError]:
        """Publish each in order; one result per body. Raises only Forbidden, QueueNotFound, InvalidParameter."""
        runtime = self._runtime(caller, Right.SEND, queue)
        if self._capacity is not None:
            try:
                await self._capacity()
            except Overloaded as overload:
                return failure_for_each(overload, len(bodies))
        if self.rate_limits is None or (quota := self.rate_limits.of(caller, runtime.route)) is None:
            return await self._publisher.publish_many(runtime, caller, bodies, trace)
        errors = await quota.publish_many(bodies)
        taken = [body for body, error in zip(bodies, errors, strict=True) if error is None]
        published = iter(await self._publisher.publish_many(runtime, caller, taken, trace) if taken else ())
        return [next(published) if error is None else error for error in errors]

    async def validate(
        self,
        caller: Caller,
        queue: str | Access,
        body: bytes,
        *,
        delay_seconds: float | None = None,
        ordering_key: str | None = None,
        trace: Trace | None = None,
        broker_properties: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Projection:
        """The message that publish would write; writes nothing. Its trace context is the request's: no span is made."""
        runtime = self._runtime(caller, Right.SEND, queue)
        asked = delay_seconds, ordering_key, trace, broker_properties, options
        return await self._publisher.project(runtime, caller.name, body, *asked)

    async def inspect(self, caller: Caller, queue: str, body: bytes) -> Projection:
        """What a consumer of ``queue`` would read: see :func:`babelgate.gateway.inspection.as_consumed`."""
        route = self._runtime(caller, Right.LISTEN, queue).route
        return await as_consumed(route, body, self.limits, self.schema_checks)

    async def receive(
        self,
        caller: Caller,
        queue: str | Access,
        *,
        max_messages: int = 1,
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
        trace: Trace | None = None,
    ) -> list[Message]:
        """Up to ``max_messages`` as soon as there is one; an empty list after ``wait_seconds``.

        ``lease_seconds`` None: the queue's policy. When this call is cancelled, deliveries reserved for it are returned
        to the broker.
        """
        runtime, seconds, holder = self._receiving(caller, queue, lease_seconds)
        has_waited = holder is not None and await holder.know()
        if self._capacity is not None:
            await self._capacity()
            has_waited = True
        if has_waited:
            # Meanwhile the right may have been taken away, and the queue may have another runtime: leases must be kept
            # where the next settle looks for them.
            runtime, seconds, holder = self._receiving(caller, runtime.route.queue, lease_seconds)
        receive = runtime.receiver.receive(max_messages, wait_seconds, seconds, caller, holder)
        if trace is None:
            return await receive
        with receiving(trace, runtime.route) as span:
            messages = await receive
            span.concerned([each.lease for each in messages])
        return messages

    def begin_receive(
        self, access: Access, max_messages: int, wait_seconds: float, lease_seconds: float | None
    ) -> tuple[Receiver, Waiter] | None:
        """Begin to receive, in one step. Raises what receive raises.

        Returns None when :meth:`receive` must be called: it has to be traced, or may have to wait for the journal.
        """
        if self._capacity is not None or self.tracing.sampling.bound:
            return None
        runtime, lease_seconds, holder = self._receiving(access.caller, access, lease_seconds)
        receiver = runtime.receiver
        return receiver, receiver.begin(max_messages, wait_seconds, lease_seconds, access.caller, holder)

    def _receiving(
        self, caller: Caller, queue: str | Access, lease_seconds: float | None
    ) -> tuple[QueueRuntime, float, LeaseHolder | None]:
        """The runtime of a queue that may be received from now, the duration of the leases, and who holds them."""
        runtime = self._runtime(caller, Right.LISTEN, queue)
        lease_seconds = runtime.route.lease_seconds(lease_seconds)
        usage = self.broker_usage[runtime.route.broker]
        self.admission.check_handing_out(runtime.route.broker, usage.count, usage.size)
        if runtime.circuit.is_open:
            raise runtime.circuit.refusal()
        return runtime, lease_seconds, None if self.rate_limits is None else self.counted.holder(caller, runtime.route)

    async def give_back(self, queue: str, messages: Sequence[Message]) -> None:
        """Return messages that could not be delivered to their client: available at once, uncounted. Never raises."""
        await self.former.give_back(queue, [each.lease for each in messages], self.router)

    async def settle(
        self, caller: Caller, queue: str | Access, settlement: Settlement, trace: Trace | None = None
    ) -> list[SettleResult]:
        """Acks, then nacks, rejects and extends: one result per token, in order."""
        runtime = self._runtime(caller, Right.LISTEN, queue)
        if self._capacity is not None:
            await self._capacity()
        if trace is None:
            return await self._forwarding.settle(runtime, settlement)
        with settling(trace, runtime.route, settlement, self._sealer) as span:
            results = await self._forwarding.settle(runtime, settlement, span.traceparent)
            span.ended(result.error for result in results)
        return results

    def begin_ack(self, access: Access, token: str) -> asyncio.Future[Outcome] | None:
        """Begin to ack one message in one step: the future of its outcome.

        Returns None when :meth:`settle` must be called instead: the ack may be another replica's, has to be traced, may
        have to wait for the journal, or is refused.
        """
        if self._capacity is not None or self.tracing.sampling.bound:
            return None
        return self._forwarding.begin_ack(self._runtime(access.caller, Right.LISTEN, access), token)

    async def settle_here(
        self, queue: str, settlement: Settlement, traceparent: str | None = None
    ) -> list[SettleResult]:
        """Settle for a peer, which has checked the right. ``traceparent``: its span. LeaseLost: of another process."""
        runtime = self.queue_runtimes.of(self.router.route(queue))
        with settling(self.tracing.of_peer(traceparent), runtime.route, settlement, self._sealer) as span:
            results = await self._forwarding.settle_here(runtime, settlement)
            span.ended(result.error for result in results)
        return results

    async def peek(self, caller: Caller, queue: str, limit: int) -> Sequence[Peeked]:
        """Ready messages, oldest first, without reserving: at most PAGE_BYTES. Raises UnsupportedByBroker."""
        return await peek(self._runtime(caller, Right.OBSERVE, queue).route, limit)

    async def purge(self, caller: Caller, queue: str, *, dry_run: bool = False) -> int:
        """Remove ready, delayed and parked messages; the number removed. With ``dry_run``, the number that would be.

        Raises UnsupportedByBroker, for a dry run also where the broker cannot count these messages.
        """
        route = self._runtime(caller, Right.MANAGE, queue).route
        purging = count_purge(route, route.capabilities.purge_counts) if dry_run else route.purge()
        return noted_purge(await purging, dry_run)

    def _runtime(self, caller: Caller, right: Right, queue: str | Access) -> QueueRuntime:
        if type(queue) is not Access or queue.caller is not caller or queue.right is not right:
            queue = self.access(caller, right, queue)
        route = queue.route
        runtime = self.queue_runtimes.get(route.queue)
        if runtime is not None and runtime.route is route:
            runtime.used = True
            return runtime
        return self.queue_runtimes.of(route)
