"""Serves ordinary publishes and acks directly: without ASGI, a task and coroutines.

A request is ordinary when it has no query and no field that its endpoint reads, its body is short and came with its
head, and nothing of it is refused. What is not ordinary is passed to the application with nothing done. So refusals
are made in one place, and both ways have the same answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Protocol

import msgspec

from app.errors import BabelgateError
from app.gateway.admission import Permit
from app.gateway.authorization import Right
from app.gateway.gateway import Gateway
from app.http.auth import Auth
from app.http.consume import ONE_ACK
from app.http.exchange import JSON, head_lines, log, request_id_of
from app.http.heads import RequestTarget
from app.http.problems import CONTENT_TYPE as PROBLEM
from app.http.problems import InternalError, problem
from app.http.publish import UNUSUAL
from app.http.schemas import AckRequest
from app.observe.tracing.trace import BAGGAGE, TRACEPARENT

DIRECT = "babelgate.direct"
"""The key of the process's DirectEndpoints in the lifespan's state, which the server passes to its connections."""

MAX_BODY_BYTES = 8_192
"""Reading an ordinary body up to this size takes a tenth of a millisecond: it needs no turn of its own."""

_JSON_TYPES = frozenset(
    {JSON, *(b"application/json;%bcharset=%b" % each for each in product((b"", b" "), (b"utf-8", b"UTF-8")))}
)
_UNUSUAL = UNUSUAL | {b"content-encoding", b"expect", b"transfer-encoding", TRACEPARENT, BAGGAGE}

_encode = msgspec.json.Encoder().encode
_decode_ack = msgspec.json.Decoder(AckRequest).decode

Observe = Callable[[str, str, int, str | None, float], None]
"""Called with the verb, the scheme, the status, the problem's code and the duration in seconds of each request."""


class DirectRequest(Protocol):
    """A request that may be served directly."""

    target: RequestTarget
    scheme: str

    @property
    def fields(self) -> Mapping[bytes, bytes]:
        """The fields of the head by their names."""

    def answer(self, status: int, fields: bytes, body: bytes) -> bool:
        """Send the whole answer, unless the client has gone."""


class DirectEndpoints:
    """The endpoints of one process."""

    def __init__(self, gateway: Gateway, auth: Auth, prefix: str = "", observe: Observe | None = None) -> None:
        """``prefix``: of paths, which a proxy may leave on requests."""
        self._gateway = gateway
        self._prefix = prefix.rstrip("/")
        self._auth = auth
        self._observe = observe
        self._endpoints: Mapping[str, Callable[[DirectRequest, bytes, float], bytes | None]] = {
            "messages": self._publish,
            "messages:ack": self._ack,
        }

    def takes(self, method: bytes, verb: str, query: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """Whether a request with this head may be served directly."""
        return (
            verb in self._endpoints
            and method == b"POST"
            and not query
            and fields.get(b"content-type", JSON) in _JSON_TYPES
            and _UNUSUAL.isdisjoint(fields)
        )

    def begin(self, request: DirectRequest, body: bytes) -> bytes | None:
        """Begin to serve a request that :meth:`takes` has accepted, and that gets its answer later.

        Returns None, or the body with which the application has to serve it, because it is not ordinary or is refused.
        """
        path, queue, verb = request.target.path, request.target.queue, request.target.verb
        if len(body) > MAX_BODY_BYTES or path.removeprefix(self._prefix) != f"/queues/{queue}/{verb}":
            return body
        try:
            return self._endpoints[verb](request, body, time.perf_counter())
        except Exception as error:
            if not isinstance(error, BabelgateError):
                log.exception("request not served directly")
            return body

    def _publish(self, request: DirectRequest, body: bytes, began: float) -> bytes | None:
        gateway = self._gateway
        access = gateway.access(self._auth.admit(request.fields), Right.SEND, request.target.queue)
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
        outcome.add_done_callback(_Answer(self._observe, request, began, 201, _encode(receipt), permit))
        return None

    def _ack(self, request: DirectRequest, body: bytes, began: float) -> bytes | None:
        gateway = self._gateway
        access = gateway.access(self._auth.admit(request.fields), Right.LISTEN, request.target.queue)
        try:
            tokens = _decode_ack(body).ack_tokens
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return body
        outcome = gateway.begin_ack(access, tokens[0]) if len(tokens) == 1 else None
        if outcome is None:
            return body
        outcome.add_done_callback(_Answer(self._observe, request, began, 200, ONE_ACK, None))
        return None


class _Answer:
    """Answers a request when its outcome is known, and gives its permit back. ``body``: of the answer on success."""

    __slots__ = ("_began", "_body", "_observe", "_permit", "_request", "_status")

    def __init__(
        self,
        observe: Observe | None,
        request: DirectRequest,
        began: float,
        status: int,
        body: bytes,
        permit: Permit | None,
    ) -> None:
        self._observe = observe
        self._request = request
        self._began = began
        self._status = status
        self._body = body
        self._permit = permit

    def __call__(self, outcome: asyncio.Future[Any]) -> None:
        request, status, body = self._request, self._status, self._body
        if self._permit is not None:
            self._permit.release()
        request_id = request_id_of(request.fields)
        error: BabelgateError | None
        try:
            error = outcome.result()
        except Exception:
            log.exception("request failed", request_id=request_id.decode("ascii"))
            error = InternalError()
        if error is None:
            code, lines = None, head_lines(JSON, len(body), request_id)
        else:
            status, headers, body = problem(error, f"/queues/{request.target.queue}/{request.target.verb}")
            code, lines = error.problem_code, head_lines(PROBLEM, len(body), request_id, headers)
        request.answer(status, lines, body)
        if self._observe is not None:
            self._observe(request.target.verb, request.scheme, status, code, time.perf_counter() - self._began)
