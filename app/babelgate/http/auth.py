"""Authenticates callers by bearer token or client certificate, or allows anyone except foreign web pages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from babelgate.clock import Clock, now_ms
from babelgate.errors import Forbidden, Unauthenticated
from babelgate.gateway.authorization import ANYONE, NOBODY, Caller
from babelgate.identities.certificates import Certificates, ClientCertificate

_MAX_NAME = 300
"""More than the longest name of a host with a port: https://www.rfc-editor.org/rfc/rfc1035#section-2.3.4"""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

Headers = Mapping[bytes, bytes]


class SignedTokens(Protocol):
    """Finds callers by signed tokens. See :class:`babelgate.identities.identities.Identities`."""

    async def learn(self, token: bytes, *, may_wait: bool = True) -> None:
        """Verify ``token``, and put its caller into :attr:`Auth.callers`. Raises InvalidToken, IssuerUnavailable,
        and Unauthenticated for what is no signed token. ``may_wait``: for a key that is not known."""

    def ticket(self, digest: str) -> bytes:
        """What :meth:`reopen` of another process takes for the token with this SHA-256; empty: nothing."""

    def reopen(self, digest: str, ticket: bytes) -> None:
        """Put the caller of a token that another process verified into :attr:`Auth.callers`, if that still holds."""


@dataclass(frozen=True, slots=True)
class Auth:
    """Authenticates the callers of requests.

    ``callers``: the holder of each token, by the token's SHA-256 in lower-case hexadecimal. Whoever makes or verifies
    tokens adds their holders, and removes them; None means ``auth: none``.
    ``hosts``: names of this service without port, besides the loopback names, with IPv6 addresses in brackets; used
    only without credentials. ``open_readyz``: whether ``/readyz`` names brokers to anyone.
    """

    callers: dict[str, Caller] | None = None
    hosts: frozenset[str] = frozenset()
    open_readyz: bool = False
    clock: Clock = now_ms
    signed: SignedTokens | None = None
    certificates: Certificates | None = None

    def admit(
        self, headers: Headers, *, is_allowed_page: bool = False, certificate: ClientCertificate | None = None
    ) -> Caller:
        """Return the caller of a request. Raises Unauthenticated, or Forbidden for a foreign web page.

        ``is_allowed_page``: CORS allows the page that sent it. ``certificate``: of its connection. A token decides
        alone, also if it is not valid.
        """
        if self.callers is None:
            if is_allowed_page:
                self.check_host(headers)
                return ANYONE
            host = headers.get(b"host", b"")
            ordinary = len(host) <= _MAX_NAME and _is_own(host, self.hosts)
            if not ordinary or b"origin" in headers or b"sec-fetch-site" in headers:
                self._keep_pages_out(headers)
            return ANYONE
        if certificate is not None and b"authorization" not in headers:
            # A browser shows it also for pages of others. CORS allows those that bring a token.
            if self._is_foreign_page(headers):
                raise Forbidden(reason="Pages of other sites, hosts and ports cannot use a client certificate.")
            return certificate.admit(self.clock())
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated
        # The duration of a look-up depends only on the SHA-256, which a client cannot approach byte by byte. This is as
        # safe as a constant-time comparison with each token, and independent of their number.
        caller = self.callers.get(hashlib.sha256(token.strip()).hexdigest())
        if caller is None or (caller.ends_at is not None and caller.has_ended(self.clock())):
            raise Unauthenticated
        if caller.page is not None:
            caller.page.check_origin(headers.get(b"origin"))
        return caller

    async def learn(self, headers: Headers, *, may_wait: bool = True) -> None:
        """Before :meth:`admit`: verify the token of a request if it is one of an issuer that is not known yet.

        Waits, if it may, for the keys of the issuer, some seconds at most. Raises what :meth:`SignedTokens.learn`
        raises.
        """
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if self.signed is not None and scheme.lower() == b"bearer":
            await self.signed.learn(token.strip(), may_wait=may_wait)

    def admit_sender(self, headers: Headers, sender: Caller) -> Caller:
        """Return ``sender``, whose signature is checked once the body is read. Raises Forbidden for a foreign web page
        where no credentials are configured."""
        if self.callers is None:
            self._keep_pages_out(headers)
        return sender

    def user(self, credential: str, ticket: bytes = b"") -> Caller | None:
        """The caller who may sign in at the console with the token of this SHA-256. Anyone can read the token of a
        page. ``ticket``: of the process where the user signed in."""
        if ticket and self.signed is not None:
            self.signed.reopen(credential, ticket)
        caller = None if self.callers is None else self.callers.get(credential)
        return None if caller is None or caller.page is not None or caller.has_ended(self.clock()) else caller

    def prober(self, headers: Headers, certificate: ClientCertificate | None = None) -> Caller:
        """Return the caller of ``/readyz``, who is never refused. The answer names the brokers within its rights."""
        if self.open_readyz:
            return ANYONE
        try:
            return self.admit(headers, certificate=certificate)
        except (Unauthenticated, Forbidden):
            return NOBODY

    def check_host(self, headers: Headers) -> None:
        """Without credentials, raise Forbidden for a Host that is no name of this service."""
        host = headers.get(b"host")
        if self.callers is None and host is not None and not self._own(host):
            raise Forbidden(reason="This Host is not a name of this service: add it to `hosts`, or configure tokens.")

    def check_page(self, headers: Headers) -> None:
        """Raise Forbidden for a request that a page of another origin has caused: for what a browser sends with a
        cookie, also with credentials."""
        if self.callers is None:
            self._keep_pages_out(headers)
            return
        if self._is_foreign_page(headers):
            raise Forbidden(reason="Pages of other sites, hosts and ports cannot use the console.")

    def _is_foreign_page(self, headers: Headers) -> bool:
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            return site.strip().lower() not in (b"same-origin", b"none")
        # An older browser, or one on a plain HTTP address other than loopback.
        origin = headers.get(b"origin")
        if origin is None:
            return False
        authority = origin.partition(b"://")[2].strip().lower()
        return authority != headers.get(b"host", b"").strip().lower() and not self._own(authority)

    def _keep_pages_out(self, headers: Headers) -> None:
        """Raise Forbidden for foreign web pages, also under a host name of their own that resolves to this service.

        Without credentials they could otherwise receive messages through the browser of a user.
        """
        self.check_host(headers)
        origin = headers.get(b"origin")
        if origin is not None and not self._own(origin.partition(b"://")[2]):
            raise Forbidden(
                reason="Web pages of this Origin cannot use this service: add its host to `hosts`, or configure tokens."
            )
        # "none": a request of the user, for example from the address bar. https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
        site = headers.get(b"sec-fetch-site")
        if site is not None and site.strip().lower() not in (b"same-origin", b"none"):
            raise Forbidden(reason="Web pages of other sites, hosts and ports cannot use this service.")

    def _own(self, host: bytes) -> bool:
        return _is_own(host, self.hosts) if len(host) <= _MAX_NAME else False


@lru_cache(maxsize=256)
def _is_own(host: bytes, hosts: frozenset[str]) -> bool:
    name = host.decode("latin-1").strip().lower()
    if name in LOOPBACK or name in hosts:
        return True
    name, _, port = name.rpartition(":")
    return port.isdigit() and (name in LOOPBACK or name in hosts)
