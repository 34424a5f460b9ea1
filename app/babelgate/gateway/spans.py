"""Spans of operations at brokers, by OpenTelemetry's semantic conventions for messaging.

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ (release 1.45). Each operation of the gateway is
one span, however many calls to the broker it makes. The destination is the queue name of the URL, unless the broker's
binding names another one (``NativeQueue.traced``), which also adds what the conventions for its broker recommend.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from babelgate.brokers.binding import Outgoing
from babelgate.envelope import Envelope
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.model import Settlement
from babelgate.gateway.routing import Route
from babelgate.observe.events import Facts
from babelgate.observe.tracing.context import TRACEPARENT, Context, of_message, with_context
from babelgate.observe.tracing.trace import Trace

if TYPE_CHECKING:
    from babelgate.observe.tracing.span_recorder import Attributes, Kind, RecordedSpan

_Message = tuple[Facts, Mapping[str, str | int]]
"""The facts of a message, and the attributes of its place at the broker."""

_TYPES = {"send": "send", "receive": "receive", "redrive": "send"}
_NO_LEASES: Sequence[Lease] = ()


class OperationSpan:
    """The span of one operation at a broker, as a context manager. This base class makes none and does nothing."""

    __slots__ = ()

    @property
    def traceparent(self) -> str | None:
        """The context for a peer that does a part of the operation; None if it is not sampled."""
        return None

    def carrying(self, outgoing: Outgoing) -> Outgoing:
        """``outgoing`` with the trace context in its headers."""
        return outgoing

    def concerned(self, leases: Sequence[Lease]) -> None:
        """Record the messages that the operation returned."""

    def ended(self, outcomes: Iterable[BabelgateError | None]) -> None:
        """Record the outcome of each message."""

    def __enter__(self) -> OperationSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        return


UNTRACED = OperationSpan()


def sending(
    trace: Trace | None, route: Route, sent: Sequence[tuple[Envelope, Outgoing]], *, batch: bool
) -> OperationSpan:
    """The operation of publishing ``sent``. ``batch``: it is a batch, even if of one message."""
    if trace is None or not sent:
        return UNTRACED
    envelope, outgoing = sent[0]
    parent = trace.decide() if batch else trace.decide(outgoing.headers.get(TRACEPARENT), envelope.trace_id)
    if parent is not None:
        return _Sending(trace, route, sent, batch, parent)
    return UNTRACED if trace.context is None and not trace.baggage else _Carrying(trace, route)


def carrying(trace: Trace | None, route: Route, outgoing: Outgoing) -> Outgoing:
    """``outgoing`` with the trace context of the request, without a span of its own."""
    return outgoing if trace is None else _Carrying(trace, route).carrying(outgoing)


def receiving(trace: Trace | None, route: Route) -> OperationSpan:
    """The operation of receiving from ``route``. Its span is made at the end, when the messages are known."""
    return UNTRACED if trace is None else _Receiving(trace, route)


def settling(trace: Trace | None, route: Route, settlement: Settlement, sealer: TokenSealer) -> OperationSpan:
    """The operation of settling the tokens of ``settlement``, which ``sealer`` opens."""
    if trace is None or not trace.is_open:
        return UNTRACED
    return _Settling(trace, route, settlement, sealer)


def redriving(trace: Trace | None, route: Route) -> OperationSpan:
    """The operation of redriving dead letters of ``route``."""
    return UNTRACED if trace is None else _Redriving(trace, route)


class _Carrying(OperationSpan):
    """An operation of a request that is not sampled: the request's own context is passed on."""

    __slots__ = ("_route", "_trace")

    def __init__(self, trace: Trace, route: Route) -> None:
        self._trace = trace
        self._route = route

    def carrying(self, outgoing: Outgoing) -> Outgoing:
        return _carrying(outgoing, self._route, self._trace.context, self._trace.baggage)


