"""A gateway that OpenTelemetry's variables tell to send its metrics, and its traces: each leads to the other."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from babelgate.observe.metrics import catalogue
from tests.harness.gateway import gateway
from tests.harness.otlp import otlp_receiver

pytestmark = pytest.mark.slow


def test_it_sends_them_and_what_its_brokers_tell(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        environ = receiver.environ() | {
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=shop,deployment.environment.name=test",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        with gateway(tmp_path, environ=environ) as process:
            with process.client() as client:
                client.post("queues/q/messages", json={"job": "x", "data": {}}).raise_for_status()

            def depth() -> bool:
                found = [metric for metric in receiver.metrics if metric.name == catalogue.QUEUE_DEPTH.otel]
                return bool(found) and [point.as_double for point in found[-1].gauge.data_points] == [1]

            receiver.until(depth)
            text = httpx.get(
                f"{process.url}/metrics", headers={"accept": "application/openmetrics-text"}, timeout=60
            ).text
            assert process.stop() == 0
    last = {metric.name: metric for metric in receiver.metrics}
    assert [point.as_double for point in last[catalogue.PUBLISHED.otel].sum.data_points] == [1]
    assert catalogue.HTTP_DURATION.otel in last
    resource = receiver.metric_requests[-1].resource_metrics[0].resource
    told = {each.key: each.value.string_value for each in resource.attributes}
    assert (told["service.name"], told["deployment.environment.name"]) == ("shop", "test")
    assert told["service.instance.id"]
    examples = [
        sample.exemplar.labels
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.exemplar and sample.labels["http_route"] == "/queues/{queue}/messages"
    ]
    spans = [(span.trace_id, span.span_id) for span in receiver.spans if span.kind == "SERVER"]
    assert examples
    assert {(each["trace_id"], each["span_id"]) for each in examples} <= set(spans)
    assert "Traceback" not in process.log_text()
