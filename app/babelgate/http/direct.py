"""Serves ordinary publishes, receives and acks directly: without ASGI, a task and coroutines.

A request is ordinary when it has no field that its endpoint reads, its body is short and came with its head, and
nothing of it is refused. The application serves any other request, untouched. So refusals are made in one place, and
both ways have the same answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from babelgate.errors import BabelgateError, InternalError
from babelgate.gateway.access import Access
from babelgate.gateway.admission import Permit
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Message
from babelgate.gateway.pauses import Pauses
from babelgate.gateway.rate_limits import Quota
from babelgate.gateway.receive import Waiter
from babelgate.http.accepted_bodies import AcceptedBodies
from babelgate.http.auth import Auth
from babelgate.http.consume import ENVELOPE, EVENT_TYPES, NO_STORE, ONE_ACK, ONLY_TOKEN, PAUSED, answer_of, encoded
from babelgate.http.exchange import JSON, log
from babelgate.http.heads import RequestTarget, head_lines, request_id_of
from babelgate.http.parts import PART_BYTES, json_list
from babelgate.http.problems import CONTENT_TYPE as PROBLEM
from babelgate.http.problems import Given, problem
from babelgate.http.publish import UNUSUAL
from babelgate.http.publish_parameters import given
from babelgate.http.schemas import AckRequest, ReceiveRequest, from_body, from_query
from babelgate.http.traced import GONE
from babelgate.identities.certificates import ClientCertificate
from babelgate.observe.tracing.trace import BAGGAGE, TRACEPARENT
from babelgate.runtime import turns
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

_CALLERS_BYTES = 2 * 1024 * 1024
_CALLER_BYTES = 1_500
"""Most bytes of a remembered caller, whose two fields have at most _MAX_FIELD_BYTES together."""
_MAX_FIELD_BYTES = 1_000

DIRECT = "babelgate.direct"
"""The key of the process's DirectEndpoints in the lifespan's state, which the server passes to its connections."""

MAX_BODY_BYTES = 8_192
"""Reading an ordinary body up to this size takes a tenth of a millisecond: it needs no turn of its own."""

_JSON_TYPES = frozenset(
    {JSON, *(b"application/json;%bcharset=%b" % each for each in product((b"", b" "), (b"utf-8", b"UTF-8")))}
)
_BROWSER_HEADERS = frozenset({b"origin", b"sec-fetch-site"})
"""A request with one of them may come from a web page: the application decides whether it is admitted."""
_NEEDS_ASGI = UNUSUAL | _BROWSER_HEADERS | {b"content-encoding", b"expect", b"transfer-encoding", TRACEPARENT, BAGGAGE}

_PUBLISH, _RECEIVE, _ACK = "messages", "messages:receive", "messages:ack"
_TEMPLATES = {verb: f"/queues/{{queue}}/{verb}" for verb in (_PUBLISH, _RECEIVE, _ACK)}
_NO_STORE = b"%b: %b\r\n" % NO_STORE
_encode = msgspec.json.Encoder().encode
_DEFAULTS = ReceiveRequest()
_decode_ack = msgspec.json.Decoder(AckRequest).decode

Observe = Callable[[str, str, int, str, str | None, float], None]
"""Called with the method, the template of the path, the status, the scheme, the type of a failure of the server, and
the duration in seconds of each request."""


class DirectRequest(Protocol):
    """A request that may be served directly."""

    target: RequestTarget
    scheme: str
    certificate: ClientCertificate | None

    @property
    def fields(self) -> Mapping[bytes, bytes]:
        """The fields of the head by their names."""

    @property
    def disconnected(self) -> bool:
        """Whether the client has gone."""

    def answer(self, status: int, fields: bytes, body: bytes) -> bool:
        """Send the whole answer, unless the client has gone."""

    async def answer_parts(self, status: int, fields: bytes, parts: Iterable[bytes]) -> None:
        """Send a large answer, until the client has gone."""

    def when_gone(self, call: Callable[[], object]) -> None:
        """Call ``call`` when the client disconnects, also after the answer."""


_CallerKey = tuple[bytes | None, bytes | None]
"""The fields ``authorization`` and ``host``, on which alone it depends who the caller is."""

_Endpoint = Callable[[DirectRequest, bytes, Access, float, Quota | None], bytes | None]


class DirectEndpoints:
    """The endpoints of one process."""

    def __init__(
        self,
        gateway: Gateway,
        auth: Auth,
        prefix: str = "",
        observe: Observe | None = None,
        accepting: AcceptedBodies | None = None,
    ) -> None:
        """``prefix``: of paths, which a proxy may leave on requests. ``accepting``: bodies that are no messages."""
        self._accepting = accepting
        self._gateway = gateway
        self._prefix = prefix.rstrip("/")
        self._auth = auth
        self._observe = observe
        self._callers: Cache[_CallerKey, Caller] = Cache(_CALLERS_BYTES, _CALLER_BYTES)
        self._endpoints: Mapping[str, tuple[Right, _Endpoint]] = {
            _PUBLISH: (Right.SEND, self._publish),
            _RECEIVE: (Right.LISTEN, self._receive),
            _ACK: (Right.LISTEN, self._ack),
        }

    def configure(self, accepting: AcceptedBodies | None) -> None:
        """Serve by another configuration from now on; ``accepting``: as before."""
        self._accepting = accepting
        self._callers.clear()

    def takes(self, method: bytes, verb: str, query: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """Whether a request with this head may be served directly."""
        return (
            verb in self._endpoints
            and method == b"POST"
            and (not query or verb == _RECEIVE)
            and fields.get(b"content-type", JSON) in _JSON_TYPES
            and _NEEDS_ASGI.isdisjoint(fields)
        )

    def begin(self, request: DirectRequest, body: bytes) -> bytes | None:
        """Begin to serve a request that :meth:`takes` has accepted, and that gets its answer later.

        Returns None, or the body with which the application has to serve it, because it is not ordinary or is refused.
        """
        path, queue, verb = request.target.path, request.target.queue, request.target.verb
        if len(body) > MAX_BODY_BYTES or path.removeprefix(self._prefix) != f"/queues/{queue}/{verb}":
            return body
        began = time.perf_counter()
        right, endpoint = self._endpoints[verb]
        fields = request.fields
        try:
            key = fields.get(b"authorization"), fields.get(b"host")
            caller = self._callers.get(key)
            if request.certificate is not None:
                caller = self._auth.admit(fields, certificate=request.certificate)
            elif caller is None or (caller.ends_at is not None and caller.has_ended(self._auth.clock())):
                caller = self._admitted(key, fields)
            access = self._gateway.access(caller, right, queue)
            if self._gateway.rate_limits is not None:
                return self._limited(self._gateway.rate_limits.of(caller, access.route), request, body, access, began)
            return endpoint(request, body, access, began, None)
        except Exception as error:
            if not isinstance(error, BabelgateError):
                log.exception("request not served directly")
            return body

    def _limited(
        self, quota: Quota | None, request: DirectRequest, body: bytes, access: Access, began: float
    ) -> bytes | None:
        """Serve a request within its rates; one beyond them is refused by the application."""
        verb = request.target.verb
        size = len(body) if verb == _PUBLISH else None
        if quota is not None and not (quota.allows(1, size) and (verb != _RECEIVE or quota.has_place("receives"))):
            return body
        left = self._endpoints[verb][1](request, body, access, began, quota)
        if left is None and quota is not None:
            quota.take(1, size)
        return left

    def _admitted(self, key: _CallerKey, fields: Mapping[bytes, bytes]) -> Caller:
        caller = self._auth.admit(fields)
        if sum(len(value or b"") for value in key) <= _MAX_FIELD_BYTES:
            self._callers.keep(key, caller)
        return caller

    def _publish(
        self, request: DirectRequest, body: bytes, access: Access, began: float, quota: Quota | None
    ) -> bytes | None:
        gateway = self._gateway
        if self._accepting is not None and self._accepting.takes_json(access.route.queue):
            return body
        permit = gateway.admission.publish(access.route.broker, len(body))
        try:
            begun = gateway.begin_publish(access, body)
        except BaseException:
            permit.release()
            raise
        if isinstance(begun, bytes):
            permit.release()
            return begun
        receipt, outcome = begun
        outcome.add_done_callback(_Answer(self._observe, request, began, 201, _encode(receipt), permit, quota))
        return None

    def _receive(
        self, request: DirectRequest, body: bytes, access: Access, began: float, quota: Quota | None
    ) -> bytes | None:
        gateway, query = self._gateway, request.target.query
        accept = request.fields.get(b"accept", b"")
        if (query and body) or ENVELOPE in accept or EVENT_TYPES in accept:
            return body
        parameters, lease_seconds = _DEFAULTS, None
        if body or query:
            parameters = from_body(body, ReceiveRequest) if body else from_query(query, ReceiveRequest)
            lease_seconds = given(parameters.lease_seconds)
        permit = gateway.admission.receive(access.route.broker)
        try:
            if quota is not None:
                permit.then = quota.enter("receives")
            begun = gateway.begin_receive(access, parameters.max_messages, parameters.wait_seconds, lease_seconds)
        except BaseException:
            permit.release()
            raise
        if begun is None:
            permit.release()
            return body
        receiver, waiter = begun
        request.when_gone(partial(receiver.leave, waiter))
        delivery = _Delivery(self._observe, request, began, permit, waiter, gateway.pauses, quota)
        waiter.future.add_done_callback(delivery)
        return None

    def _ack(
        self, request: DirectRequest, body: bytes, access: Access, began: float, quota: Quota | None
    ) -> bytes | None:
        gateway = self._gateway
        try:
            tokens = _decode_ack(body).ack_tokens
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return body
        outcome = gateway.begin_ack(access, tokens[0]) if len(tokens) == 1 else None
        if outcome is None:
            return body
        outcome.add_done_callback(_Answer(self._observe, request, began, 200, ONE_ACK, None, quota))
        return None


class _Answer(Struct, eq=False):
    """Answers a request when its outcome is known, and gives its permit back. ``body``: of the answer on success."""

    observe: Observe | None
    request: DirectRequest
    began: float
    status: int
    body: bytes
    permit: Permit | None
    quota: Quota | None

    def __call__(self, outcome: asyncio.Future[Any]) -> None:
        if self.permit is not None:
            self.permit.release()
        error: BabelgateError | None
        try:
            error = outcome.result()
        except Exception as raised:
            error = _error_of(raised, self.request)
        if error is not None:
            _fail(self.request, error, self.began, self.observe, self.quota)
            return
        request, body, status, quota = self.request, self.body, self.status, self.quota
        more = None if quota is None else quota.fields()
        request.answer(status, head_lines(JSON, len(body), request_id_of(request.fields), more), body)
        if self.observe is not None:
            template = _TEMPLATES[request.target.verb]
            self.observe("POST", template, status, request.scheme, None, time.perf_counter() - self.began)


class _Delivery(Struct, eq=False):
    """Answers a receive when it has ended, and gives its permit back. Messages whose client has gone are given back."""

    observe: Observe | None
    request: DirectRequest
    began: float
    permit: Permit
    waiter: Waiter
    pauses: Pauses
    quota: Quota | None

    def __call__(self, outcome: asyncio.Future[list[Message]]) -> None:
        request = self.request
        if outcome.cancelled():
            self._end(0, GONE)
            return
        try:
            messages = outcome.result()
        except Exception as raised:
            self.permit.release()
            _fail(request, _error_of(raised, request), self.began, self.observe, self.quota)
            return
        if request.disconnected:
            self.waiter.receiver.return_later(messages)
            self._end(0, GONE)
            return
        size = sum([len(message.body) for message in messages])
        if size > PART_BYTES:
            self.permit.hold(size)
            _sending.start(self._send(messages))
            return
        is_paused = not messages and self.pauses.get(request.target.queue) is not None
        body = PAUSED if is_paused else answer_of(messages)
        request.answer(200, self._head(len(body)), body)
        self._end(200)

    async def _send(self, messages: list[Message]) -> None:
        failure: str | None = InternalError.code
        try:
            parts = json_list(b'{"messages":[', await turns.mapped(encoded, messages), b"]}")
            del messages
            await self.request.answer_parts(200, self._head(parts.length), parts.parts)
            failure = None
        finally:
            self._end(200 if failure is None else 0, failure)

    def _head(self, length: int) -> bytes:
        more = None if self.quota is None else self.quota.fields()
        return head_lines(JSON, length, request_id_of(self.request.fields), more) + _NO_STORE

    def _end(self, status: int, error: str | None = None) -> None:
        self.permit.release()
        if self.observe is not None:
            seconds = time.perf_counter() - self.began
            self.observe("POST", _TEMPLATES[_RECEIVE], status, self.request.scheme, error, seconds)


_sending: BackgroundTasks[None] = BackgroundTasks()
"""Large answers, each of which ends with its connection at the latest."""


def _error_of(raised: Exception, request: DirectRequest) -> BabelgateError:
    if isinstance(raised, BabelgateError):
        return raised
    log.error("request failed", exc_info=raised, request_id=request_id_of(request.fields).decode("ascii"))
    return InternalError()


def _fail(
    request: DirectRequest, error: BabelgateError, began: float, observe: Observe | None, quota: Quota | None
) -> None:
    """Answer with the problem of ``error``."""
    verb = request.target.verb
    given = Given(request.target.query, request.fields, ONLY_TOKEN if verb == _ACK else None)
    status, headers, body = problem(error, f"/queues/{request.target.queue}/{verb}", given=given)
    if quota is not None:
        headers = quota.fields() + headers
    request.answer(status, head_lines(PROBLEM, len(body), request_id_of(request.fields), headers), body)
    if observe is not None:
        failure = error.problem_code if status >= 500 else None
        observe("POST", _TEMPLATES[verb], status, request.scheme, failure, time.perf_counter() - began)
