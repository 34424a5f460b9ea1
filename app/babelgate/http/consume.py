"""Hot endpoints of consumers: receive and settle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import UNSET

from babelgate.cloudevents import BATCHED, PREFIX, event_of
from babelgate.errors import InvalidParameter
from babelgate.gateway.access import Access
from babelgate.gateway.authorization import Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Extend, Message, Nack, Reject, Settlement, SettleResult
from babelgate.http.body import arrived, is_null, read, require_json
from babelgate.http.broker_properties import as_header
from babelgate.http.conversions import EVENT, EVENTS
from babelgate.http.exchange import JSON, ClientGone, Exchange
from babelgate.http.parts import PART_BYTES, json_list
from babelgate.http.publish_parameters import given
from babelgate.http.results import log_defects, settle_outcome
from babelgate.http.schemas import (
    MAX_PARAMETER_BYTES,
    MAX_SETTLE_BYTES,
    NO_FAILURE,
    AckRequest,
    ExtendRequest,
    NackRequest,
    NoParameters,
    Read,
    ReceivedMessage,
    ReceivedView,
    ReceiveRequest,
    RejectRequest,
    SettleRequest,
    from_body,
    from_query,
)
from babelgate.observe.tracing.context import handed_out, trace_headers
from babelgate.runtime import turns

ENVELOPE = b"application/vnd.babelqueue.envelope+json"
EVENT_TYPES = PREFIX.encode()
"""What the media types of events begin with."""
NO_STORE = (b"cache-control", b"no-store")

MAX_HEADERS_BYTES = 4096
"""The most bytes of each of the fields Message-Headers and BrokerProperties. Proxies and clients refuse long fields:
nginx allows 4 or 8 KiB for all fields of an answer together
(https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffer_size)."""

_encode = msgspec.json.Encoder().encode
_DEFAULTS = ReceiveRequest()
ONE_ACK = _encode(settle_outcome([SettleResult(0, "ack")]))
"""The answer to a single ack."""
PAUSED = _encode(ReceivedView([], paused=True))
"""The answer to a receive from a paused queue."""
_PAUSED = (b"paused", b"true")
ONLY_TOKEN = "/ack_tokens/0"
"""The pointer of the token of a call with one."""


class Consuming:
    """The endpoints that receive and settle messages."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def receive(self, exchange: Exchange) -> None:
        """Deliver messages. The messages of a client that disconnects before the answer are given back."""
        access = self._access(exchange)
        with self._gateway.admission.receive(access.route.broker) as permit:
            body = arrived(exchange, MAX_PARAMETER_BYTES, permit)
            if body is None:
                body = await read(exchange, MAX_PARAMETER_BYTES, permit)
            query = exchange.scope["query_string"]
            parameters = parameters_of(exchange, query, body, ReceiveRequest) if query or body else _DEFAULTS
            form = _form_of(exchange.headers.get(b"accept", b""))
            if form in (ENVELOPE, EVENT) and parameters.max_messages != 1:
                what = f"a bare envelope, and for one event: accept {BATCHED} for several"
                raise InvalidParameter(name="max_messages", reason=f"must be 1 for {what}", pointer="/max_messages")
            if exchange.quota is not None:
                await exchange.quota.know("receives")
                access = self._access(exchange)  # Meanwhile the right may have been taken away.
                permit.then = exchange.quota.enter("receives")
            receiving = self._gateway.receive(
                exchange.caller,
                access,
                max_messages=parameters.max_messages,
                wait_seconds=parameters.wait_seconds,
                lease_seconds=given(parameters.lease_seconds),
                trace=exchange.trace,
            )
            messages = await (exchange.unless_gone(receiving) if parameters.wait_seconds else receiving)
            if messages and exchange.gone():
                await self._gateway.give_back(exchange.queue, messages)
                raise ClientGone
            permit.hold(sum([len(message.body) for message in messages]))
            is_paused = not messages and self._gateway.pauses.get(exchange.queue) is not None
            fields = [NO_STORE, _PAUSED] if is_paused else [NO_STORE]
            if form in (ENVELOPE, EVENT):
                if not messages:
                    await exchange.answer_nothing(fields)
                    return
                body = messages[0].body if form == ENVELOPE else (await self._events(exchange, messages))[0]
                await _answer_bare(exchange, messages[0], form, body)
                return
            if form == EVENTS:
                events = await self._events(exchange, messages)
                del messages
                await exchange.answer_parts(200, json_list(b"[", events, b"]"), fields, EVENTS)
                return
            if is_paused:
                await exchange.answer(200, PAUSED, headers=[NO_STORE])
                return
            # Only one copy of a large answer may wait for a slow reader.
            if permit.size <= PART_BYTES:
                answer = answer_of(messages)
                del messages
                await exchange.answer(200, answer, headers=[NO_STORE])
            else:
                parts = json_list(b'{"messages":[', await turns.mapped(encoded, messages), b"]}")
                del messages
                await exchange.answer_parts(200, parts, [NO_STORE])

    async def _events(self, exchange: Exchange, messages: Sequence[Message]) -> list[bytes]:
        """``messages`` as CloudEvents. Gives all back and raises at a mistake of ours: no caller has a token."""
        try:
            return await turns.mapped(partial(as_event, exchange.queue), messages, size=_size)
        except Exception:
            await self._gateway.give_back(exchange.queue, messages)
            raise

    def _access(self, exchange: Exchange) -> Access:
        return self._gateway.access(exchange.caller, Right.LISTEN, exchange.queue)

    async def ack(self, exchange: Exchange) -> None:
        """Acknowledge messages."""
        access, request = await self._body(exchange, AckRequest)
        await self._settle(exchange, access, Settlement(acks=request.ack_tokens))

    async def nack(self, exchange: Exchange) -> None:
        """Return messages to the queue as failed."""
        access, request = await self._body(exchange, NackRequest)
        await self._settle(exchange, access, Settlement(nacks=[_nack(request)]))

    async def reject(self, exchange: Exchange) -> None:
        """Dead-letter messages."""
        access, request = await self._body(exchange, RejectRequest)
        await self._settle(exchange, access, Settlement(rejects=[_reject(request)]))

    async def extend(self, exchange: Exchange) -> None:
        """Extend leases."""
        access, request = await self._body(exchange, ExtendRequest)
        await self._settle(exchange, access, Settlement(extends=[_extend(request)]))

    async def settle(self, exchange: Exchange) -> None:
        """Ack, nack, reject and extend in one call."""
        access, request = await self._body(exchange, SettleRequest)
        await self._settle(exchange, access, settlement_of(request), token=None)

    async def _body(self, exchange: Exchange, kind: type[Read]) -> tuple[Access, Read]:
        if exchange.scope["query_string"]:
            from_query(exchange.scope["query_string"], NoParameters)
        if exchange.headers.get(b"content-type") != JSON:
            require_json(exchange)
        access = self._access(exchange)
        size = min(exchange.announced, MAX_SETTLE_BYTES)
        with self._gateway.admission.other(access.route.broker, size) as permit:
            body = arrived(exchange, MAX_SETTLE_BYTES, permit)
            if body is None:
                body = await read(exchange, MAX_SETTLE_BYTES, permit)
            if len(body) <= turns.SMALL_BYTES:
                return access, from_body(body, kind)
            return access, await turns.run(from_body, body, kind, size=0)

    async def _settle(
        self, exchange: Exchange, access: Access, settlement: Settlement, token: str | None = ONLY_TOKEN
    ) -> None:
        """``token``: the pointer of the token if there is one; None: it follows from its action."""
        results = await self._gateway.settle(exchange.caller, access, settlement, exchange.trace)
        log_defects(exchange, exchange.queue, (result.error for result in results))
        if len(results) == 1:
            error = results[0].error
            if error is not None:
                action = results[0].action
                await exchange.fail(
                    error, token=token or ("/acks/0" if action == "ack" else f"/{action}s/0{ONLY_TOKEN}")
                )
                error.without_frames()
                return
            if results[0].action == "ack":
                await exchange.answer(200, ONE_ACK)
                return
        outcome = settle_outcome(results)
        await exchange.answer(207 if outcome.failed else 200, _encode(outcome))