class _Traced(OperationSpan):
    __slots__ = ("_errors", "_kind", "_leases", "_route", "_span", "_trace")

    def __init__(self, trace: Trace, route: Route) -> None:
        self._trace = trace
        self._route = route
        self._span: RecordedSpan | None = None
        self._errors: list[BabelgateError] = []
        self._kind = ""
        self._leases = _NO_LEASES

    @property
    def traceparent(self) -> str | None:
        return None if self._span is None else self._span.context.traceparent

    def concerned(self, leases: Sequence[Lease]) -> None:
        self._leases = leases

    def ended(self, outcomes: Iterable[BabelgateError | None]) -> None:
        if self._span is not None:
            self._errors += [outcome for outcome in outcomes if outcome is not None]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        if error is not None:
            self._span.fail(error_type(error), error.detail if isinstance(error, BabelgateError) else None)
        elif self._errors:
            self._span.fail(error_type(self._errors[0]), f"{len(self._errors)} failed; {self._errors[0].detail}")
        # At the end: the first operation on a queue finds out its address.
        self._span.add(self._route.native.traced(self._kind, None))
        self._span.end()

    def _with_places(self, kind: str, leases: Sequence[Lease]) -> Sequence[_Message]:
        """The facts of each message, and the attributes that its place at the broker gives for this ``kind``."""
        traced = self._route.native.traced
        of_all = traced(kind, None)
        return [(each.facts, dict(traced(kind, each.handle).items() - of_all.items())) for each in leases]

    def _start(
        self,
        operation: str,
        kind: Kind,
        parent: RecordedSpan | Context,
        began: int,
        attributes: Attributes,
        links: Sequence[tuple[Context, Attributes]],
    ) -> RecordedSpan:
        recorder = self._trace.tracing.recorder
        assert recorder is not None
        route = self._route
        self._kind = _TYPES.get(operation, "settle")
        common = {
            **self._trace.tracing.systems.get(route.broker, {}),
            "messaging.operation.name": operation,
            "messaging.operation.type": self._kind,
            "messaging.destination.name": route.queue,
        }
        return recorder.start(f"{operation} {route.queue}", kind, parent, began, {**common, **attributes}, links)


class _Sending(_Traced):
    __slots__ = ("_context",)

    def __init__(
        self,
        trace: Trace,
        route: Route,
        sent: Sequence[tuple[Envelope, Outgoing]],
        batch: bool,
        parent: RecordedSpan | Context,
    ) -> None:
        super().__init__(trace, route)
        facts = [
            Facts(each.attempts, each.id, each.trace_id, size=len(each.body), traceparent=out.headers.get(TRACEPARENT))
            for each, out in sent
        ]
        attributes, links = _described([(each, {}) for each in facts], parent, batch)
        self._span = self._start("send", "PRODUCER", parent, time.time_ns(), attributes, links)
        self._context = self._span.context

    def carrying(self, outgoing: Outgoing) -> Outgoing:
        return _carrying(outgoing, self._route, self._context, self._trace.baggage)


class _Receiving(_Traced):
    __slots__ = ("_began",)

    def __init__(self, trace: Trace, route: Route) -> None:
        super().__init__(trace, route)
        self._began = time.time_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        trace, leases = self._trace, self._leases
        if trace.context is None and not leases and not isinstance(error, Exception):
            # Polls that return nothing would be most of all traces.
            trace.decline()
            return
        parent = trace.decide(*_parent_of(leases))
        if parent is not None:
            # The conventions want a link to each publish, also where that is the parent.
            messages = self._with_places("receive", leases)
            attributes, links = _described(messages, parent, len(messages) != 1, link_parent=True)
            self._span = self._start("receive", "CLIENT", parent, self._began, attributes, links)
            super().__exit__(kind, error, where)


