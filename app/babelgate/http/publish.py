"""Hot endpoints that publish one message or a batch."""

from __future__ import annotations

import re

import msgspec

from babelgate.cloudevents import BATCHED, EVENT_FIELDS, is_binary
from babelgate.envelope.options import IDEMPOTENCY_KEY
from babelgate.envelope.publication import ENTRY_ALLOWANCE
from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    BrokerUnavailable,
    InternalError,
    InvalidIdempotencyKey,
    TooManyFailures,
    TooManyLines,
)
from babelgate.gateway.access import Access
from babelgate.gateway.authorization import Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Replay
from babelgate.http.body import RequestLimits, arrived, media_type, read, require_json
from babelgate.http.broker_properties import NAME as BROKER_PROPERTIES
from babelgate.http.broker_properties import from_header, refuse_header
from babelgate.http.conversions import (
    EVENT,
    EVENTS,
    JOB,
    JOBS,
    STRUCTURED_EVENTS,
    Conversion,
    all_located,
    conversion_of,
    entries,
    entry,
    located,
)
from babelgate.http.exchange import JSON, ClientGone, Exchange, log
from babelgate.http.problems import HttpError, RawHeaders, UnsupportedMediaType
from babelgate.http.publish_parameters import PublishParameters, given, options_of
from babelgate.http.results import BatchResults
from babelgate.http.schemas import NoParameters, from_query
from babelgate.http.spool import Spool
from babelgate.http.upload import CHUNK_BYTES, Upload, array_chunks, line_chunks
from babelgate.ojs import MEDIA_TYPE
from babelgate.runtime import turns

_REPLAYED: RawHeaders = [(b"idempotency-replayed", b"true")]

_HEADER = "Idempotency-Key"
_NAME = _HEADER.lower().encode()
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-~]+")
_ESCAPED = re.compile(r'\\(["\\])')
UNUSUAL = frozenset({_NAME, BROKER_PROPERTIES}) | EVENT_FIELDS
"""The fields, besides Content-Type, that :meth:`Publishing.one` reads."""
PAGE_VERBS = frozenset({"messages", "messages:batch"})
"""What the token of a page can ask of a queue."""
NDJSON = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines"})

_encode = msgspec.json.Encoder().encode


class Publishing:
    """The endpoints that publish messages."""

    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    async def one(self, exchange: Exchange) -> None:
        """Publish one message; 201 when it is durable. A batch of events is published like any other batch."""
        query, headers = exchange.scope["query_string"], exchange.headers
        # Not by max_entry_bytes, which would be one more call of each publish.
        most = self._limits.max_message_bytes + ENTRY_ALLOWANCE
        conversion: Conversion | None = None
        page = exchange.caller.page
        accepted = exchange.accepted
        if accepted is not None:
            accepted.check_head(headers)
            from_query(query, NoParameters)
            refuse_header(exchange, "a body that the route accepts has none")
            conversion = accepted.conversion(headers)
        elif headers.get(b"content-type") != JSON or not EVENT_FIELDS.isdisjoint(headers):
            if media_type(exchange) == EVENTS:
                await self.batch(exchange)
                return
            conversion = conversion_of(exchange, BATCHED)
        if page is not None:
            most = min(most, page.max_message_bytes)
        delay = ordering_key = options = None
        if query:
            parameters = from_query(query, PublishParameters)
            delay, ordering_key = given(parameters.delay_seconds), given(parameters.ordering_key)
            options = options_of(parameters)
        key = _idempotency_key(exchange) if _NAME in headers else None
        if accepted is not None:
            key = accepted.key(headers) or key
        access = self._gateway.access(exchange.caller, Right.SEND, exchange.queue)
        properties = from_header(exchange) if BROKER_PROPERTIES in headers else None
        with self._gateway.admission.publish(access.route.broker, _size(exchange, most)) as permit:
            body = arrived(exchange, most, permit)
            if body is None:
                body = await read(exchange, most, permit)
            sent = body if conversion is None else conversion.sent(body)
            if page is not None:
                page.take(len(sent))
            if accepted is not None and accepted.signature is not None:
                now = self._gateway.clock()
                await turns.run(accepted.signature.verify, headers, body, now, size=len(body))
            publishing = self._gateway.publish(
                exchange.caller,
                access,
                body
                if conversion is None
                else await entry(
                    conversion, access.route.queue, body, self._gateway.clock, exchange.trace, delay, options
                ),
                delay_seconds=delay,
                ordering_key=ordering_key,
                trace=exchange.trace,
                idempotency_key=key,
                sent=sent,
                broker_properties=properties,
                options=options,
            )
            receipt = await (publishing if conversion is None else located(conversion, publishing, body))
        replayed = _REPLAYED if type(receipt) is Replay else None
        await exchange.answer(201, _encode(receipt), headers=replayed)

    async def batch(self, exchange: Exchange) -> None:
        """Publish the entries of a JSON array or of NDJSON, in order; 201 when all were accepted, else 207. The answer
        starts after the last entry."""
        from_query(exchange.scope["query_string"], NoParameters)
        _refuse_idempotency_key(exchange)
        refuse_header(exchange, "each entry of a batch has its own, in its member broker_properties")
        with Spool() as spool:
            results = BatchResults(spool)
            try:
                if media_type(exchange) in NDJSON:
                    await self._lines(exchange, results)
                else:
                    await self._array(exchange, results, _conversion_of_array(exchange))
                    await results.answer(exchange)
            except (BabelgateError, ClientGone):
                raise
            except Exception:
                if exchange.status:
                    raise
                log.exception("request failed", **exchange.ids())
                await exchange.fail(InternalError(), results.counts())

    async def _array(self, exchange: Exchange, results: BatchResults, conversion: Conversion | None) -> None:
        access = self._access(exchange)
        most = self._limits_of(exchange).max_request_bytes
        with self._gateway.admission.batch(access.route.broker, _size(exchange, most)) as permit:
            body = await read(exchange, most, permit)
            upload = Upload(exchange, access, self._gateway)
            async for bodies in array_chunks(body):
                counted = upload.counted(bodies)
                if conversion is None:
                    await results.add(await upload.publish(counted))
                    continue
                made = await entries(conversion, exchange, counted, self._gateway.clock)
                await results.add(await all_located(conversion, await upload.publish(made), made, bodies))

    async def _lines(self, exchange: Exchange, results: BatchResults) -> None:
        """An upload that breaks off, has too many failed entries, or turns out to be too large or badly compressed,
        leaves its earlier entries published; the problem then contains the number of accepted entries."""
        access, limits = self._access(exchange), self._limits_of(exchange)
        size = _size(exchange, CHUNK_BYTES + limits.max_entry_bytes, CHUNK_BYTES)
        with self._gateway.admission.batch(access.route.broker, size):
            upload = Upload(exchange, access, self._gateway)
            try:
                async for chunk in line_chunks(exchange, limits):
                    upload.check_failures(results.accepted, results.failed)
                    await results.add(await upload.publish(upload.counted(chunk)))
            except (BodyTooLarge, TooManyLines, TooManyFailures, BrokerUnavailable, HttpError) as error:
                await exchange.fail(error, results.counts())
            else:
                await results.answer(exchange)

    def _limits_of(self, exchange: Exchange) -> RequestLimits:
        """The limits of a batch. That of a page has at most the messages of a minute."""
        page, limits = exchange.caller.page, self._limits
        if page is None:
            return limits
        most = page.per_minute * page.max_message_bytes
        return RequestLimits(
            min(page.max_message_bytes, limits.max_message_bytes),
            min(most, limits.max_request_bytes),
            min(most, limits.max_stream_bytes),
            min(page.per_minute, limits.max_stream_lines),
        )

    def _access(self, exchange: Exchange) -> Access:
        return self._gateway.access(exchange.caller, Right.SEND, exchange.queue)


