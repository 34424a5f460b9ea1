"""The trace of a push: a span of the post, and the context that is sent on to the receiver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from babelgate.gateway.model import Message
from babelgate.gateway.routing import Route
from babelgate.observe.tracing.context import TRACEPARENT, TRACESTATE, trace_headers
from babelgate.observe.tracing.trace import Trace
from babelgate.push.targets import PushTarget

if TYPE_CHECKING:
    from babelgate.observe.tracing.span_recorder import RecordedSpan


class PushSpan:
    """The place of one push in a trace, as a context manager. Without a ``span`` it only sends the context on, if the
    post has a single ``message``: several have no common context.

    https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-client-span
    """

    def __init__(
        self, message: Message | None = None, trace: Trace | None = None, span: RecordedSpan | None = None
    ) -> None:
        self.trace = trace
        """Of the settle that follows."""
        self._message = message
        self._span = span

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """The trace headers of the post."""
        message = self._message
        headers = {} if message is None else dict(trace_headers(message.headers, message.trace_id))
        if self._span is not None:
            context = self._span.context
            headers[TRACEPARENT] = context.traceparent
            headers.pop(TRACESTATE, None)
            if context.tracestate:
                headers[TRACESTATE] = context.tracestate
        return list(headers.items())

    def answered(self, status: int) -> None:
        """Record the status of the answer."""
        if self._span is not None:
            self._span.add({"http.response.status_code": status})

    def failed(self, code: str, detail: str) -> None:
        """Record that the post was no success."""
        if self._span is not None:
            self._span.fail(code, detail)

    def __enter__(self) -> PushSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.end()


def pushing(trace: Trace | None, route: Route, target: PushTarget, messages: Sequence[Message]) -> PushSpan:
    """The span of a push of ``messages``; none if tracing is off (``trace`` None), or they are not sampled.

    The context of a single message is the parent. Several begin a trace with links to theirs.
    """
    message = messages[0] if len(messages) == 1 else None
    recorder = None if trace is None else trace.tracing.recorder
    if trace is None or recorder is None:
        return PushSpan(message)
    parent = trace.decide() if message is None else trace.decide(message.headers.get(TRACEPARENT), message.trace_id)
    if parent is None:
        return PushSpan(message, trace)
    parts = urlsplit(target.url)
    attributes: dict[str, str | int] = {
        **trace.tracing.systems.get(route.broker, {}),
        "http.request.method": "POST",
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        "messaging.destination.name": route.queue,
        "messaging.operation.name": "push",
        "messaging.operation.type": "process",
    }
    if message is None:
        attributes["messaging.batch.message_count"] = len(messages)
    elif (message_id := message.lease.facts.message_id) is not None:
        attributes["messaging.message.id"] = message_id
    span = recorder.start(f"push {route.queue}", "CLIENT", parent, time.time_ns(), attributes)
    return PushSpan(message, Trace(trace.tracing, span.context), span)