class _Settling(_Traced):
    __slots__ = ()

    def __init__(self, trace: Trace, route: Route, settlement: Settlement, sealer: TokenSealer) -> None:
        super().__init__(trace, route)
        tokens = _tokens(settlement)
        several = sum(map(len, tokens.values()))
        began = time.time_ns()
        # The parent is taken from the message only if there is exactly one and the request has no context.
        leases = _known(route, tokens, sealer) if several == 1 and trace.context is None else _NO_LEASES
        parent = trace.decide(*_parent_of(leases))
        if parent is None:
            return
        messages = self._with_places("settle", leases or _known(route, tokens, sealer))
        attributes, links = _described(messages, parent, several != 1)
        operation = next(iter(tokens)) if len(tokens) == 1 else "settle"
        self._span = self._start(operation, "CLIENT", parent, began, attributes, links)


class _Redriving(_Traced):
    __slots__ = ()

    def __init__(self, trace: Trace, route: Route) -> None:
        super().__init__(trace, route)
        parent = trace.decide()
        if parent is not None:
            self._span = self._start("redrive", "CLIENT", parent, time.time_ns(), {}, ())


def _carrying(outgoing: Outgoing, route: Route, context: Context | None, baggage: str) -> Outgoing:
    if not route.capabilities.headers:
        return outgoing
    headers = with_context(outgoing.headers, context, baggage)
    return outgoing if headers is outgoing.headers else replace(outgoing, headers=headers)


def error_type(error: BaseException) -> str:
    """The value of error.type: an error's code, or the name of a class."""
    return error.problem_code if isinstance(error, BabelgateError) else type(error).__name__


def _described(
    messages: Sequence[_Message], parent: RecordedSpan | Context, batch: bool, *, link_parent: bool = False
) -> tuple[Attributes, Sequence[tuple[Context, Attributes]]]:
    """The attributes of a span for ``messages``, and its links to their contexts.

    ``link_parent``: a context that travelled is linked also where it is the parent.
    """
    origin = _origin(parent)
    links: list[tuple[Context, Attributes]] = []
    for message in messages:
        facts, _ = message
        context = of_message(facts.traceparent, facts.trace_id)
        # The parent needs no link, and neither does a context computed from the same trace.
        if context is None or ((context.trace_id, context.span_id) == origin and not link_parent):
            continue
        if context.flags is not None or context.trace_id != origin[0]:
            links.append((context, _of_message(message) if batch else {}))
    if batch:
        return {"messaging.batch.message_count": len(messages)}, links
    return (_of_message(messages[0]) if messages else {}), links


def _origin(parent: RecordedSpan | Context) -> tuple[str, str]:
    """The trace id, and the id of the parent span of the whole request; empty if the request is the root."""
    if isinstance(parent, Context):
        return parent.trace_id, parent.span_id
    above = parent.span.parent
    return parent.context.trace_id, "" if above is None else f"{above.span_id:016x}"


def _of_message(message: _Message) -> Attributes:
    facts, place = message
    attributes: dict[str, Any] = {
        "messaging.message.id": facts.message_id,
        "messaging.message.conversation_id": facts.trace_id,
        "messaging.message.body.size": facts.size,
        "messaging.babelqueue.attempts": facts.attempts,
        **place,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _parent_of(leases: Sequence[Lease]) -> tuple[str | None, str | None]:
    """The ``traceparent`` and ``trace_id`` of a single message; several messages give no parent."""
    return (leases[0].facts.traceparent, leases[0].facts.trace_id) if len(leases) == 1 else (None, None)


def _tokens(settlement: Settlement) -> Mapping[str, Sequence[str]]:
    """The tokens of each action that has any."""
    tokens = {
        "ack": settlement.acks,
        "nack": [token for nack in settlement.nacks for token in nack.ack_tokens],
        "reject": [token for reject in settlement.rejects for token in reject.ack_tokens],
        "extend": [token for extend in settlement.extends for token in extend.ack_tokens],
    }
    return {action: each for action, each in tokens.items() if each}


def _known(route: Route, tokens: Mapping[str, Sequence[str]], sealer: TokenSealer) -> Sequence[Lease]:
    """The content of those of ``tokens`` that can be opened; the results of the others say why not."""
    leases = []
    for each in tokens.values():
        for token in each:
            with suppress(Exception):
                leases.append(sealer.open(token, route.queue))
    return leases