def _conversion_of_array(exchange: Exchange) -> Conversion | None:
    """The conversion of the elements of a JSON array; None for entries. Raises UnsupportedMediaType."""
    kind = media_type(exchange)
    if kind == JOB:
        return JOBS
    if kind == EVENTS:
        return STRUCTURED_EVENTS
    others = [MEDIA_TYPE, BATCHED, *sorted(kind.decode() for kind in NDJSON)]
    if kind == EVENT or is_binary(exchange.headers):
        reason = f"The body must be an array: {', '.join(['application/json', *others])}. Send one event to /messages."
        raise UnsupportedMediaType(reason=reason)
    require_json(exchange, *others)
    return None


def _size(exchange: Exchange, most: int, usual: int = 0) -> int:
    """The bytes of a body that are in memory: at most ``most``, or ``usual`` without a Content-Length. The permit for
    them is taken before the body is read."""
    size = usual if b"content-encoding" in exchange.headers else exchange.announced or usual
    return min(size, most)


def _idempotency_key(exchange: Exchange) -> str | None:
    """The value of the header Idempotency-Key; None without one. Raises InvalidIdempotencyKey.

    draft-ietf-httpapi-idempotency-key-header: a string of a structured field (RFC 9651, section 3.3.3), ``"…"`` with
    the escapes ``\\"`` and ``\\\\``. A text without quotes and spaces is accepted as well, because clients send that.
    """
    given = exchange.headers.get(_NAME)
    if given is None:
        return None
    if sum(name == _NAME for name, _ in exchange.scope["headers"]) > 1:
        raise InvalidIdempotencyKey(reason="the header occurs more than once", header=_HEADER)
    text = given.decode("latin-1").strip(" \t")
    quoted = _STRING.fullmatch(text)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text
    if not IDEMPOTENCY_KEY.fullmatch(key) or not (quoted or _BARE.fullmatch(text)):
        raise InvalidIdempotencyKey(reason="must be a string of 1 to 255 printable ASCII characters", header=_HEADER)
    return key


def _refuse_idempotency_key(exchange: Exchange) -> None:
    """Raise InvalidIdempotencyKey for a batch with the header, because a key identifies one message."""
    if _NAME in exchange.headers:
        reason = "each entry of a batch has its own key, in its member idempotency_key"
        raise InvalidIdempotencyKey(reason=reason, header=_HEADER)
