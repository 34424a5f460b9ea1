"""A real OTLP endpoint, over gRPC and HTTP, that keeps the spans and metrics it receives."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1 import trace_pb2

PATIENCE_SECONDS = 120

_KINDS = {number: name.removeprefix("SPAN_KIND_") for name, number in trace_pb2.Span.SpanKind.items()}
_STATUSES = {number: name.removeprefix("STATUS_CODE_") for name, number in trace_pb2.Status.StatusCode.items()}


@dataclass(frozen=True)
class Link:
    """A link of a span. Ids in hexadecimal."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """A span as it arrived. Ids in hexadecimal, the parent's empty in a root; times in nanoseconds."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    links: Sequence[Link]
    dropped_links: int
    status: str
    began: int
    ended: int
    tracestate: str
    resource: Mapping[str, Any]
    scope: str


@dataclass
class OtlpReceiver:
    """What has arrived so far. While ``fails`` it answers that it is unavailable, and keeps nothing."""

    grpc_url: str = ""
    http_url: str = ""
    fails: bool = False
    protocols: set[str] = field(default_factory=set)
    """Those that something came by: ``grpc``, ``http``."""
    _spans: list[Span] = field(default_factory=list)
    _metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def environ(self, protocol: str = "http/protobuf") -> dict[str, str]:
        """The variables that make a process send its spans here, soon."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.grpc_url if protocol == "grpc" else self.http_url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    @property
    def spans(self) -> list[Span]:
        """All spans so far, in the order of their arrival."""
        with self._arrived:
            return list(self._spans)

    @property
    def metrics(self) -> list[Metric]:
        """All metrics so far, in the order of their arrival: the same one again with each export."""
        with self._arrived:
            return [
                metric
                for request in self._metrics
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            ]

    @property
    def metric_requests(self) -> list[ExportMetricsServiceRequest]:
        """The exports of metrics themselves, with their resources."""
        with self._arrived:
            return list(self._metrics)

    def until(self, condition: Callable[[], Any]) -> Any:
        """What ``condition`` gives, once that is true; it is asked again with whatever arrives."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._arrived:
            while not (found := condition()):
                if not self._arrived.wait(deadline - time.monotonic()):
                    raise AssertionError(f"it has not come; what has: {tree(self._spans)}")
            return found

    def wait_for(self, count: int, **where: Any) -> list[Span]:
        """At least ``count`` spans whose fields have these values."""

        def fitting() -> list[Span]:
            return [span for span in self._spans if all(getattr(span, key) == value for key, value in where.items())]

        found: list[Span] = self.until(lambda: spans if len(spans := fitting()) >= count else None)
        return found

    def take(self, request: ExportTraceServiceRequest | ExportMetricsServiceRequest, protocol: str) -> None:
        """Keep what ``request`` brings."""
        with self._arrived:
            self.protocols.add(protocol)
            if isinstance(request, ExportMetricsServiceRequest):
                self._metrics.append(request)
            else:
                self._spans += _spans(request)
            self._arrived.notify_all()


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver that listens on two free ports of the loopback."""
    receiver = OtlpReceiver()
    web = ThreadingHTTPServer(("127.0.0.1", 0), _handler(receiver))
    web.daemon_threads = True
    thread = threading.Thread(target=web.serve_forever, args=(0.05,), daemon=True)
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(receiver), server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(receiver), server)
        receiver.grpc_url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        receiver.http_url = f"http://127.0.0.1:{web.server_address[1]}"
        server.start()
        thread.start()
        try:
            yield receiver
        finally:
            web.shutdown()
            web.server_close()
            thread.join()
            server.stop(None).wait()


def tree(spans: Sequence[Span]) -> str:
    """The spans as a text: children below their parents, roots and those whose parent did not arrive at the left."""
    lines: list[str] = []
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda each: each.began):
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)

    def add(parent: str, depth: int) -> None:
        for span in children.get(parent, []):
            service = span.resource.get("service.name", "?")
            linked = f"  links {len(span.links)}" if span.links else ""
            failed = f"  {span.status} {span.attributes.get('error.type')}" if span.status == "ERROR" else ""
            missing = f"  (child of {span.parent_id})" if span.parent_id and span.parent_id not in known else ""
            lines.append(f"{'  ' * depth}{span.kind:8} {span.name}  [{service}]{failed}{linked}{missing}")
            add(span.span_id, depth + 1)

    add("", 0)
    return "\n".join(["", *lines])


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        return _kept(self._receiver, request, context, ExportTraceServiceResponse())


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
        return _kept(self._receiver, request, context, ExportMetricsServiceResponse())


def _kept(receiver: OtlpReceiver, request: Any, context: Any, answer: Any) -> Any:
    if receiver.fails:
        context.abort(grpc.StatusCode.UNAVAILABLE, "it was told to fail")
    receiver.take(request, "grpc")
    return answer


def _handler(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    requests: Mapping[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = 503 if receiver.fails else 200 if self.path in requests else 404
            if status == 200:
                receiver.take(requests[self.path].FromString(body), "http")
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        described = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    name=span.name,
                    kind=_KINDS[span.kind],
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes=_attributes(span.attributes),
                    links=[Link(e.trace_id.hex(), e.span_id.hex(), _attributes(e.attributes)) for e in span.links],
                    dropped_links=span.dropped_links_count,
                    status=_STATUSES[span.status.code],
                    began=span.start_time_unix_nano,
                    ended=span.end_time_unix_nano,
                    tracestate=span.trace_state,
                    resource=described,
                    scope=scope.scope.name,
                )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