def _form_of(accept: bytes) -> bytes:
    """The media type of the answer to a request that accepts ``accept``."""
    return next((form for form in (ENVELOPE, EVENTS, EVENT) if form in accept), JSON)


def as_event(queue: str, message: Message) -> bytes:
    """A message of ``queue`` as a CloudEvent in the JSON format."""
    return event_of(message, queue)


def _size(message: Message) -> int:
    return len(message.body)


def parameters_of(exchange: Exchange, query: bytes, body: bytes, kind: type[Read]) -> Read:
    """The parameters of a receive or a stream, in its query or its body."""
    takes_none = exchange.scope["method"] == "GET"
    if not body or is_null(body) or (takes_none and body.translate(None, b" \t\r\n") == b"{}"):
        return from_query(query, kind)
    if query or takes_none:
        reason = "parameters must be in the query or in the body of a POST, not in both"
        raise InvalidParameter(name="body", reason=reason, pointer="")
    require_json(exchange)
    return from_body(body, kind)


def settlement_of(request: SettleRequest) -> Settlement:
    """What the gateway does for a request with all four actions."""
    return Settlement(
        request.acks,
        [_nack(nack) for nack in request.nacks],
        [_reject(reject) for reject in request.rejects],
        [_extend(extend) for extend in request.extends],
    )


