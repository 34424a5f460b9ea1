"""Cross-origin resource sharing (CORS): the web pages of which origins may call the API and read its answers.

https://fetch.spec.whatwg.org/#http-cors-protocol. Answers never allow credentials: a page shows a bearer token, and
cookies mean nothing to the API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from babelgate.gateway.names import is_queue_name
from babelgate.gateway.routing import Router, Rule
from babelgate.http.problems import RawHeaders

ANY = "*"
REQUEST_METHOD = b"access-control-request-method"
"""Marks an OPTIONS request as a preflight: https://fetch.spec.whatwg.org/#cors-preflight-request"""

_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_REQUEST_HEADERS = (
    "authorization",
    "content-type",
    "content-encoding",
    "idempotency-key",
    "brokerproperties",
    "x-request-id",
    "traceparent",
    "tracestate",
    "baggage",
)
"""The headers that operations read, besides those that need no permission."""
_EXPOSED = (
    b"Accept-Encoding, Ack-Token, Allow, Idempotency-Replayed, Lease-Expires-At, Location, Message-Headers, "
    b"RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id, traceparent"
)
"""The headers of answers that a script may read, besides those that need no permission."""
_CLOUD_EVENTS = b"ce-"
"""Begins the names of the headers that carry a CloudEvent in binary mode; an event may have any attribute:
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md#3132-http-header-values"""
_NAME = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_QUEUES = "/queues/"
_CONSOLE = "/console"


class CorsPolicy:
    """What pages may do. ``origins``: of these pages, as browsers send them, or ``*`` for all. ``headers``: further
    names of request headers. ``max_age``: how many seconds a browser may remember the answer to a preflight."""

    def __init__(self, origins: Iterable[str], headers: Iterable[str] = (), max_age: int = 600) -> None:
        self._origins = frozenset(origin.encode("ascii") for origin in origins)
        self._all = ANY.encode() in self._origins
        self._headers = ", ".join([*_REQUEST_HEADERS, *(name.lower() for name in headers)]).encode("ascii")
        self._max_age = b"%d" % max_age

    def crossing(self, origin: bytes | None) -> Crossing:
        """What this policy says to a request of a page of ``origin``; None: no page has sent it."""
        if self._all:
            # The same for every origin, so caches need no Vary.
            allowed = origin is not None
            return Crossing(self, allowed, [(b"access-control-allow-origin", b"*"), _EXPOSE] if allowed else [])
        if origin is None or origin not in self._origins:
            return Crossing(self, False, [_VARY])
        return Crossing(self, True, [(b"access-control-allow-origin", origin), _EXPOSE, _VARY])

    def preflight(self, asked: bytes) -> RawHeaders:
        """The headers of the answer to a preflight of an allowed origin, besides those of every answer. ``asked``: the
        names of the headers that the page wants to send."""
        names = [name.strip().lower() for name in asked.split(b",")]
        events = [name for name in names if name.startswith(_CLOUD_EVENTS) and _NAME.issuperset(name)]
        return [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", b", ".join([self._headers, *events])),
            (b"access-control-max-age", self._max_age),
            (b"vary", b"access-control-request-headers"),
        ]


_EXPOSE = (b"access-control-expose-headers", _EXPOSED)
_VARY = (b"vary", b"origin")


class Crossing(NamedTuple):
    """Whether the page that sent a request is allowed to, and the headers that every answer to it has."""

    policy: CorsPolicy
    allowed: bool
    headers: RawHeaders


class CorsRules:
    """The policies of a gateway: one for all paths, and those of routes, each of which replaces it for its queues.

    ``routes``: by the ``match`` of the rule; ``default``: that of the default route.
    """

    def __init__(
        self,
        router: Router,
        everywhere: CorsPolicy | None,
        routes: Mapping[str, CorsPolicy],
        default: CorsPolicy | None = None,
    ) -> None:
        self._router = router
        self._everywhere = everywhere
        self._routes = routes
        self._default = default

    def of_path(self, path: str, origin: bytes | None) -> Crossing | None:
        """What applies to a request for ``path``, without prefix; None where no policy does. Pages of other origins
        have no business in the console."""
        if path.startswith(_CONSOLE):
            return None
        return self.of_queue(path[len(_QUEUES) :].partition("/")[0] if path.startswith(_QUEUES) else "", origin)

    def of_queue(self, queue: str, origin: bytes | None) -> Crossing | None:
        """The same for a path of ``queue``; of no queue if that is no name of one."""
        # A verb of a queue, such as ``:purge``, follows its name.
        queue = queue.partition(":")[0]
        policy = self._everywhere
        if is_queue_name(queue):
            policy = self._of_rule(self._router.rule(queue))
        return None if policy is None else policy.crossing(origin)

    def lines(self, queue: str, origin: bytes | None) -> bytes:
        """The lines of the head of an answer that is written without the application."""
        crossing = None if origin is None else self.of_queue(queue, origin)
        return b"" if crossing is None else b"".join([b"%b: %b\r\n" % field for field in crossing.headers])

    def _of_rule(self, rule: Rule | None) -> CorsPolicy | None:
        if rule is None:
            return self._everywhere
        if rule is self._router.default:
            return self._default or self._everywhere
        return self._routes.get(rule.match, self._everywhere)
