"""Metrics as a real OTLP endpoint gets them, over gRPC and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from opentelemetry.sdk.resources import Resource

from babelgate.errors import ConfigError
from babelgate.observe.events import Event
from babelgate.observe.metrics import catalogue
from babelgate.observe.metrics.instruments import Snapshot
from babelgate.observe.metrics.otlp import INTERVAL, OtlpMetrics, metrics_data, otlp_metrics
from babelgate.observe.metrics.recorder import Metrics
from tests.harness.otlp import OtlpReceiver, otlp_receiver

TRACE, SPAN = "a" * 32, "b" * 16


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


def exporter(receiver: OtlpReceiver, protocol: str) -> Any:
    if protocol == "grpc":
        return GrpcExporter(endpoint=receiver.grpc_url, insecure=True, timeout=1)
    return HttpExporter(endpoint=f"{receiver.http_url}/v1/metrics", timeout=1)


def counted() -> Metrics:
    made = Metrics(systems={"b": "redis"})
    made.observe(Event("accepted", "q", "b", 3))
    made.request("POST", "/queues/{queue}/messages", 201, "http", None, 0.02, (TRACE, SPAN))
    return made


@asynccontextmanager
async def sending(to: Any, made: Metrics, seconds: float = 0.05) -> AsyncIterator[None]:
    async def collect() -> Snapshot:
        return made.snapshot() | {catalogue.BROKER_UP.otel: {("b",): 1.0}}

    described = Resource({"service.name": "shop"})
    sender = OtlpMetrics(collect, [to], described, seconds)
    await sender.start()
    try:
        yield
    finally:
        await sender.close()
        await sender.sent()


def newest(receiver: OtlpReceiver, metric: catalogue.Metric) -> Metric | None:
    return next((each for each in reversed(receiver.metrics) if each.name == metric.otel), None)


def plain(attributes: object) -> dict[str, object]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value"))
        for each in attributes  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_an_endpoint_gets_them(receiver: OtlpReceiver, protocol: str) -> None:
    made = counted()
    async with sending(exporter(receiver, protocol), made):
        await asyncio.to_thread(receiver.until, lambda: newest(receiver, catalogue.PUBLISHED))
        made.observe(Event("accepted", "q", "b", 4))

        def seven() -> bool:
            found = newest(receiver, catalogue.PUBLISHED)
            return found is not None and found.sum.data_points[0].as_double == 7

        await asyncio.to_thread(receiver.until, seven)
    assert receiver.protocols == {protocol.partition("/")[0]}
    published, up = newest(receiver, catalogue.PUBLISHED), newest(receiver, catalogue.BROKER_UP)
    duration = newest(receiver, catalogue.HTTP_DURATION)
    assert published and up and duration
    assert (published.unit, published.sum.is_monotonic) == ("{message}", True)
    assert published.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert plain(published.sum.data_points[0].attributes) == {"queue": "q", "broker": "b"}
    assert up.gauge.data_points[0].as_double == 1
    (point,) = duration.histogram.data_points
    assert plain(point.attributes) == {
        "http.request.method": "POST",
        "http.route": "/queues/{queue}/messages",
        "http.response.status_code": 201,
        "url.scheme": "http",
    }
    assert tuple(point.explicit_bounds) == catalogue.SECONDS
    assert (point.count, point.sum, sum(point.bucket_counts)) == (1, 0.02, 1)
    assert not point.HasField("min")
    assert [(each.trace_id.hex(), each.span_id.hex(), each.as_double) for each in point.exemplars] == [
        (TRACE, SPAN, 0.02)
    ]
    told = plain(receiver.metric_requests[-1].resource_metrics[0].resource.attributes)
    assert told["service.name"] == "shop"


async def test_the_last_numbers_are_sent_at_the_end(receiver: OtlpReceiver) -> None:
    async with sending(exporter(receiver, "http"), counted(), 3_600):
        assert receiver.metrics == []
    assert newest(receiver, catalogue.PUBLISHED) is not None


async def test_a_collector_that_fails_is_no_matter(receiver: OtlpReceiver) -> None:
    receiver.fails = True
    async with sending(exporter(receiver, "http"), counted()):
        await asyncio.sleep(0.2)
        receiver.fails = False
        await asyncio.to_thread(receiver.until, lambda: newest(receiver, catalogue.PUBLISHED))


async def test_a_collector_that_is_not_there_delays_the_end_a_little() -> None:
    stubborn = HttpExporter(endpoint="http://127.0.0.1:1", timeout=60)
    try:
        async with asyncio.timeout(30):
            async with sending(stubborn, counted()):
                await asyncio.sleep(0.2)
    finally:
        # Its thread would go on trying beside other tests, and draw from the random numbers of all.
        stubborn.shutdown()


async def test_numbers_that_cannot_be_had_once_are_sent_later(receiver: OtlpReceiver) -> None:
    failures = iter([RuntimeError("no numbers"), TimeoutError(), asyncio.CancelledError()])
    made = counted()

    async def collect() -> Snapshot:
        for failure in failures:
            raise failure
        return made.snapshot()

    sender = OtlpMetrics(collect, [exporter(receiver, "http")], Resource({}), 0.01)
    await sender.start()
    try:
        await asyncio.to_thread(receiver.until, lambda: newest(receiver, catalogue.PUBLISHED))
    finally:
        await sender.close()


async def test_an_end_without_last_numbers_is_an_end(receiver: OtlpReceiver) -> None:
    async def collect() -> Snapshot:
        raise RuntimeError("no numbers")

    sender = OtlpMetrics(collect, [exporter(receiver, "http")], Resource({}), 3_600)
    await sender.start()
    await sender.close()
    assert receiver.metrics == []


async def nothing() -> Snapshot:
    return {}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "otlp"},
    ],
)
def test_nobody_asked(environ: dict[str, str]) -> None:
    assert otlp_metrics(nothing, environ) is None


@pytest.mark.parametrize("given", ["soon", "0", "-1"])
def test_an_interval_is_a_number(given: str) -> None:
    with pytest.raises(ConfigError, match=INTERVAL):
        otlp_metrics(nothing, {"OTEL_METRICS_EXPORTER": "console", INTERVAL: given})


def test_every_metric_has_its_otel_name_and_unit() -> None:
    single = [metric for metric in catalogue.CATALOGUE if metric.kind != "histogram"]
    snapshot: Snapshot = {metric.otel: {("x",) * len(metric.labels): 1.0} for metric in single}
    data = metrics_data(snapshot, Resource({}), 1, 2)
    sent = data.resource_metrics[0].scope_metrics[0].metrics
    assert [(each.name, each.unit) for each in sent] == [(metric.otel, metric.unit) for metric in single]
