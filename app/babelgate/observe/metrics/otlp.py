"""Sends snapshots with the exporters that OpenTelemetry's variables configure."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from babelgate import __version__
from babelgate.errors import ConfigError
from babelgate.jsontext import digits
from babelgate.observe.logs import get_logger
from babelgate.observe.metrics.catalogue import CATALOGUE, Metric
from babelgate.observe.metrics.instruments import Distribution, Exemplar, Labels, Snapshot, Value
from babelgate.observe.otel import FLUSH_SECONDS, bounded, exporters_for, otlp_exporter, resource

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.resources import Resource

INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_MILLISECONDS = 60_000
_COLLECT_SECONDS = 10.0
_NUMBERS = frozenset({"http.response.status_code"})
"""Attributes that are integers in the conventions."""

Collect = Callable[[], Awaitable[Snapshot]]

log = get_logger(__name__)


def check(environ: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError for variables that :func:`otlp_metrics` would refuse. Sends nothing."""
    exporters, _ = _exporters(environ)
    for exporter in exporters:
        exporter.shutdown()


def otlp_metrics(collect: Collect, environ: Mapping[str, str] = os.environ) -> OtlpMetrics | None:
    """Return the sender of ``collect``'s snapshots; None if no exporter is configured. Raises ConfigError."""
    exporters, interval_seconds = _exporters(environ)
    return OtlpMetrics(collect, exporters, resource(environ), interval_seconds) if exporters else None


def _exporters(environ: Mapping[str, str]) -> tuple[list[sdk.MetricExporter], float]:
    """Return the configured exporters, and the seconds between two exports. Raises ConfigError naming a variable."""
    given = environ.get(INTERVAL, "").strip() or str(_DEFAULT_MILLISECONDS)
    milliseconds = digits(given)
    if not milliseconds:
        raise ConfigError(key=INTERVAL, reason="must be a number of milliseconds")
    names = exporters_for("metrics", environ)
    if not names:
        return [], 0.0
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

    exporters = [otlp_exporter("metrics", environ) if name == "otlp" else ConsoleMetricExporter() for name in names]
    return exporters, milliseconds / 1000


class OtlpMetrics:
    """Sends the metrics of this process from its own thread. Failures of a collector are only logged."""

    def __init__(
        self, collect: Collect, exporters: Iterable[sdk.MetricExporter], resource: Resource, interval_seconds: float
    ) -> None:
        self._collect = collect
        self._exporters = list(exporters)
        self._resource = resource
        self._interval_seconds = interval_seconds
        self._since = time.time_ns()
        self._stop = threading.Event()
        self._last: Snapshot | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Start the thread. Call it in the event loop."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="otlp-metrics", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Collect the last metrics and begin to send them; :meth:`sent` waits for that. Idempotent."""
        if self._thread is not None and not self._stop.is_set():
            try:
                self._last = await self._collect()
            except Exception:
                log.exception("metrics not collected")
            self._stop.set()

    async def sent(self) -> None:
        """Wait until the last metrics are sent, for at most 3 s. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None and self._stop.is_set() and not await bounded(thread.join):
            log.warning("last metrics not sent", seconds=FLUSH_SECONDS)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.wait(self._interval_seconds):
            collecting = asyncio.run_coroutine_threadsafe(_awaited(self._collect), loop)
            try:
                self._export(collecting.result(_COLLECT_SECONDS))
            except TimeoutError:
                collecting.cancel()
                log.warning("metrics not collected in time")
            except Exception:
                # Includes a cancelled collection; the next one may succeed.
                log.exception("metrics not collected")
        if self._last is not None:
            self._export(self._last)
        for exporter in self._exporters:
            exporter.shutdown()

    def _export(self, snapshot: Snapshot) -> None:
        data = metrics_data(snapshot, self._resource, self._since, time.time_ns())
        for exporter in self._exporters:
            try:
                exporter.export(data)
            except Exception:
                log.exception("metrics not exported")


async def _awaited(collect: Collect) -> Snapshot:
    return await collect()


def metrics_data(snapshot: Snapshot, resource: Resource, since: int, now: int) -> sdk.MetricsData:
    """Convert ``snapshot`` to the SDK's data, cumulative from ``since`` to ``now`` (Unix ns)."""
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    def data(metric: Metric, several: Mapping[Labels, Value]) -> sdk.Sum | sdk.Gauge | sdk.Histogram:
        cumulative = sdk.AggregationTemporality.CUMULATIVE
        if metric.kind == "histogram":
            return sdk.Histogram(
                [_histogram(metric, at, value, since, now) for at, value in several.items()], cumulative
            )
        points = [
            sdk.NumberDataPoint(_attributes(metric, at), since, now, value)
            for at, value in several.items()
            if not isinstance(value, Distribution)
        ]
        return sdk.Sum(points, cumulative, is_monotonic=True) if metric.kind == "counter" else sdk.Gauge(points)

    metrics = [
        sdk.Metric(metric.otel, metric.help, metric.unit, data(metric, several))
        for metric in CATALOGUE
        if (several := snapshot.get(metric.otel))
    ]
    scope = sdk.ScopeMetrics(InstrumentationScope("babelgate", __version__), metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _histogram(metric: Metric, labels: Labels, value: Value, since: int, now: int) -> sdk.HistogramDataPoint:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    assert isinstance(value, Distribution)
    return HistogramDataPoint(
        attributes=_attributes(metric, labels),
        start_time_unix_nano=since,
        time_unix_nano=now,
        count=sum(value.counts),
        sum=value.sum,
        bucket_counts=value.counts,
        explicit_bounds=metric.bounds,
        # Not recorded; None is not sent.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
        exemplars=[_exemplar(each) for each in value.exemplars.values()],
    )


def _exemplar(exemplar: Exemplar) -> Any:
    from opentelemetry.sdk.metrics import Exemplar as SdkExemplar

    return SdkExemplar(
        {}, exemplar.value, round(exemplar.at * 1e9), int(exemplar.span_id, 16), int(exemplar.trace_id, 16)
    )


def _attributes(metric: Metric, labels: Labels) -> dict[str, str | int]:
    return {
        name: int(value) if name in _NUMBERS else value
        for name, value in zip(metric.labels, labels, strict=True)
        if value
    }
