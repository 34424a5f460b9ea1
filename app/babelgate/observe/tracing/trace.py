"""The tracing of one process, and the place of each request in a trace: parent, sampling, and context passed on.

Nothing here needs OpenTelemetry's SDK unless an exporter is configured: where tracing is off, and for requests that are
not sampled, contexts travel and no span is made. A :class:`Trace` belongs to one request and one task; none of its
methods waits or raises.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from babelgate.observe import otel
from babelgate.observe.tracing import context as w3c
from babelgate.observe.tracing.context import Context, of_trace_id, parse, plain, state_of, trace_id_of, uuid_of
from babelgate.observe.tracing.sampling import Sampling, sampling

if TYPE_CHECKING:
    from babelgate.observe.tracing.span_recorder import RecordedSpan, SpanRecorder

RawHeaders = Sequence[tuple[bytes, bytes]]

TRACEPARENT, TRACESTATE, BAGGAGE = w3c.TRACEPARENT.encode(), w3c.TRACESTATE.encode(), w3c.BAGGAGE.encode()
"""The header names as bytes, as in requests."""
_OFF = Sampling(0, parent_based=False)
_NO_SYSTEMS: Mapping[str, Mapping[str, Any]] = {}


class Tracing:
    """The tracing of one process; without a recorder it is off."""

    def __init__(
        self,
        recorder: SpanRecorder | None = None,
        sampling: Sampling = _OFF,
        systems: Mapping[str, Mapping[str, Any]] = _NO_SYSTEMS,
    ) -> None:
        """``systems`` has the attributes of each broker (its system and address), by its name."""
        self.recorder = recorder
        self.sampling = sampling
        self.systems = dict(systems)

    def add_brokers(self, brokers: Mapping[str, tuple[str, str]]) -> None:
        """Describe these brokers, too: as of :func:`tracing_from_env`."""
        if self.recorder is not None:
            self.systems.update((name, _place(system, url)) for name, (system, url) in brokers.items())

    def of_peer(self, traceparent: str | None) -> Trace | None:
        """Return the trace of a request from a peer; None if the peer has no sampled trace."""
        context = parse(traceparent) if self.recorder is not None else None
        return _PeerTrace(self, context) if context is not None and context.sampled else None

    def samples(self, trace_id: str) -> bool:
        """Return whether a request without a context is sampled, for one message with this ``trace_id``."""
        return self.sampling.root(trace_id_of(trace_id))

    async def close(self) -> None:
        """Send the remaining spans, for at most 3 s."""
        if self.recorder is not None:
            await self.recorder.close()


class Trace:
    """The place of one request in a trace.

    ``context`` is the context that came with the request, or None; ``baggage`` is its baggage, or empty.
    ``is_undecided`` is true while sampling is not decided.
    """

    __slots__ = ("_span", "baggage", "began", "context", "is_undecided", "tracing")

    def __init__(self, tracing: Tracing, context: Context | None = None, baggage: str = "") -> None:
        self.tracing = tracing
        self.context = context
        self.baggage = baggage
        self.began = time.time_ns()
        self._span: RecordedSpan | Context | None = None
        self.is_undecided = tracing.recorder is not None

    @property
    def trace_id(self) -> str | None:
        """The ``trace_id`` for a new envelope, so that it belongs to this trace; None if any will do."""
        return None if self.context is None else uuid_of(self.context.trace_id)

    @property
    def is_open(self) -> bool:
        """Whether the request is sampled, or sampling is not decided yet."""
        return self.is_undecided or self._span is not None

    def decide(self, traceparent: str | None = None, trace_id: str | None = None) -> RecordedSpan | Context | None:
        """Return the parent of the request's spans; None if the request is not sampled. The first call decides.

        The parent is the request's context. Without one it is the context of the single message of the request:
        ``traceparent``, which travelled with it, else the context derived from its ``trace_id``, on which the root
        sampler decides. Without a message a new trace begins.
        """
        if self.is_undecided:
            self.is_undecided = False
            parent = self.context
            if parent is None and traceparent is not None:
                parent = parse(traceparent)
            sampling = self.tracing.sampling
            root = 0
            if parent is not None:
                sampled = sampling.child(parent)
            elif sampling.bound == 0:
                sampled = False
            else:
                root = trace_id_of(trace_id) if trace_id else random.getrandbits(128) or 1
                sampled = sampling.root(root)
            if sampled:
                self._span = self._begin(parent or of_trace_id(trace_id), root)
        return self._span

    def decline(self) -> None:
        """Decide that the request is not sampled."""
        self.is_undecided = False

    def _begin(self, parent: Context | None, root: int) -> RecordedSpan | Context | None:
        """Start the span of the request itself, if it has one; return the parent of its spans."""
        return parent


class _PeerTrace(Trace):
    """The trace of a request that a peer has sampled; the peer's span is the parent."""

    def decide(self, traceparent: str | None = None, trace_id: str | None = None) -> RecordedSpan | Context | None:
        return self.context


def travels(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether ``headers`` contain a trace context or baggage."""
    return TRACEPARENT in headers or BAGGAGE in headers


def of_request(headers: Mapping[bytes, bytes], lines: RawHeaders) -> tuple[Context | None, str]:
    """Return the context and the baggage of a request, from its ``headers`` by name and all its header ``lines``."""
    given = headers.get(TRACEPARENT)
    if len(headers) < len(lines):
        # Two traceparent headers are ambiguous, so both are ignored.
        if sum(name == TRACEPARENT for name, _ in lines) > 1:
            given = None
        state, baggage = _joined(lines, TRACESTATE), _joined(lines, BAGGAGE)
    else:
        state, baggage = headers.get(TRACESTATE, b""), headers.get(BAGGAGE, b"")
    return (
        parse(given.decode("latin-1").strip(), state_of(state.decode("latin-1"))) if given else None,
        plain(baggage.decode("latin-1"), w3c.MAX_BAGGAGE_CHARACTERS),
    )


def _joined(lines: RawHeaders, wanted: bytes) -> bytes:
    return b",".join(value for name, value in lines if name == wanted)


def tracing_from_env(brokers: Mapping[str, tuple[str, str]], environ: Mapping[str, str] = os.environ) -> Tracing:
    """Return the tracing that the environment configures: off, and without imports, unless it names an exporter.

    ``brokers`` has OpenTelemetry's name of the system and the masked URL of each broker, by its name. Raises
    ConfigError.
    """
    exporters = otel.exporters_for("traces", environ)
    if not exporters:
        return Tracing()
    from babelgate.observe.tracing.span_recorder import create_recorder

    sampler = sampling(environ)
    systems = {name: _place(system, url) for name, (system, url) in brokers.items()}
    return Tracing(create_recorder(exporters, environ), sampler, systems)


def check_env(environ: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError for variables that :func:`tracing_from_env` would refuse. Sends nothing."""
    made = tracing_from_env({}, environ).recorder
    if made is not None:
        made.discard()


def _place(system: str, url: str) -> Mapping[str, str | int]:
    parts = urlsplit(url)
    place: dict[str, str | int] = {"messaging.system": system}
    # An embedded broker is a file without an address, and Amazon's URL names a region.
    if system not in ("sqlite", "aws_sqs") and parts.hostname:
        place["server.address"] = parts.hostname
        if parts.port:
            place["server.port"] = parts.port
    return place
