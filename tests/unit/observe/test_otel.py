"""What OpenTelemetry's variables ask for, and who decides what is sampled."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace import sampling as sdk
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from babelgate import __version__
from babelgate.errors import ConfigError
from babelgate.observe.otel import bounded, exporters_for
from babelgate.observe.tracing.context import context_of
from babelgate.observe.tracing.sampling import randomness, sampling
from babelgate.observe.tracing.span_recorder import CountedQueue, RootIds, SpanRecorder
from babelgate.observe.tracing.trace import check_env, tracing_from_env

OTLP = {"OTEL_TRACES_EXPORTER": "otlp"}


@pytest.mark.parametrize(
    ("environ", "exporters"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": " "}, []),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, []),
        (OTLP, ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp,otlp"}, ["console", "otlp"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:4318/v1/metrics"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, []),
        (OTLP | {"OTEL_SDK_DISABLED": "TRUE"}, []),
        (OTLP | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp"]),
        (OTLP | {"OTEL_EXPORTER_OTLP_PROTOCOL": "?", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, ["otlp"]),
    ],
)
def test_what_is_asked_for(environ: dict[str, str], exporters: list[str]) -> None:
    assert exporters_for("traces", environ) == exporters


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER"),
        (OTLP | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        (OTLP | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "udp"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        (OTLP | {"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER"),
        (OTLP | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"}, "OTEL_TRACES_SAMPLER_ARG"),
        (OTLP | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "x"}, "OTEL_TRACES_SAMPLER_ARG"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_variable(environ: dict[str, str], variable: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_env(environ)
    assert refused.value.key == variable
    with pytest.raises(ConfigError):
        tracing_from_env({}, environ)


def test_an_exporter_that_is_not_installed_is_refused_before_anything_listens() -> None:
    script = (
        "import sys; sys.modules['opentelemetry.exporter'] = None\n"
        "from babelgate.observe.tracing.trace import check_env\n"
        "try: check_env({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://localhost'})\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert told.startswith("ConfigError") and "OTEL_EXPORTER_OTLP_ENDPOINT" in told and "the extra otlp" in told


def test_without_an_exporter_the_sdk_is_not_loaded() -> None:
    script = (
        "import sys\n"
        "from babelgate.config import settings\nfrom babelgate.server import server, wiring\n"
        "from babelgate.observe.tracing.trace import tracing_from_env\n"
        "assert tracing_from_env({}, {}).recorder is None\n"
        "print(*[name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])\n"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert told.strip() == ""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"service.name": "babelgate"}),
        ({"OTEL_SERVICE_NAME": "orders"}, {"service.name": "orders"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=orders,service.instance.id=one,deployment.environment.name=x"},
            {"service.name": "orders", "service.instance.id": "one", "deployment.environment.name": "x"},
        ),
    ],
)
def test_the_resource_is_ours_unless_a_variable_says_otherwise(
    environ: dict[str, str], expected: dict[str, str]
) -> None:
    script = "import json; from babelgate.observe.otel import resource; print(json.dumps(dict(resource().attributes)))"
    command = [sys.executable, "-c", script]
    told = subprocess.run(command, env=os.environ | environ, check=True, capture_output=True, text=True).stdout
    found = json.loads(told)
    assert found.items() >= expected.items()
    assert found["service.version"] == __version__ and found["service.instance.id"]


async def test_a_shutdown_that_hangs_is_left_behind() -> None:
    never, ended = threading.Event(), threading.Event()

    def shutdown() -> None:
        never.wait(20)
        ended.set()

    await bounded(shutdown, 0.05)
    assert not ended.is_set()
    never.set()
    await asyncio.to_thread(ended.wait)


async def test_a_shutdown_that_ends_is_waited_for() -> None:
    ended = threading.Event()
    await bounded(ended.set)
    assert ended.is_set()


SAMPLERS: dict[str, sdk.Sampler] = {
    "": sdk.DEFAULT_ON,
    "always_on": sdk.ALWAYS_ON,
    "always_off": sdk.ALWAYS_OFF,
    "traceidratio": sdk.TraceIdRatioBased(0.25),
    "parentbased_always_on": sdk.DEFAULT_ON,
    "parentbased_always_off": sdk.DEFAULT_OFF,
    "parentbased_traceidratio": sdk.ParentBasedTraceIdRatio(0.25),
}


@pytest.mark.parametrize("name", SAMPLERS)
@given(trace_id=st.integers(1, 2**128 - 1), flags=st.sampled_from([0, 1, 2, 3, None]))
def test_samplers_decide_as_the_sdks(name: str, trace_id: int, flags: int | None) -> None:
    ours = sampling({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": "0.25"})
    parent = None
    if flags is not None:
        remote = SpanContext(trace_id, 1, is_remote=True, trace_flags=TraceFlags(flags))
        parent = set_span_in_context(NonRecordingSpan(remote))
    # The SDK looks at the low 64 bits of the trace id, the gateway at a hash of it.
    expected = SAMPLERS[name].should_sample(parent, randomness(trace_id), "x").decision.is_sampled()
    assert (
        ours.root(trace_id) if flags is None else ours.child(context_of(f"{trace_id:032x}", "1" * 16, flags))
    ) == expected


def test_who_never_samples_a_root_says_so() -> None:
    assert sampling({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}).bound == 0
    assert sampling({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}).bound == 0
    assert sampling({}).bound > 0


class Collector(SpanExporter):
    """Blocks while ``busy``; then answers as ``answer`` says, or raises it."""

    def __init__(self, answer: SpanExportResult | Exception = SpanExportResult.SUCCESS) -> None:
        self.answer = answer
        self.taken = threading.Event()
        self.free = threading.Event()
        self.got = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken.set()
        assert self.free.wait(120)
        if isinstance(self.answer, Exception):
            raise self.answer
        self.got += len(spans)
        return self.answer


def recording(collector: Collector) -> tuple[TracerProvider, CountedQueue]:
    provider, queue = TracerProvider(shutdown_on_exit=False), CountedQueue(collector, os.environ)
    provider.add_span_processor(queue)
    return provider, queue


@pytest.fixture
def small_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_QUEUE_SIZE", "4"), ("MAX_EXPORT_BATCH_SIZE", "2"), ("SCHEDULE_DELAY", "10")):
        monkeypatch.setenv(f"OTEL_BSP_{name}", value)


@pytest.mark.usefixtures("small_queue")
def test_spans_that_do_not_fit_into_the_queue_are_counted() -> None:
    collector = Collector()
    provider, queue = recording(collector)
    tracer = provider.get_tracer("test")
    for _ in range(2):
        tracer.start_span("taken").end()
    assert collector.taken.wait(120)
    for _ in range(7):
        tracer.start_span("waits").end()
    collector.free.set()
    provider.shutdown()
    # The collector has taken one batch, of one or two spans, and four wait.
    assert (queue.overflowed + collector.got, queue.failed) == (9, 0)
    assert queue.overflowed >= 3


@pytest.mark.usefixtures("small_queue")
@pytest.mark.parametrize("answer", [SpanExportResult.FAILURE, RuntimeError("no")])
def test_spans_of_exports_that_fail_are_counted(answer: SpanExportResult | Exception) -> None:
    collector = Collector(answer)
    collector.free.set()
    provider, queue = recording(collector)
    provider.get_tracer("test").start_span("lost").end()
    provider.shutdown()
    assert SpanRecorder(provider, RootIds(), [queue]).dropped == {"queue_full": 0, "export_failed": 1}


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    ours = [record for record in caplog.records if record.name == "babelgate.observe.tracing.span_recorder"]
    return [record.msg for record in ours if type(record.msg) is dict]


@pytest.mark.usefixtures("small_queue")
async def test_the_end_reports_the_spans_that_a_hanging_collector_did_not_take(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = Collector()
    provider, queue = recording(collector)
    tracer = provider.get_tracer("test")
    for _ in range(3):
        tracer.start_span("lost").end()
    recorder = SpanRecorder(provider, RootIds(), [queue])
    await recorder.close(0.05)
    (line,) = logged(caplog)
    assert (line["level"], line["event"], line["spans"]) == ("warning", "spans lost at the end", 3)
    assert "did not take them" in line["reason"]
    collector.free.set()


@pytest.mark.parametrize(("answer", "lost"), [(SpanExportResult.FAILURE, 1), (SpanExportResult.SUCCESS, 0)])
async def test_the_end_reports_the_spans_that_a_collector_refused(
    caplog: pytest.LogCaptureFixture, answer: SpanExportResult, lost: int
) -> None:
    collector = Collector(answer)
    collector.free.set()
    provider, queue = recording(collector)
    provider.get_tracer("test").start_span("last").end()
    await SpanRecorder(provider, RootIds(), [queue]).close()
    assert [line["spans"] for line in logged(caplog)] == [1] * lost
