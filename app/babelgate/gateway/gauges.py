"""Reads the gauges: of this process, and of the brokers with a bounded number of queries."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from babelgate import __version__
from babelgate.brokers.binding import Binding, Lists, QueueStats, Reinjects
from babelgate.errors import BabelgateError, BrokerError
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.loaded import LOAD_OUTCOMES
from babelgate.gateway.outages import Outages
from babelgate.gateway.overview import routes_of
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.rate_limits import LIMITS
from babelgate.gateway.routing import Route
from babelgate.observe.audit.trail import Audit
from babelgate.observe.journal.writer import Journal
from babelgate.observe.logs import get_logger
from babelgate.observe.metrics import process
from babelgate.observe.metrics.catalogue import (
    AUDIT_ERRORS,
    AUDIT_LEFT_OUT,
    AUDIT_LOST,
    AUDIT_PENDING,
    AUDIT_RECORDS,
    BROKER_UP,
    BROKER_WARNINGS,
    BUILD_INFO,
    CERTIFICATE_EXPIRES,
    CONFIG_LOADED,
    CONFIG_REFUSED,
    CONFIG_RELOADS,
    COUNTED_LEASES,
    DEAD_LETTERS,
    FOREIGN,
    ISSUER_FAILURES,
    JOURNAL_BUFFER,
    JOURNAL_DROPPED,
    JOURNAL_ERRORS,
    JOURNAL_RECORDS,
    JOURNAL_SEGMENTS,
    LEASES_IN_FLIGHT,
    OLDEST_AGE,
    OPEN_CIRCUITS,
    OPEN_PUSH_CIRCUITS,
    OPEN_STREAMS,
    PUBLISH_INFLIGHT,
    QUEUE_DELAYED,
    QUEUE_DEPTH,
    QUEUE_PAUSED,
    RATE_LIMITED,
    RATES_ALONE,
    RECEIVE_WAITERS,
    REINJECTED,
    SCHEMA_FAILURES,
    SPAN_LOSSES,
    SPANS_DROPPED,
    STORAGE_REFUSALS,
    Metric,
)
from babelgate.observe.metrics.instruments import Labels, Snapshot, Value
from babelgate.observe.metrics.recorder import Metrics
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks

READ_SECONDS = 2.0
"""Time-out for the answers of the brokers to one reading."""
FRESH_SECONDS = 1.0
"""How long a reading is reused."""
KEPT_SECONDS = 60.0
"""How long the last counts of a queue are shown when there was no time to read them again."""
AT_ONCE = 4
"""Maximum number of concurrent queries to one broker."""
_LIST_SECONDS = 60.0

_COUNTS: Sequence[tuple[Metric, str]] = (
    (QUEUE_DEPTH, "depth"),
    (QUEUE_DELAYED, "delayed"),
    (DEAD_LETTERS, "dead"),
    (OLDEST_AGE, "oldest_age_seconds"),
    (FOREIGN, "foreign"),
    (LEASES_IN_FLIGHT, "in_flight"),
)

log = get_logger(__name__)


class Gauges:
    """The gauges of the queues that ``metrics`` has a label for; their number is bounded."""

    def __init__(
        self,
        gateway: Gateway,
        metrics: Metrics,
        read_seconds: float = READ_SECONDS,
        journal: Journal | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._audit = audit
        self._metrics = metrics
        self._read_seconds = read_seconds
        self._by_name: dict[str, _Broker] = {}
        self._reading: asyncio.Task[Snapshot] | None = None
        self._read_at = 0.0

    @property
    def _brokers(self) -> list[_Broker]:
        """Those of the gateway now: a reload of the configuration adds and removes brokers."""
        bindings, known = self._gateway.bindings, self._by_name
        for name, binding in bindings.items():
            if name not in known or known[name].binding is not binding:
                known[name] = _Broker(binding, self._gateway.outages)
        return [known[name] for name in bindings]

    async def of_process(self) -> Snapshot:
        """The gauges of this process, and the counters that its parts keep; no I/O."""
        leases: dict[Labels, float] = {}
        waiters: dict[Labels, float] = {}

        def read(runtime: QueueRuntime) -> None:
            labels = (self._metrics.register(runtime.route.queue, runtime.route.broker), runtime.route.broker)
            waiters[labels] = waiters.get(labels, 0.0) + runtime.waiters
            if (held := runtime.held) is not None:
                leases[labels] = leases.get(labels, 0.0) + held

        await turns.in_background(map(read, list(self._gateway.queue_runtimes)))
        publishes: dict[Labels, Value] = {
            (name,): float(self._gateway.admission.publishing(name)) for name in self._gateway.bindings
        }
        circuits: dict[Labels, Value] = {
            (name,): float(circuit.is_open) for name, circuit in self._gateway.outages.circuits.items()
        }
        return {
            LEASES_IN_FLIGHT.otel: dict(leases),
            RECEIVE_WAITERS.otel: dict(waiters),
            OPEN_STREAMS.otel: self._streams(),
            OPEN_PUSH_CIRCUITS.otel: self._pushes(),
            ISSUER_FAILURES.otel: {
                (issuer,): float(state.failure is not None)
                for issuer, state in self._gateway.overview.issuers().items()
            },
            SCHEMA_FAILURES.otel: {(): float(self._gateway.schema_checks.refresh_failure is not None)},
            PUBLISH_INFLIGHT.otel: publishes,
            OPEN_CIRCUITS.otel: circuits,
            STORAGE_REFUSALS.otel: {
                (name,): float(self._gateway.outages.storage(name) is not None) for name in self._gateway.bindings
            },
            REINJECTED.otel: {
                (name,): float(binding.reinjected) if isinstance(binding, Reinjects) else 0.0
                for name, binding in self._gateway.bindings.items()
            },
            **self._of_rate_limits(),
            **self._of_configuration(),
            **self._of_journal(),
            **self._of_audit(),
            **self._of_tracing(),
        }

    async def of_brokers(self) -> Snapshot:
        """The gauges of the brokers, without values that were not available within 2 s. Never raises."""
        if self._reading is None or (self._reading.done() and time.monotonic() - self._read_at > FRESH_SECONDS):
            self._reading = asyncio.get_running_loop().create_task(self._read())
        return await asyncio.shield(self._reading)

    async def close(self) -> None:
        """Stop all queries; idempotent."""
        await asyncio.gather(*(broker.close() for broker in self._by_name.values()))

    def _of_configuration(self) -> Snapshot:
        loaded = self._gateway.overview.loaded
        if loaded is None:
            return {}
        return {
            CONFIG_RELOADS.otel: {(outcome,): float(loaded.counts[outcome]) for outcome in LOAD_OUTCOMES},
            CONFIG_REFUSED.otel: {(): float(loaded.refusal is not None)},
        }

    def _of_rate_limits(self) -> Snapshot:
        limits = self._gateway.rate_limits
        if limits is None:
            return {}
        found: Snapshot = {RATE_LIMITED.otel: {(name,): float(limits.refused[name]) for name in LIMITS}}
        if limits.counts_leases:
            found[COUNTED_LEASES.otel] = {(): float(len(self._gateway.counted.held))}
        return found if limits.shared is None else found | {RATES_ALONE.otel: {(): float(limits.shared.is_alone)}}

    def _of_journal(self) -> Snapshot:
        if self._journal is None:
            return {}
        stats = self._journal.stats()
        values = {
            JOURNAL_RECORDS: stats.records,
            JOURNAL_DROPPED: stats.dropped,
            JOURNAL_BUFFER: stats.buffer_bytes,
            JOURNAL_SEGMENTS: stats.segments,
            JOURNAL_ERRORS: stats.errors,
        }
        return {metric.otel: {(): float(value)} for metric, value in values.items()}

    def _of_audit(self) -> Snapshot:
        if self._audit is None:
            return {}
        stats = self._audit.stats()
        values = {
            AUDIT_RECORDS: stats.records,
            AUDIT_PENDING: stats.pending,
            AUDIT_ERRORS: stats.errors,
            AUDIT_LOST: stats.lost,
            AUDIT_LEFT_OUT: stats.left_out,
        }
        return {metric.otel: {(): float(value)} for metric, value in values.items()}

    def _streams(self) -> dict[Labels, Value]:
        streams: dict[Labels, float] = {}
        for (queue, broker), count in self._gateway.streams.counts.items():
            labels = self._metrics.register(queue, broker), broker
            streams[labels] = streams.get(labels, 0.0) + count
        return dict(streams)

    def _pushes(self) -> dict[Labels, Value]:
        """Of each queue that is pushed, so that the series is there before the circuit opens."""
        circuits: dict[Labels, float] = {}
        pushed = self._gateway.overview.pushes.circuits()
        for route in routes_of(self._gateway.router, pushed):
            labels = self._metrics.register(route.queue, route.broker), route.broker
            circuits[labels] = circuits.get(labels, 0.0) + (pushed[route.queue] is not None)
        return dict(circuits)

    def _of_tracing(self) -> Snapshot:
        recorder = self._gateway.tracing.recorder
        dropped = {} if recorder is None else recorder.dropped
        return {SPANS_DROPPED.otel: {(reason,): float(dropped.get(reason, 0)) for reason in SPAN_LOSSES}}

    async def _read(self) -> Snapshot:
        routes = self._routes()
        readings = (broker.read(routes.get(broker.name, ()), self._read_seconds) for broker in self._brokers)
        await asyncio.gather(*readings)
        snapshot: Snapshot = {metric.otel: {} for metric, _ in _COUNTS}
        for broker in self._brokers:
            await turns.mapped(partial(self._know, broker), broker.listed)
            for queue, stats in broker.counts().items():
                labels = self._metrics.label(queue), broker.name
                for metric, field in _COUNTS:
                    value = getattr(stats, field)
                    if value is not None:
                        snapshot[metric.otel][labels] = float(value)
        snapshot[BROKER_UP.otel] = {(broker.name,): float(broker.up) for broker in self._brokers}
        snapshot[BROKER_WARNINGS.otel] = {
            (name,): float(len(each))
            for name, each in self._gateway.maintenance.warnings.items()
            if name in self._gateway.bindings
        }
        snapshot[QUEUE_PAUSED.otel] = self._paused()
        snapshot[BUILD_INFO.otel] = {(__version__,): 1.0}
        if (ends_at := self._gateway.overview.certificate_ends_at()) is not None:
            snapshot[CERTIFICATE_EXPIRES.otel] = {(): ends_at}
        if (loaded := self._gateway.overview.loaded) is not None:
            snapshot[CONFIG_LOADED.otel] = {(): loaded.loaded_at / 1000}
        snapshot |= await asyncio.to_thread(process.of_gateway)
        self._read_at = time.monotonic()
        return snapshot

    def _paused(self) -> dict[Labels, Value]:
        paused: dict[Labels, float] = {}
        for pause in self._gateway.pauses.in_force():
            broker = self._gateway.router.route(pause.queue).broker
            labels = (self._metrics.register(pause.queue, broker), broker)
            # Queues without a label of their own share one.
            paused[labels] = paused.get(labels, 0.0) + 1.0
        return dict(paused)

    def _know(self, broker: _Broker, native_name: str) -> None:
        queue = self._gateway.router.queue_of(broker.binding, native_name)
        if queue is not None:
            self._metrics.register(queue, broker.name)

    def _routes(self) -> Mapping[str, Sequence[Route]]:
        routes: dict[str, list[Route]] = {}
        for route in routes_of(self._gateway.router, self._metrics.queues):
            routes.setdefault(route.broker, []).append(route)
        return routes


class _Broker:
    """Queries one broker. Queries are not cancelled: an unanswered query takes the place of later ones."""

    def __init__(self, binding: Binding, outages: Outages) -> None:
        self.binding = binding
        self._outages = outages
        self.name = binding.name
        self.up = False
        self.listed: Sequence[str] = ()
        self._listed_at = -_LIST_SECONDS
        self._stats: dict[str, tuple[float, QueueStats]] = {}
        self._queried_at: dict[str, float] = {}
        self._in_progress: set[str] = set()
        self._waiting: deque[Route] = deque()
        self._ping: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._queries: BackgroundTasks[None] = BackgroundTasks()

    def counts(self) -> Mapping[str, QueueStats]:
        """The last counts of its queues; empty while the broker is down."""
        if not self.up:
            return {}
        oldest = time.monotonic() - KEPT_SECONDS
        return {queue: stats for queue, (at, stats) in self._stats.items() if at > oldest}

    async def read(self, routes: Sequence[Route], seconds: float) -> None:
        """Ping the broker and read the counts of ``routes``, least recently read first; takes at most ``seconds``."""
        loop = asyncio.get_running_loop()
        if self._ping is None:
            self._ping = loop.create_task(self._check_up())
        if isinstance(self.binding, Lists) and not self.binding.lists_foreign and self._listing is None:
            self._listing = loop.create_task(self._list(self.binding))
        waiting = [route for route in routes if route.queue not in self._in_progress]
        self._waiting.extend(sorted(waiting, key=lambda route: self._queried_at.get(route.queue, 0.0)))
        for _ in range(min(AT_ONCE - len(self._queries), len(waiting))):
            self._queries.start(self._query())
        ping = self._ping
        await asyncio.wait(
            {ping, *self._queries, *([self._listing] if self._listing is not None else [])}, timeout=seconds
        )
        self._waiting.clear()
        if not ping.done():
            self.up = False

    async def close(self) -> None:
        """Stop all queries."""
        tasks = [task for task in (*self._queries, self._ping, self._listing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _check_up(self) -> None:
        try:
            await self.binding.ping()
            self.up = True
        except BrokerError as error:
            self.up = False
            self._outages.lost(self.name, error)
        except Exception:
            self.up = False
            log.exception("broker not pinged", broker=self.name)
        finally:
            self._ping = None

    async def _list(self, binding: Lists) -> None:
        try:
            if time.monotonic() - self._listed_at >= _LIST_SECONDS:
                self.listed = await binding.queues()
                self._listed_at = time.monotonic()
        except BabelgateError:
            return
        except Exception:
            log.exception("queues of a broker not listed", broker=self.name)
        finally:
            self._listing = None

    async def _query(self) -> None:
        while self._waiting:
            route = self._waiting.popleft()
            queue = route.queue
            self._queried_at[queue] = time.monotonic()
            self._in_progress.add(queue)
            try:
                stats = await route.stats()
                self._stats[queue] = time.monotonic(), stats
            except BabelgateError:
                self._stats.pop(queue, None)
            except Exception:
                self._stats.pop(queue, None)
                log.exception("counts of a queue not read", queue=queue, broker=self.name)
            finally:
                self._in_progress.discard(queue)
