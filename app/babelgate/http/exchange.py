"""One HTTP request and its answer, on ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from starlette.types import Message, Receive, Scope, Send

from babelgate.errors import BabelgateError, InternalError
from babelgate.gateway.authorization import Caller
from babelgate.gateway.rate_limits import Quota
from babelgate.http.accepted_bodies import AcceptRule
from babelgate.http.cors import Crossing
from babelgate.http.heads import check_repeated, check_target, head_lines, request_id_of
from babelgate.http.parts import PART_BYTES, Parts, cut, send_parts
from babelgate.http.problems import CONTENT_TYPE as PROBLEM
from babelgate.http.problems import Given, RawHeaders, problem
from babelgate.http.traced import RequestTrace
from babelgate.identities.certificates import ClientCertificate
from babelgate.observe.logs import get_logger
from babelgate.observe.tracing.trace import TRACEPARENT

JSON = b"application/json"
DISCARDED_BYTES = 64 * 1024 * 1024
DISCARDED_SECONDS = 5

_WATCH_AFTER_SECONDS = 0.02

WHOLE = "babelgate.whole"
"""The name of the ASGI extension that the gateway's own server offers: a :class:`Whole`."""

log = get_logger(__name__)

Result = TypeVar("Result")


class Whole(Protocol):
    """Takes the body and sends the answer of a request in one piece, without messages.

    ``fields``: the fields of the head by their names; of a repeated one the last. ``disconnected``: the server has
    noticed that the client disconnected. ``certificate``: that of the client, if callers are known by theirs.
    """

    certificate: ClientCertificate | None
    fields: dict[bytes, bytes]
    disconnected: bool

    def take_body(self) -> bytes | None:
        """The whole body, if it has arrived and nothing of it was received before."""

    def answer(self, status: int, fields: bytes, body: bytes) -> bool:
        """Send the whole answer. ``fields``: the lines of its head, with its length, without the empty line. False:
        nothing was sent, and it must be sent in messages."""

    def begin(self, status: int, fields: bytes) -> None:
        """Send the head of an answer of unknown length. ``fields``: the lines of its head, without its length."""

    async def write(self, part: bytes) -> None:
        """Send a part of its body; wait while the client has too much to read. Nothing is sent to one that has gone."""

    def end(self) -> None:
        """End this answer."""

    def switch(self, fields: bytes, received: Callable[[bytes], None]) -> None:
        """Send the head of an answer 101, and pass all later bytes of the client to ``received``. What is written from
        now on is sent as it is."""

    def write_now(self, part: bytes) -> None:
        """Send a part, and do not wait."""

    def read(self, reads: bool) -> None:
        """Read from the client, or do not."""


class ClientGone(Exception):
    """The client has disconnected, so no answer can be sent."""


