"""Renders snapshots for Prometheus: in its text format, or as OpenMetrics with units and exemplars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Exemplar as PrometheusExemplar
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from app.observe.metrics.catalogue import CATALOGUE, Metric
from app.observe.metrics.instruments import Distribution, Labels, Snapshot, Value

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_OPENMETRICS_VERSIONS = ("", "1.0.0")

Generate = Callable[[CollectorRegistry], bytes]
_Bucket = tuple[str, float] | tuple[str, float, PrometheusExemplar]


def exposition(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """Render ``snapshot`` in the format that the header ``accept`` prefers; return the text and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(snapshot))
    if _wants_openmetrics(accept):
        generate: Generate = openmetrics.generate_latest
        return generate(registry), OPENMETRICS
    return generate_latest(registry), TEXT


class _Collected(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        for metric in CATALOGUE:
            several = self._snapshot.get(metric.otel)
            if several:
                yield _family(metric, several.items())

    def describe(self) -> Iterable[Family]:
        return ()


def _family(metric: Metric, several: Iterable[tuple[Labels, Value]]) -> Family:
    names, unit = metric.prometheus_labels, metric.base_unit
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.family, metric.help, labels=names, unit=unit)
        bounds = [*map(str, metric.bounds), "+Inf"]
        for labels, value in several:
            assert isinstance(value, Distribution)
            histogram.add_metric(labels, _buckets(bounds, value), value.sum)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.family, metric.help, labels=names, unit=unit)
    for labels, value in several:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


def _buckets(bounds: list[str], value: Distribution) -> list[_Bucket]:
    buckets: list[_Bucket] = []
    for bucket, (bound, count) in enumerate(zip(bounds, accumulate(value.counts), strict=True)):
        found = value.exemplars.get(bucket)
        if found is None:
            buckets.append((bound, count))
        else:
            trace = {"trace_id": found.trace_id, "span_id": found.span_id}
            buckets.append((bound, count, PrometheusExemplar(trace, found.value, found.at)))
    return buckets


def _wants_openmetrics(accept: str) -> bool:
    """Return whether ``accept`` names OpenMetrics with at least the quality of the text format."""
    wanted = plain = 0.0
    for entry in accept.split(","):
        media, *parameters = (part.strip().lower() for part in entry.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        quality = _quality(given.get("q", "1"))
        if media == "application/openmetrics-text" and given.get("version", "") in _OPENMETRICS_VERSIONS:
            wanted = max(wanted, quality)
        elif media in ("text/plain", "text/*", "*/*"):
            plain = max(plain, quality)
    return wanted > 0 and wanted >= plain


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0
