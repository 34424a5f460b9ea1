"""The text that Prometheus reads: in the format it asks for, and as its own tools want it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import generate_latest as generate_plain
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Exemplar as PrometheusExemplar
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from prometheus_client.registry import Collector

from babelgate.observe.metrics import catalogue
from babelgate.observe.metrics import exposition as rendering
from babelgate.observe.metrics.catalogue import CATALOGUE, Metric
from babelgate.observe.metrics.exposition import OPENMETRICS, TEXT
from babelgate.observe.metrics.instruments import Distribution, Exemplar, Snapshot
from tests.harness.prometheus import promtool

# As they are sent: Debian's 2.42, and 3.x.
PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75," + (
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1"
    ";q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def exposition(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The whole text, and its content type."""
    pieces, content_type = rendering.exposition(snapshot, accept)
    return b"".join(pieces), content_type


def example(metric: Metric) -> float | Distribution:
    if metric.kind != "histogram":
        return 3.0
    buckets = len(metric.bounds) + 1
    return Distribution([1] * buckets, 12.5, {0: Exemplar("a" * 32, "b" * 16, 0.001, 1_700_000_000.0)})


EVERYTHING: Snapshot = {
    metric.otel: {tuple(f'{label} "\\\n é' for label in metric.labels): example(metric)} for metric in CATALOGUE
}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html, */*;q=0.8", TEXT),
        ("text/plain", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=0, */*", TEXT),
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", TEXT),
        ("text/plain;q=0.4, application/openmetrics-text;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;q=much", TEXT),
        ("application/openmetrics-text;version", OPENMETRICS),
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept: str, content_type: str) -> None:
    text, given = exposition(EVERYTHING, accept)
    assert given == content_type
    assert text.endswith(b"# EOF\n") == (content_type == OPENMETRICS)


@pytest.mark.prometheus
def test_promtool_is_content() -> None:
    assert promtool("check", "metrics", stdin=exposition(EVERYTHING)[0]) == ""


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_every_metric_is_there_as_the_catalogue_has_it(accept: str) -> None:
    text = exposition(EVERYTHING, accept)[0].decode()
    families = {family.name: family for family in (openmetrics if accept else plain)(text)}
    assert len(families) == len(CATALOGUE)
    for metric in CATALOGUE:
        family = families[metric.family]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert set(metric.prometheus_labels) <= set(family.samples[0].labels)
        assert all(value.endswith('"\\\n é') for name, value in family.samples[0].labels.items() if name != "le")
        if accept:
            assert family.unit == metric.base_unit


def test_openmetrics_tell_units_and_traces() -> None:
    text = exposition({catalogue.HTTP_DURATION.otel: EVERYTHING[catalogue.HTTP_DURATION.otel]}, PROMETHEUS_2)[
        0
    ].decode()
    assert "# UNIT http_server_request_duration_seconds seconds\n" in text
    (family,) = openmetrics(text)
    found = [sample.exemplar for sample in family.samples if sample.exemplar]
    assert [(each.labels, each.value, float(each.timestamp)) for each in found] == [
        ({"trace_id": "a" * 32, "span_id": "b" * 16}, 0.001, 1_700_000_000.0)
    ]


def test_buckets_add_up() -> None:
    text = exposition({catalogue.BATCH_SIZE.otel: {("q", "b"): Distribution([1, 2] + [0] * 9 + [4], 9.0)}})[0].decode()
    (family,) = plain(text)
    counted = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
    assert (counted["1.0"], counted["2.0"], counted["1024.0"], counted["+Inf"]) == (1, 3, 3, 7)
    assert {sample.value for sample in family.samples if sample.name.endswith("_count")} == {7}


def test_nothing_counted_is_an_empty_text() -> None:
    assert exposition({metric.otel: {} for metric in CATALOGUE})[0] == b""


class OfTheClient(Collector):
    """A snapshot as the client library of Prometheus takes it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        for metric in CATALOGUE:
            kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
            family = kind[metric.kind](
                metric.family, metric.help, labels=metric.prometheus_labels, unit=metric.base_unit
            )
            for labels, value in self._snapshot[metric.otel].items():
                if isinstance(value, Distribution):
                    family.add_metric(labels, self._buckets(metric, value), value.sum)
                else:
                    family.add_metric(labels, value)
            yield family

    def _buckets(self, metric: Metric, value: Distribution) -> list[Any]:
        found: list[Any] = []
        for bucket, count in enumerate(accumulate(value.counts)):
            bound = str(metric.bounds[bucket]) if bucket < len(metric.bounds) else "+Inf"
            exemplar = value.exemplars.get(bucket)
            if exemplar is None:
                found.append((bound, count))
            else:
                traced = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
                found.append((bound, count, PrometheusExemplar(traced, exemplar.value, exemplar.at)))
        return found


@pytest.mark.parametrize("number", [0.0, 0.25, 999_999.0, 1e6, 1_234_567.5, 1e21, 1e-9])
@pytest.mark.parametrize(
    ("accept", "generate"), [("", generate_plain), ("application/openmetrics-text", generate_open)]
)
def test_it_renders_as_the_client_library_of_prometheus_does(
    accept: str, generate: Callable[[CollectorRegistry], bytes], number: float
) -> None:
    snapshot: Snapshot = {}
    for metric in CATALOGUE:
        value: float | Distribution = number
        if metric.kind == "histogram":
            counts = [int(number)] * (len(metric.bounds) + 1)
            value = Distribution(counts, number, {1: Exemplar("a" * 32, "b" * 16, number, 1_700_000_000.5)})
        labels = tuple(f'{label} "\\\n é' for label in metric.labels)
        snapshot[metric.otel] = {labels: value, ("plain",) * len(metric.labels): value}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OfTheClient(snapshot))
    assert exposition(snapshot, accept)[0].decode() == generate(registry).decode()
