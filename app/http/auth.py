"""Who is calling: bearer tokens, or anyone with the rule that keeps web pages out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from app.errors import Forbidden, Unauthenticated
from app.gateway.authorization import ANYONE, NOBODY, Caller

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Auth:
    """How callers are known.

    ``callers``: the holder of each token, by the lower-case SHA-256 hex of the token; None means ``auth: none``.
    ``hosts``: names, without port, that this service is reached under besides the loopback ones (an IPv6 address stands
    in brackets); they matter without credentials only. ``open_readyz``: whether ``/readyz`` names brokers to anyone.
    """

    callers: Mapping[str, Caller] | None = None
    hosts: frozenset[str] = frozenset()
    open_readyz: bool = False

    def admit(self, headers: Headers) -> Caller:
        """The caller of a request. Raises Unauthenticated, or Forbidden for a web page of somebody else."""
        if self.callers is None:
            self._keep_pages_out(headers)
            return ANYONE
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated
        # A look-up by digest takes a time that depends on the digest alone, and nobody can steer a SHA-256 towards a
        # stored one byte by byte: as good as a constant-time comparison with each, and independent of their number.
        caller = self.callers.get(hashlib.sha256(token.strip()).hexdigest())
        if caller is None:
            raise Unauthenticated
        return caller

    def prober(self, headers: Headers) -> Caller:
        """The caller of ``/readyz``, which is refused to nobody: its rights decide which brokers it is told of."""
        if self.open_readyz:
            return ANYONE
        try:
            return self.admit(headers)
        except (Unauthenticated, Forbidden):
            return NOBODY

    def _keep_pages_out(self, headers: Headers) -> None:
        """Without credentials any page a user visits could receive, also by a name of its own that it points at us."""
        host = headers.get(b"host")
        if host is not None and not self._own(host):
            raise Forbidden(reason="This Host is not one of this service; list it in `hosts`, or configure tokens.")
        origin = headers.get(b"origin")
        if origin is not None and not self._own(origin.partition(b"://")[2]):
            raise Forbidden(reason="Pages of this Origin may not use this service; list its host, or configure tokens.")
        # "none" is a user's own request, as from the address bar: https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
        site = headers.get(b"sec-fetch-site")
        if site is not None and site.strip().lower() not in (b"same-origin", b"none"):
            raise Forbidden(reason="Pages of other sites, hosts and ports may not use this service.")

    def _own(self, host: bytes) -> bool:
        name = host.decode("latin-1").strip().lower()
        if name in LOOPBACK or name in self.hosts:
            return True
        name, _, port = name.rpartition(":")
        return port.isdigit() and (name in LOOPBACK or name in self.hosts)
