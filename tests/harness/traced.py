"""Records the spans of this process for a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from babelgate.observe.tracing.sampling import sampling
from babelgate.observe.tracing.span_recorder import RootIds, SpanRecorder
from babelgate.observe.tracing.trace import Tracing


class Spans:
    """A recorder, and what it has recorded. ``tracing`` is for a gateway."""

    def __init__(self, sampler: str = "parentbased_always_on", argument: str = "1") -> None:
        self._exporter = InMemorySpanExporter()
        ids = RootIds()
        provider = TracerProvider(ALWAYS_ON, shutdown_on_exit=False, id_generator=ids)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        environ = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
        self.tracing = Tracing(SpanRecorder(provider, ids), sampling(environ))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in that order."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        (found,) = [span for span in self.all if span.name == name]
        return found

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()


def told(span: ReadableSpan) -> Mapping[str, Any]:
    """The attributes of a span."""
    return span.attributes or {}


def header(span: ReadableSpan) -> str:
    """Its context as ``traceparent``."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def parent(span: ReadableSpan) -> str:
    """Its parent as ``traceparent``; empty in a root."""
    return "" if span.parent is None else f"00-{span.parent.trace_id:032x}-{span.parent.span_id:016x}-01"


def links(span: ReadableSpan) -> list[str]:
    """The contexts that it links to, as ``traceparent``."""
    return [f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-01" for link in span.links]
