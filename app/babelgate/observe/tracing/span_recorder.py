"""Records spans with OpenTelemetry's SDK. Imported only if tracing is on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from opentelemetry.context import Context as SdkContext
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from babelgate import __version__
from babelgate.observe import otel
from babelgate.observe.logs import get_logger
from babelgate.observe.tracing.context import SAMPLED, Context, context_of

log = get_logger(__name__)

Value = str | int | bool
Attributes = Mapping[str, Value]
Kind = Literal["SERVER", "CLIENT", "PRODUCER"]

SCHEMA = "https://opentelemetry.io/schemas/1.45.0"
MAX_VALUE = 256
"""Maximum characters of an attribute: an id of a foreign message may have any length."""


DEFAULT_QUEUE = 2048
"""The default of OTEL_BSP_MAX_QUEUE_SIZE:
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#batch-span-processor"""


class RecordedSpan:
    """A span that is being recorded, and its ``context``."""

    __slots__ = ("context", "span")

    def __init__(self, span: Span) -> None:
        found = span.get_span_context()
        self.span = span
        state = found.trace_state.to_header()
        self.context = context_of(f"{found.trace_id:032x}", f"{found.span_id:016x}", int(found.trace_flags), state)

    def add(self, attributes: Attributes) -> None:
        """Add attributes."""
        self.span.set_attributes(_plain(attributes))

    def fail(self, error_type: str, detail: str | None = None) -> None:
        """Mark the span as failed."""
        self.span.set_attribute("error.type", error_type)
        self.span.set_status(Status(StatusCode.ERROR, detail))

    def end(self) -> None:
        """End the span and pass it to the exporters. It must not be changed afterwards."""
        self.span.end()


class SpanRecorder:
    """Creates spans and sends them to exporters. The caller has already decided on sampling."""

    def __init__(self, provider: TracerProvider, ids: RootIds, queues: Sequence[CountedQueue] = ()) -> None:
        self._provider = provider
        self._queues = queues
        self._ids = ids
        self._tracer = provider.get_tracer("babelgate", __version__, SCHEMA)

    def start(
        self,
        name: str,
        kind: Kind,
        parent: RecordedSpan | Context | None,
        began: int,
        attributes: Attributes,
        links: Sequence[tuple[Context, Attributes]] = (),
        *,
        root: int = 0,
    ) -> RecordedSpan:
        """Start a span that began at ``began`` (Unix ns). Without a parent it is the root of the trace ``root``."""
        self._ids.root = root
        span = self._tracer.start_span(
            name,
            _parent(parent),
            SpanKind[kind],
            _plain(attributes),
            [Link(_remote(context), _plain(linked)) for context, linked in links],
            began,
        )
        assert isinstance(span, Span)
        return RecordedSpan(span)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Spans that were lost, by reason: ``queue_full`` or ``export_failed``. The numbers never decrease."""
        return {
            "queue_full": sum(queue.overflowed for queue in self._queues),
            "export_failed": sum(queue.failed for queue in self._queues),
        }

    def discard(self) -> None:
        """Shut down without having recorded a span."""
        self._provider.shutdown()

    async def close(self, seconds: float = otel.FLUSH_SECONDS) -> None:
        """Send the remaining spans, for at most ``seconds``, and log how many of them were lost. Idempotent."""
        failed = sum(queue.failed for queue in self._queues)
        ended = await otel.bounded(self._provider.shutdown, seconds)
        lost = sum(queue.failed + queue.waiting for queue in self._queues) - failed
        if lost:
            reason = "the collector refused them" if ended else f"the collector did not take them within {seconds:g} s"
            log.warning("spans lost at the end", spans=lost, reason=reason)


class CountedQueue(SpanProcessor):
    """The SDK's queue in front of one exporter, which counts the spans that it loses.

    ``overflowed``: spans that found the queue full, so that the SDK dropped the oldest one. ``failed``: spans of
    exports that failed after the retries of the exporter. ``exported``: spans that the collector has accepted.
    """

    def __init__(self, exporter: SpanExporter, environ: Mapping[str, str]) -> None:
        self.overflowed = 0
        self.failed = 0
        self.exported = 0
        self._exporter = exporter
        self._ended = 0
        self._taken = 0
        try:
            self._size = int(environ.get("OTEL_BSP_MAX_QUEUE_SIZE", ""))
        except ValueError:
            self._size = DEFAULT_QUEUE
        self._batches = BatchSpanProcessor(_Watched(self, exporter))

    @property
    def waiting(self) -> int:
        """The spans that are in the queue, or in an export that has not ended."""
        return self._ended - self.overflowed - self.failed - self.exported

    def on_end(self, span: ReadableSpan) -> None:
        """Pass on a span. Only the event loop's thread ends spans."""
        if self._ended - self.overflowed - self._taken >= self._size:
            self.overflowed += 1
        self._ended += 1
        self._batches.on_end(span)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch that the SDK has taken from the queue, in its thread."""
        self._taken += len(spans)
        try:
            result = self._exporter.export(spans)
        except Exception:
            self.failed += len(spans)
            raise
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Export what waits, and shut down."""
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what waits."""
        return self._batches.force_flush(timeout_millis)


class _Watched(SpanExporter):
    def __init__(self, queue: CountedQueue, exporter: SpanExporter) -> None:
        self.export = queue.export  # type: ignore[method-assign]
        self.shutdown = exporter.shutdown  # type: ignore[method-assign]


class RootIds(RandomIdGenerator):
    """Generates random ids, except that a root gets the trace id on which sampling was decided."""

    root = 0

    def generate_trace_id(self) -> int:
        """Return the trace id of the span that is being created."""
        return self.root or super().generate_trace_id()


def create_recorder(exporters: Sequence[str], environ: Mapping[str, str] = os.environ) -> SpanRecorder:
    """Return a recorder for the ``exporters`` of :func:`babelgate.observe.otel.exporters_for`. Raises ConfigError."""
    ids = RootIds()
    with otel.as_config_errors("OTEL_…"):
        provider = TracerProvider(ALWAYS_ON, otel.resource(environ), shutdown_on_exit=False, id_generator=ids)
    queues = []
    for name in exporters:
        exporter = ConsoleSpanExporter() if name == "console" else otel.otlp_exporter("traces", environ)
        with otel.as_config_errors("OTEL_BSP_…"):
            queues.append(CountedQueue(exporter, environ))
        provider.add_span_processor(queues[-1])
    return SpanRecorder(provider, ids, queues)


def _parent(parent: RecordedSpan | Context | None) -> SdkContext:
    # Never the SDK's current context: callers pass the parent.
    if parent is None:
        return SdkContext()
    span = parent.span if isinstance(parent, RecordedSpan) else NonRecordingSpan(_remote(parent))
    return set_span_in_context(span, SdkContext())


def _remote(context: Context) -> SpanContext:
    flags = TraceFlags(SAMPLED if context.flags is None else context.flags)
    state = TraceState.from_header([context.tracestate]) if context.tracestate else None
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), True, flags, state)


def _plain(attributes: Attributes) -> Attributes:
    """Replace unpaired surrogates and cut long values: one bad value would fail the export of the whole batch."""
    return {name: _text(value) if isinstance(value, str) else value for name, value in attributes.items()}


def _text(value: str) -> str:
    value = value[:MAX_VALUE]
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
