"""Records in the audit trail what requests change, and who was refused."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from babelgate.gateway.authorization import NOBODY, Caller
from babelgate.http.exchange import JSON, Exchange
from babelgate.http.problems import RawHeaders
from babelgate.observe.audit.notes import NOTES, Fact
from babelgate.observe.audit.trail import Audit, AuditUnavailable

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_DRY_RUN = "/messages:validate"
_KINDS = {"/console/sign-in": "sign_in", "/console/sign-out": "sign_out"}
_PARAMETER = re.compile(r"\\{(\w+)\\}")


class AuditedExchange(Exchange):
    """A request that may change something. Its record is on the disk before its answer is sent.

    ``changes``: false once it is known that it changes nothing. ``notes``: what its operation adds to the record.
    """

    __slots__ = ("_audit", "_client", "_recorded", "changes", "notes")

    def __init__(self, scope: Scope, receive: Receive, send: Send, path: str, audit: HttpAudit) -> None:
        super().__init__(scope, receive, self._send, path)
        self._client = send
        self._audit = audit
        self._recorded = False
        self.changes = True
        self.notes: dict[str, Fact] = {}
        NOTES.set(self.notes)

    def require_record(self) -> None:
        """Raise AuditUnavailable where the request must not be carried out, because it could not be recorded."""
        if self.changes:
            self._audit.trail.require()

    async def answer(
        self, status: int, body: bytes, content_type: bytes = JSON, headers: RawHeaders | None = None
    ) -> None:
        """Record the request, and send an answer."""
        await self._record(status)
        await super().answer(status, body, content_type, headers)

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._record(message["status"])
        await self._client(message)

    async def _record(self, status: int) -> None:
        if self.take_record():
            await self._audit.record(self, status)

    def take_record(self) -> bool:
        """Whether the request is still to be recorded. Asked once."""
        taken, self._recorded = not self._recorded, True
        return taken


class HttpAudit:
    """What a process records of its requests: each that may change something, and each that is refused with 401 or 403.

    Publishes, receives and settles are in the journal; here are only those that were refused.
    """

    def __init__(self, trail: Audit) -> None:
        self.trail = trail

    def exchange(self, scope: Scope, receive: Receive, send: Send, path: str, is_hot: bool) -> Exchange:
        """The exchange of a request. ``is_hot``: it is one of messages."""
        if is_hot or scope["method"] in _READS or path.endswith(_DRY_RUN):
            return Exchange(scope, receive, send, path)
        return AuditedExchange(scope, receive, send, path, self)

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Record a refused request, and one that has no answer because its client has gone or the process stops."""
        status = exchange.status
        if isinstance(exchange, AuditedExchange):
            if status == 0 and exchange.route and exchange.changes and exchange.take_record():
                self.trail.record("operation", exchange.notes, **_members(exchange, None))
        elif status in (401, 403):
            self.trail.bounded(_caller(exchange), **_members(exchange, status))

    async def record(self, exchange: AuditedExchange, status: int) -> None:
        """Record a request that gets this status: before its answer, unless it changed nothing."""
        route, notes = exchange.route, exchange.notes
        kind = _KINDS.get(route, "operation")
        members = _members(exchange, status)
        caller = str(notes.pop("caller", "")) or _caller(exchange)
        # It was refused before its route was known, and changed nothing.
        unavailable = exchange.error == AuditUnavailable.code
        if kind == "operation":
            if status in (401, 403):
                kind = "refusal"
            elif (not route and not unavailable) or not exchange.changes:
                # An unknown path, or a page that only shows something.
                return
        if kind != "operation" or 400 <= status < 500 or unavailable:
            self.trail.bounded(caller, notes, kind=kind, **members)
        else:
            await self.trail.recorded(kind, notes, caller=caller, **members)


def _caller(exchange: Exchange) -> str | None:
    caller: Caller | None = getattr(exchange, "caller", None)
    return None if caller is None or caller is NOBODY else caller.name


def _members(exchange: Exchange, status: int | None) -> dict[str, Any]:
    """What a record says of any request, without its query, headers and body."""
    scope, route = exchange.scope, exchange.route
    client, trace, sampled = scope.get("client"), exchange.trace, exchange.sampled
    # Without a recorder of spans, that of the request's own headers.
    given = None if trace is None or trace.context is None else trace.context.trace_id
    parameters = parameters_of(route, exchange.path)
    return {
        "operation": f"{scope['method']} {route}" if route else None,
        "path": None if route else f"{scope['method']} {exchange.path}",
        "queue": parameters.pop("queue", None),
        "item": next(iter(parameters.values()), None),
        "status": status,
        "code": exchange.error,
        "address": client[0] if client else None,
        "request_id": exchange.request_id.decode("ascii"),
        "trace_id": sampled[0] if sampled else given,
    }


def parameters_of(route: str, path: str) -> dict[str, str]:
    """The parameters of ``path`` by the template ``route``; none if it does not fit."""
    found = _pattern(route).fullmatch(path)
    return {} if found is None else found.groupdict()


@cache
def _pattern(route: str) -> re.Pattern[str]:
    # The routes are those of the application: their number is fixed.
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+?)", re.escape(route)))