class Exchange:
    """A request that is being served. ``caller`` and ``queue`` are set before its handler runs.

    ``certificate``: the client's, where callers are known by theirs.
    ``status``: of the answer, 0 before it starts; ``sent``: bytes of the answer's body; ``route``: the path template,
    empty when no endpoint matches; ``error``: the code of the problem; ``trace``: None when the request has no trace;
    ``crossing``: what CORS says to the page that sent it, None where nothing is configured; ``accepted``: the rule of
    the route for a body that is no message, None for one that is; ``quota``: its rates, None where none are configured.
    """

    __slots__ = (
        "accepted",
        "caller",
        "certificate",
        "crossing",
        "error",
        "headers",
        "path",
        "queue",
        "quota",
        "receive",
        "request_id",
        "route",
        "scope",
        "send",
        "sent",
        "status",
        "trace",
        "unread",
        "whole",
    )

    caller: Caller
    queue: str

    def __init__(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path = path
        # Taken out, because a reference from the scope back to its request would keep both until a collection.
        self.whole: Whole | None = scope.get("extensions", {}).pop(WHOLE, None)
        # Only the gateway's own server verifies any.
        self.certificate = None if self.whole is None else self.whole.certificate
        self.headers: dict[bytes, bytes] = dict(scope["headers"]) if self.whole is None else self.whole.fields
        self.request_id = request_id_of(self.headers)
        self.status = 0
        self.sent = 0
        self.route = ""
        self.error: str | None = None
        self.trace: RequestTrace | None = None
        self.crossing: Crossing | None = None
        self.accepted: AcceptRule | None = None
        self.quota: Quota | None = None
        self.unread = True

    @property
    def sampled(self) -> tuple[str, str] | None:
        """The trace id and span id in hexadecimal; None when the request is not traced."""
        return None if self.trace is None else self.trace.sampled

    @property
    def has_body(self) -> bool:
        """Whether the client announced a body."""
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    @property
    def announced(self) -> int:
        """The Content-Length, or 0 without one."""
        return int(self.headers.get(b"content-length", b"0"))

    async def answer(
        self, status: int, body: bytes, content_type: bytes = JSON, headers: RawHeaders | None = None
    ) -> None:
        """Send an answer."""
        length = self.sent = len(body)
        is_read = not self.unread or not self.has_body or self._has_arrived()
        if is_read:
            self.status = status
            if self.whole is not None and length <= PART_BYTES:
                is_plain = headers is None and self.trace is None and self.crossing is None and self.quota is None
                more = None if is_plain else self.more(headers)
                fields = head_lines(content_type, length, self.request_id, more)
                if self.whole.answer(status, fields, body):
                    return
        sent = [(b"content-type", content_type), (b"content-length", b"%d" % length), *self.head(headers)]
        if not is_read:
            await self._answer_a_writing_client(status, body, sent)
            return
        await self.send({"type": "http.response.start", "status": status, "headers": sent})
        if length > PART_BYTES:
            await send_parts(self.send, cut(body))
            body = b""
        await self.send({"type": "http.response.body", "body": body})

    async def answer_nothing(self, headers: RawHeaders) -> None:
        """Send 204, without body and length."""
        self.status = 204
        await self.send({"type": "http.response.start", "status": 204, "headers": self.head(headers)})
        await self.send({"type": "http.response.body", "body": b""})

    async def answer_parts(
        self, status: int, parts: Parts, headers: RawHeaders | None = None, content_type: bytes = JSON
    ) -> None:
        """Send an answer in parts. The body must have been read."""
        sent = [(b"content-type", content_type), (b"content-length", b"%d" % parts.length), *self.head(headers)]
        self.status, self.sent = status, parts.length
        await self.send({"type": "http.response.start", "status": status, "headers": sent})
        await send_parts(self.send, parts.parts)
        await self.send({"type": "http.response.body", "body": b""})

    async def begin(self, content_type: bytes, headers: RawHeaders) -> None:
        """Send the head of an answer 200 of unknown length. The body of the request must have been read."""
        self.status = 200
        if self.whole is not None:
            fields = [(b"content-type", content_type), *self.head(headers)]
            self.whole.begin(200, b"".join([b"%b: %b\r\n" % field for field in fields]))
            return
        sent = [(b"content-type", content_type), *self.head(headers)]
        await self.send({"type": "http.response.start", "status": 200, "headers": sent})

    def switch(self, headers: RawHeaders, received: Callable[[bytes], None]) -> None:
        """Answer 101, and pass all later bytes of the client to ``received``. Only the gateway's own server can."""
        assert self.whole is not None
        self.status = 101
        fields = b"".join([b"%b: %b\r\n" % field for field in self.head(headers)])
        self.whole.switch(fields, received)

    async def write(self, part: bytes) -> None:
        """Send a part of this answer; wait while the client has too much to read."""
        self.sent += len(part)
        if self.whole is not None:
            await self.whole.write(part)
        else:
            await self.send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """End this answer."""
        if self.whole is not None:
            self.whole.end()
        else:
            await self.send({"type": "http.response.body", "body": b""})

    async def fail(
        self, error: BabelgateError, more: dict[str, Any] | None = None, *, token: str | None = None
    ) -> None:
        """Send the problem of ``error``, with the members ``more``. ``token``: the pointer of the only ack token."""
        self.error = error.problem_code
        given = Given(self.scope["query_string"], self.headers, token)
        status, headers, body = problem(error, self.path, more, given)
        await self.answer(status, body, PROBLEM, headers)

    def head(self, headers: RawHeaders | None = None) -> RawHeaders:
        """``headers`` and the headers of every answer. A ``traceparent`` in ``headers`` replaces the request's."""
        return [(b"x-request-id", self.request_id), *self.more(headers)]

    def more(self, headers: RawHeaders | None) -> RawHeaders:
        """``headers``, those of CORS and of rates, and the ``traceparent`` of the request unless they have one."""
        headers = headers or []
        if self.quota is not None:
            headers = self.quota.fields() + headers
        if self.crossing is not None:
            headers = self.crossing.headers + headers
        if self.trace is None or any(name == TRACEPARENT for name, _ in headers):
            return headers
        return self.trace.head() + headers

    def ids(self) -> dict[str, str]:
        """The ids of this request for log lines."""
        ids = {"request_id": self.request_id.decode("ascii")}
        sampled = self.sampled
        return ids if sampled is None else ids | {"trace_id": sampled[0], "span_id": sampled[1]}

    def gone(self) -> bool:
        """Whether the server has noticed that the client disconnected. The body must have been read. Never waits."""
        if self.whole is not None:
            return self.whole.disconnected
        message = self._next()
        return message is not None and message["type"] == "http.disconnect"

    def check_connected(self) -> None:
        """Raise ClientGone if the server has noticed that the client disconnected. Never waits.

        A server other than the gateway's own reports this only after the body has been read.
        """
        if self.whole.disconnected if self.whole is not None else not self.unread and self.gone():
            raise ClientGone

    async def unless_gone(self, work: Awaitable[Result]) -> Result:
        """The result of ``work``, which is cancelled when the client disconnects; raises ClientGone then.

        The body must have been read. For work that changes nothing, or that undoes what it did when it is cancelled.
        """
        watch = _Watch(self)
        try:
            return await work
        except asyncio.CancelledError:
            if watch.saw_it():
                raise ClientGone from None
            raise
        finally:
            watch.end()

    def _has_arrived(self) -> bool:
        """Whether an unread body has arrived completely; it is then dropped. Never waits. A small body arrives with its
        head, so its connection can be kept."""
        if 0 < self.announced <= PART_BYTES and b"expect" not in self.headers:
            message = self._next()
            self.unread = message is None or message.get("more_body", False)
        return not self.unread

    def _next(self) -> Message | None:
        """The next ASGI message if there is one now, else None: one step of ``receive``, which waits when awaited."""
        waiting = self.receive().__await__()
        try:
            next(waiting)
        except StopIteration as returned:
            message: Message = returned.value
            return message
        waiting.close()
        return None

    async def _answer_a_writing_client(self, status: int, body: bytes, headers: RawHeaders) -> None:
        """Answer, then discard up to 64 MiB of the body for 5 s: closing at once would reset the connection of a client
        that is still writing, before it reads the answer."""
        self.status = status
        headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        left = DISCARDED_BYTES
        try:
            async with asyncio.timeout(DISCARDED_SECONDS):
                while left > 0:
                    message = await self.receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            pass
        await self.send({"type": "http.response.body", "body": b""})


class _Watch:
    """Cancels the task that created it when the client disconnects. It starts after 20 ms, because most answers are
    faster than the creation of a task."""

    def __init__(self, exchange: Exchange) -> None:
        waiter = asyncio.current_task()
        assert waiter is not None
        self._waiter = waiter
        self._exchange = exchange
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, self._begin)

    def saw_it(self) -> bool:
        """Whether only this watch cancelled the task."""
        return self._task is not None and self._task.done() and not self._waiter.uncancel()

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            # The task references this watch: without this, only the garbage collector would free both.
            self._task = None

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._waiter.cancel()


async def carry_out(exchange: Exchange, serve: Callable[[Exchange], Awaitable[None]]) -> None:
    """Serve one request. A BabelgateError becomes its problem; any other exception is logged and becomes a 500."""
    try:
        # The gateway's own server has checked this already, but another ASGI server may not have.
        if len(exchange.headers) < len(exchange.scope["headers"]):
            check_repeated(exchange.scope["headers"])
        if exchange.whole is None:
            check_target(exchange.scope["raw_path"], exchange.scope["query_string"])
        await serve(exchange)
    except ClientGone:
        pass
    except BabelgateError as error:
        await exchange.fail(error)
        error.without_frames()
    except Exception:
        log.exception("request failed", **exchange.ids())
        if exchange.status:
            raise
        await exchange.fail(InternalError())
