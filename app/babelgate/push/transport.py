"""Posts over HTTP to addresses that are checked when the connection is made.

httpcore, the transport of httpx, follows no redirect, keeps no cookie, decodes nothing and uses no proxy of the
environment, and nothing above it is needed.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpcore

from babelgate import __version__
from babelgate.clock import Clock
from babelgate.push.addresses import AddressGuard

CONNECT_SECONDS = 5.0
"""Time to resolve the name, to connect and for the handshake of TLS; at most half of the time for the whole post."""
IDLE_SECONDS = 4.0
"""How long an idle connection is kept: less than the 5 s of uvicorn and Node.js, so that the receiver rarely closes one
that is just used again."""
BODY_SECONDS = 2.0
"""Time for the body of an answer, whose head has decided already."""
MAX_ANSWER_BYTES = 16_384
"""Most bytes that are read of the body of an answer. The connection of a longer one is closed. httpcore bounds a head
at 100 KiB: https://github.com/encode/httpcore/blob/1.0.9/httpcore/_async/http11.py"""
EXCERPT_CHARACTERS = 200
"""Most characters of an answer that are shown to operators."""
MAX_RETRY_AFTER_SECONDS = 3_600.0
"""A longer ``Retry-After`` counts as this."""

_USER_AGENT = b"babelgate/" + __version__.encode("ascii")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name. Raises OSError."""


class NotConnected(Exception):
    """No connection was made, so that the receiver has seen nothing of the message."""


class NoAnswer(Exception):
    """The connection was made and no head of an answer was read in time. The receiver may have taken the message."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a post. ``retry_after_seconds``: what its ``Retry-After`` asks for. ``excerpt``: of its body."""

    status: int
    retry_after_seconds: float | None = None
    excerpt: str = ""


@cache
def authorities() -> ssl.SSLContext:
    """The certificate authorities of this machine. Reading them takes 20 ms and more, so a process does it once."""
    return ssl.create_default_context()


class Poster:
    """Posts to one URL over pooled connections. It never repeats a post."""

    def __init__(
        self,
        url: str,
        guard: AddressGuard,
        clock: Clock,
        *,
        timeout_seconds: float,
        connections: int,
        resolve: Resolve | None = None,
    ) -> None:
        parts = urlsplit(url)
        # httpcore would cut what follows a semicolon from the path.
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._url = httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target)
        self._given = [(b"Host", _host(self._url)), (b"Accept-Encoding", b"identity"), (b"User-Agent", _USER_AGENT)]
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        connect = min(CONNECT_SECONDS, timeout_seconds / 2)
        self._timeouts = {"connect": connect, "pool": connect, "write": timeout_seconds, "read": timeout_seconds}
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=authorities() if parts.scheme == "https" else None,
            max_connections=connections,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=GuardedBackend(guard, resolve or addresses_of),
        )

    async def post(self, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Post ``body`` once. Blocks at most ``timeout_seconds``. Raises NotConnected, NoAnswer.

        An answer counts once its head was read, whatever becomes of its body: a call that is cancelled then returns it.
        """
        answer: Answer | None = None
        given = [*self._given, (b"Content-Length", b"%d" % len(body)), *_encoded(headers)]
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._pool.stream(
                    "POST", self._url, headers=given, content=body, extensions={"timeout": self._timeouts}
                ) as response,
            ):
                answer = Answer(response.status, self._retry_after(response.headers))
                async with asyncio.timeout(BODY_SECONDS):
                    answer = replace(answer, excerpt=await _excerpt(response))
        except asyncio.CancelledError:
            # The head has decided: the caller settles by it.
            if answer is None:
                raise
        except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout) as error:
            raise NotConnected(_words(error) or "no connection in time") from error
        except (httpcore.TimeoutException, TimeoutError) as error:
            if answer is None:
                raise NoAnswer(f"no answer within {self._timeout_seconds:.15g} s") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            if answer is None:
                raise NoAnswer(_words(error) or "the connection broke") from error
        assert answer is not None
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def _retry_after(self, headers: Iterable[tuple[bytes, bytes]]) -> float | None:
        given = next((value for name, value in headers if name.lower() == b"retry-after"), None)
        return None if given is None else retry_after(given.decode("latin-1"), self._clock())


def _host(url: httpcore.URL) -> bytes:
    shown = b"[%s]" % url.host if b":" in url.host else url.host
    return shown if url.port is None else b"%s:%d" % (shown, url.port)


def _encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]


def retry_after(text: str, now: int) -> float | None:
    """The seconds that a ``Retry-After`` asks for at ``now`` (Unix ms), at most MAX_RETRY_AFTER_SECONDS.

    None for a value that is neither a number of seconds nor a date: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        # More digits than any bound has: int() refuses thousands of them.
        seconds = float(text[:20])
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now / 1000
        except (ValueError, OverflowError, TypeError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


async def _excerpt(response: httpcore.Response) -> str:
    """Read the body up to its bound, so that the connection can be used again; return the beginning for operators."""
    pieces, size = [], 0
    async for piece in response.aiter_stream():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            break
    return _shown(b"".join(pieces)[:EXCERPT_CHARACTERS].decode("latin-1"))


def _words(error: BaseException) -> str:
    """The text of the innermost cause that has one, without the number of a system's error."""
    words = ""
    cause: BaseException | None = error
    while cause is not None:
        words = (isinstance(cause, OSError) and cause.strerror) or str(cause) or words
        cause = cause.__cause__ or cause.__context__
    return _shown(words)


def _shown(text: str) -> str:
    return _UNPRINTABLE.sub(" ", text).strip()[:EXCERPT_CHARACTERS]


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """The addresses that the operating system finds for ``host``. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a name itself, and connects to an address that ``guard`` allows, so that the address that was checked is
    the one that is used, whatever the name resolves to a moment later."""

    def __init__(self, guard: AddressGuard, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first address that is allowed and accepts it. Raises ConnectError, ConnectTimeout."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
                why = [self._guard.refusal(address) for address in addresses]
                allowed = [address for address, refused in zip(addresses, why, strict=True) if refused is None]
                if not allowed:
                    reason = next(filter(None, why), "the name has no address")
                    raise httpcore.ConnectError(f"not allowed: {reason}" if addresses else reason)
                return await self._connect(allowed, port, timeout)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"no connection within {timeout:.15g} s") from None
        except UnicodeError as error:
            raise httpcore.ConnectError("the name is none of a host") from error
        except OSError as error:
            raise httpcore.ConnectError(f"the name was not resolved: {error.strerror or error}") from error

    async def _connect(self, addresses: Sequence[str], port: int, seconds: float | None) -> httpcore.AsyncNetworkStream:
        """The first connection that is made; the time is shared by those that are tried."""
        share = None if seconds is None else seconds / len(addresses)
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._backend.connect_tcp(address, port, timeout=share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        assert last is not None
        raise last