def _nack(request: NackRequest) -> Nack:
    error = request.error or NO_FAILURE
    return Nack(request.ack_tokens, request.delay_seconds, error.message, error.exception, request.failed)


def _reject(request: RejectRequest) -> Reject:
    error = request.error or NO_FAILURE
    return Reject(request.ack_tokens, error.message, error.exception)


def _extend(request: ExtendRequest) -> Extend:
    return Extend(request.ack_tokens, request.lease_seconds)


def answer_of(messages: Sequence[Message]) -> bytes:
    """The answer of a receive, as JSON."""
    return _encode(ReceivedView([_received(message) for message in messages]))


def encoded(message: Message) -> bytes:
    """A message of an answer, as JSON."""
    return _encode(_received(message))


def _received(message: Message) -> ReceivedMessage:
    return ReceivedMessage(
        message.ack_token,
        message.lease_expires_at,
        message.attempts,
        message.redelivered,
        handed_out(message.headers, message.trace_id),
        msgspec.Raw(message.body),
        message.broker_properties or UNSET,
    )


async def _answer_bare(exchange: Exchange, message: Message, form: bytes, body: bytes) -> None:
    """Answer with ``body``, which is ``message`` in this form; its other facts are fields of the answer."""
    headers = [
        NO_STORE,
        (b"ack-token", message.ack_token.encode("ascii")),
        (b"lease-expires-at", b"%d" % message.lease_expires_at),
        (b"attempts", b"%d" % message.attempts),
        (b"redelivered", b"true" if message.redelivered else b"false"),
    ]
    # The consumer continues the trace of the message, not that of this request.
    headers += [
        (name.encode(), value.encode()) for name, value in trace_headers(message.headers, message.trace_id).items()
    ]
    handed = handed_out(message.headers, message.trace_id)
    shown = json.dumps(handed, separators=(",", ":")).encode("ascii")
    if len(shown) <= MAX_HEADERS_BYTES:
        headers.append((b"message-headers", shown))
    if message.broker_properties and len(shown := as_header(message.broker_properties)) <= MAX_HEADERS_BYTES:
        headers.append((b"brokerproperties", shown))
    await exchange.answer(200, body, form, headers)
