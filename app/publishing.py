"""How messages get in: read, carried to the broker of their queue, confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from app import envelope
from app.brokers.binding import Outgoing
from app.claims import Claim
from app.clock import Clock
from app.envelope import Envelope, Limits, Publication
from app.errors import BabelgateError
from app.idempotency import Result, chosen_key, claim, fingerprint
from app.lanes import Lane
from app.model import Projection, Receipt, Replay
from app.observe.events import Event, Facts, Observe
from app.observe.tracing import Trace
from app.observe.tracing_operations import carrying, sending
from app.routing import Route, chunks

_Ready = tuple[int, Envelope, Outgoing, Claim | None]
"""A message that can be published: its place among the bodies, and what the broker needs."""


class Publisher:
    """Turns the bodies of clients into messages, and reports those that a broker has durably accepted."""

    def __init__(self, limits: Limits, clock: Clock, observe: Observe) -> None:
        self._limits = limits
        self._clock = clock
        self._observe = observe

    async def one(
        self,
        lane: Lane,
        body: bytes,
        delay_seconds: float | None,
        ordering_key: str | None,
        trace: Trace | None,
        key: str | None = None,
        sent: bytes | None = None,
    ) -> Receipt:
        """Publish one envelope, draft or entry, together with others that come at the same time.

        ``key``: under it once, and a Replay after that; ``sent``: what the client sent, where ``body`` was made of it.
        """
        publication = self._read(lane, body, trace)
        outgoing = lane.outgoing(publication, delay_seconds, ordering_key)
        claim = None
        if key is not None or publication.idempotency_key is not None:
            sent_as = fingerprint(body if sent is None else sent, delay_seconds, ordering_key)
            claim = _claim(lane, publication, key, sent_as)
        with sending(trace, lane.route, [(publication.envelope, outgoing)], batch=False) as span:
            outgoing = span.carrying(outgoing)
            if claim is None:
                outcome: Result = await lane.publisher.submit(outgoing)
            else:
                outcome = await lane.keyed.submit((outgoing, claim))
            if outcome is not None:
                if isinstance(outcome, Replay):
                    return outcome
                raise outcome
        self._accepted(lane.route, [(publication.envelope, outgoing)])
        return _receipt(lane.route, publication.envelope)

    async def several(self, lane: Lane, bodies: Sequence[bytes], trace: Trace | None) -> list[Receipt | BabelgateError]:
        """Publish each in order; one result per body. Raises no BabelgateError."""
        results: list[Receipt | BabelgateError | None] = [None] * len(bodies)
        ready: list[_Ready] = []
        for index, body in enumerate(bodies):
            try:
                publication = self._read(lane, body, trace)
                outgoing, claim = lane.outgoing(publication, None, None), None
                if publication.idempotency_key is not None:
                    claim = _claim(lane, publication, None, fingerprint(body, None, None))
                ready.append((index, publication.envelope, outgoing, claim))
            except BabelgateError as error:
                results[index] = error
        with sending(trace, lane.route, [(sent, outgoing) for _, sent, outgoing, _ in ready], batch=True) as span:
            if trace is not None:
                ready = [(index, sent, span.carrying(outgoing), claim) for index, sent, outgoing, claim in ready]
            for chunk in chunks(ready, lane.route.capabilities.max_batch):
                await self._publish(lane, chunk, results)
            span.ended(result for index, *_ in ready if isinstance(result := results[index], BabelgateError))
        return [result for result in results if result is not None]

    def projected(
        self, lane: Lane, body: bytes, delay_seconds: float | None, ordering_key: str | None, trace: Trace | None
    ) -> Projection:
        """What a publish would write, with the request's context where it would be that of a span to be made."""
        route = lane.route
        publication = self._read(lane, body, trace)
        outgoing = carrying(trace, route, lane.outgoing(publication, delay_seconds, ordering_key))
        if publication.idempotency_key is not None:
            _claim(lane, publication, None, fingerprint(body, delay_seconds, ordering_key))
        return Projection(outgoing.body, route.queue, route.broker, route.native.name, outgoing.headers)

    def _read(self, lane: Lane, body: bytes, trace: Trace | None) -> Publication:
        trace_id = None if trace is None else trace.trace_id
        return envelope.read_publication(body, lane.route.queue, self._limits, self._clock, trace_id)

    async def _publish(
        self,
        lane: Lane,
        chunk: Sequence[_Ready],
        results: list[Receipt | BabelgateError | None],
    ) -> None:
        """Publish what the broker takes at once; the result of each goes to its place."""
        outcomes: Sequence[Result]
        try:
            if any(claim is not None for *_, claim in chunk):
                outcomes = await lane.once([(outgoing, claim) for _, _, outgoing, claim in chunk])
            else:
                outcomes = await lane.publish([outgoing for _, _, outgoing, _ in chunk])
        except BabelgateError as error:
            outcomes = [error] * len(chunk)
        accepted: list[tuple[Envelope, Outgoing]] = []
        for (index, sent, outgoing, _), outcome in zip(chunk, outcomes, strict=True):
            results[index] = _receipt(lane.route, sent) if outcome is None else outcome
            if outcome is None:
                accepted.append((sent, outgoing))
        if accepted:
            self._accepted(lane.route, accepted)

    def _accepted(self, route: Route, accepted: Sequence[tuple[Envelope, Outgoing]]) -> None:
        facts = [
            Facts(
                sent.attempts,
                sent.id,
                sent.trace_id,
                sent.job,
                sent.created_at,
                sent.lang,
                len(sent.body),
                outgoing.headers.get("traceparent"),
            )
            for sent, outgoing in accepted
        ]
        bodies = [sent.body for sent, _ in accepted]
        self._observe(Event("accepted", route.queue, route.broker, len(facts), messages=facts, bodies=bodies))


def _claim(lane: Lane, publication: Publication, key: str | None, sent_as: bytes) -> Claim:
    """That ``publication`` be published once, under the key of the request's head or its own."""
    lane.require_keys()
    chosen = chosen_key(key, publication.idempotency_key)
    return claim(lane.route, chosen, sent_as, _receipt(lane.route, publication.envelope))


def _receipt(route: Route, sent: Envelope) -> Receipt:
    return Receipt(sent.id, sent.trace_id, route.queue, route.broker, sent.attempts, sent.created_at)
