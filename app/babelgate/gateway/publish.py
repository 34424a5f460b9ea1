"""Publishes messages: reads the bodies, sends them through the queue's runtime, and makes the receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from babelgate import envelope
from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches
from babelgate.brokers.errors import failure_for_each
from babelgate.brokers.idempotency_store import KeyClaim
from babelgate.clock import Clock
from babelgate.envelope import Envelope, Limits, Publication
from babelgate.envelope.contract import uuid_warnings
from babelgate.errors import BabelgateError, InternalError, Problem, UnsupportedByBroker
from babelgate.gateway.authorization import Caller
from babelgate.gateway.broker_calls import PendingPublish
from babelgate.gateway.idempotency import KeyedResult, claim, fingerprint
from babelgate.gateway.model import Projection, Receipt
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.request_options import agreed
from babelgate.gateway.routing import Route
from babelgate.gateway.schema_checks import SchemaChecks
from babelgate.gateway.spans import UNTRACED, carrying, sending
from babelgate.observe.tracing.trace import Trace, Tracing
from babelgate.runtime import turns

Begun = tuple[Receipt, "asyncio.Future[KeyedResult]"]
"""The receipt of a message once its outcome is None, and the future of this outcome."""

_Ready = tuple[int, PendingPublish]
"""A message to publish and its position among the bodies."""


class Publisher:
    """Publishes the bodies that clients sent."""

    def __init__(self, limits: Limits, clock: Clock, schema_checks: SchemaChecks) -> None:
        self._limits = limits
        self._clock = clock
        self._schemas = schema_checks

    async def publish(
        self,
        runtime: QueueRuntime,
        caller: Caller,
        body: bytes,
        delay_seconds: float | None,
        ordering_key: str | None,
        trace: Trace | None,
        key: str | None = None,
        sent: bytes | None = None,
        broker_properties: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """Publish one envelope, draft or entry, in one batch with other publishes of the same moment.

        ``key``: the idempotency key; a repeated call returns a Replay. ``sent``: the bytes that the client sent, if
        ``body`` was converted from them. ``options``: further options of the request.
        """
        runtime.check_publishes()
        if len(body) <= turns.SMALL_BYTES:
            # Most bodies, so without another call.
            trace_id = None if trace is None else trace.trace_id
            publication = envelope.read_publication(body, runtime.route.queue, self._limits, self._clock, trace_id)
        else:
            publication = await turns.run(self._publication, runtime, trace, body, size=len(body))
        if runtime.route.policy.schema != "off":
            await self._schemas.check(runtime.route, publication.envelope)
        outgoing = runtime.outgoing(publication, delay_seconds, ordering_key, broker_properties, options)
        claim = None
        if key is not None or publication.idempotency_key is not None:
            properties = None if broker_properties is None else outgoing.properties
            sent_as = fingerprint(body if sent is None else sent, delay_seconds, ordering_key, properties, options)
            claim = _claim(runtime, caller.name, publication, key, sent_as)
        outcome: KeyedResult
        span = UNTRACED
        if trace is not None:
            span = sending(trace, runtime.route, [(publication.envelope, outgoing)], batch=False)
        if span is UNTRACED:
            outcome = await runtime.submit(PendingPublish(publication.envelope, outgoing, claim))
            if isinstance(outcome, BabelgateError):
                try:
                    raise _placed(outcome, publication.envelope)
                finally:
                    # Its traceback keeps this frame: a reference back would be a cycle, and keep the runtime, too.
                    del outcome
        else:
            with span:
                outcome = await runtime.submit(PendingPublish(publication.envelope, span.carrying(outgoing), claim))
                # The span records the error.
                if isinstance(outcome, BabelgateError):
                    try:
                        raise _placed(outcome, publication.envelope)
                    finally:
                        del outcome
        return _receipt(runtime.route, publication.envelope) if outcome is None else outcome

    def begin(self, runtime: QueueRuntime, body: bytes, tracing: Tracing) -> Begun | bytes:
        """Begin to publish an ordinary body: its receipt, and the future of its outcome. For one of any other kind
        nothing is done, and :meth:`publish` must be called with the body that is returned."""
        runtime.check_publishes()
        sent = envelope.read_ordinary(body, runtime.route.queue, self._limits, self._clock)
        if sent is None:
            return body
        if tracing.sampling.bound and tracing.samples(sent.trace_id):
            # It has its trace id by now, on which the sampler decides.
            return sent.body
        if runtime.route.policy.schema != "off" and self._schemas.is_reported(sent):
            return body
        pending = PendingPublish(sent, runtime.outgoing(Publication(sent), None, None))
        # Like `runtime.submit`, for a message without a claim.
        outcome: asyncio.Future[Any] = runtime.publisher.submit(pending)
        return _receipt(runtime.route, sent), outcome

    async def publish_many(
        self, runtime: QueueRuntime, caller: Caller, bodies: Sequence[bytes], trace: Trace | None
    ) -> list[Receipt | BabelgateError]:
        """Publish each in order; one result per body. Raises nothing: an unexpected error is the ``__cause__`` of an
        InternalError, the result of the bodies that it concerns. The caller logs it."""
        try:
            runtime.check_publishes()
        except BabelgateError as error:
            return failure_for_each(error, len(bodies))
        results: list[Receipt | BabelgateError | None] = [None] * len(bodies)
        ready: list[_Ready] = []
        read = partial(self._pending_publish, runtime, caller, trace)
        pendings = await turns.mapped(read, bodies, size=len, background=True)
        if runtime.route.policy.schema != "off":
            pendings = await self._schemas.checked(runtime.route, pendings)
        for index, pending in enumerate(pendings):
            if isinstance(pending, BabelgateError):
                results[index] = pending
            else:
                ready.append((index, pending))
        sent = [(pending.envelope, pending.outgoing) for _, pending in ready]
        with sending(trace, runtime.route, sent, batch=True) as span:
            if trace is not None:
                ready = [
                    (index, replace(pending, outgoing=span.carrying(pending.outgoing))) for index, pending in ready
                ]
            sizes = [len(pending.envelope.body) for _, pending in ready]
            for chunk in batches(ready, runtime.route.capabilities.max_batch, BATCH_BYTES, sizes):
                await self._publish_batch(runtime, chunk, results)
            span.ended(result for index, _ in ready if isinstance(result := results[index], BabelgateError))
        return [result for result in results if result is not None]

    async def project(
        self,
        runtime: QueueRuntime,
        caller: str,
        body: bytes,
        delay_seconds: float | None,
        ordering_key: str | None,
        trace: Trace | None,
        broker_properties: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Projection:
        """The message that a publish would write. Its trace context is the request's: no span is made."""
        route = runtime.route
        publication = await turns.run(self._publication, runtime, trace, body, size=len(body), background=True)
        found: Sequence[Problem] = ()
        if route.policy.schema != "off":
            found = await self._schemas.dry_run(route, publication.envelope)
        outgoing = runtime.outgoing(publication, delay_seconds, ordering_key, broker_properties, options)
        outgoing = carrying(trace, route, outgoing)
        keys = None
        if publication.idempotency_key is not None:
            properties = None if broker_properties is None else outgoing.properties
            sent_as = fingerprint(body, delay_seconds, ordering_key, properties, options)
            _claim(runtime, caller, publication, None, sent_as)
            keys = runtime.keys_info
        warnings = (*uuid_warnings(publication.envelope.id, publication.envelope.trace_id), *found)
        try:
            writes = await route.projection(outgoing)
        except UnsupportedByBroker as error:
            raise _placed(error, publication.envelope) from None
        return Projection(
            outgoing.body,
            route.queue,
            route.broker,
            route.native.name,
            outgoing.headers,
            warnings,
            writes,
            outgoing.delay_seconds,
            outgoing.ordering_key,
            keys,
        )

    def _publication(self, runtime: QueueRuntime, trace: Trace | None, body: bytes) -> Publication:
        trace_id = None if trace is None else trace.trace_id
        return envelope.read_publication(body, runtime.route.queue, self._limits, self._clock, trace_id)

    def _pending_publish(
        self, runtime: QueueRuntime, caller: Caller, trace: Trace | None, body: bytes
    ) -> PendingPublish | BabelgateError:
        """The message of an entry of a batch, or the error of an invalid one."""
        try:
            publication = self._publication(runtime, trace, body)
            outgoing, claim = runtime.outgoing(publication, None, None), None
            if publication.idempotency_key is not None:
                claim = _claim(runtime, caller.name, publication, None, fingerprint(body, None, None))
            return PendingPublish(publication.envelope, outgoing, claim)
        except BabelgateError as error:
            return error.without_frames()
        except Exception as error:
            return InternalError.caused_by(error)

    async def _publish_batch(
        self,
        runtime: QueueRuntime,
        chunk: Sequence[_Ready],
        results: list[Receipt | BabelgateError | None],
    ) -> None:
        """Publish one native batch; write each result to its position in ``results``."""
        outcomes: Sequence[KeyedResult]
        try:
            pendings = [pending for _, pending in chunk]
            if any(pending.claim is not None for pending in pendings):
                outcomes = await runtime.keyed_sender.publish(pendings)
            else:
                outcomes = await runtime.calls.publish(pendings, coalesced=False)
        except BabelgateError as error:
            outcomes = failure_for_each(error, len(chunk))
        except Exception as error:
            outcomes = [InternalError.caused_by(error)] * len(chunk)
        for (index, pending), outcome in zip(chunk, outcomes, strict=True):
            if isinstance(outcome, BabelgateError):
                results[index] = _placed(outcome, pending.envelope)
            else:
                results[index] = _receipt(runtime.route, pending.envelope) if outcome is None else outcome


def _placed(error: BabelgateError, sent: Envelope) -> BabelgateError:
    """``error``, with which the broker refused ``sent``, with a pointer in the body of the client."""
    return error.moved(sent.placed(error.pointer)) if isinstance(error, UnsupportedByBroker) else error


def _claim(runtime: QueueRuntime, caller: str, publication: Publication, key: str | None, sent_as: bytes) -> KeyClaim:
    """The claim of the idempotency key of ``publication``: ``key`` of the request, or the body's own."""
    runtime.require_keys()
    chosen = publication.idempotency_key
    if key is not None:
        chosen = agreed("idempotency_key", "the header Idempotency-Key", key, chosen)
    assert chosen is not None
    return claim(runtime.route, caller, chosen, sent_as, _receipt(runtime.route, publication.envelope))


def _receipt(route: Route, sent: Envelope) -> Receipt:
    return Receipt(sent.id, sent.trace_id, route.queue, route.broker, sent.attempts, sent.created_at)
