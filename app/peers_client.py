"""One signed call to the gateway at an address, over pooled connections."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import httpx

from app.peers_signing import HEADER, Signer

CONNECT_SECONDS = 1
ANSWER_SECONDS = 5
_IDLE_SECONDS = 30
"""A connection is used again for so long; the listener keeps it longer."""
_MAX_CONNECTIONS = 100
_NOT_NOW = {
    401: "refuses the signature: its token_keys are others, or its clock is a minute away",
    429: "is overloaded",
}
_GONE = frozenset({errno.ECONNREFUSED, errno.ENOENT})


class Address(NamedTuple):
    """Where a gateway listens for its peers: the path of a Unix socket, or an IP address or name and a port."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else self.host


class Gone(Exception):
    """Nobody listens there."""


class Unreachable(Exception):
    """No connection came about in time, or the peer does not take the call: it did nothing."""


class Stranger(Exception):
    """Who answered there is no peer, or not the one that was meant; it did nothing."""


class Silent(Exception):
    """The call was written, and no answer of the peer came."""


class PeerClient:
    """Calls peers: never twice, not through a proxy, and no redirect is followed."""

    def __init__(self, signer: Signer, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._signer = signer
        self._timeouts = {
            "connect": CONNECT_SECONDS,
            "pool": CONNECT_SECONDS,
            "write": answer_seconds,
            "read": answer_seconds,
        }
        self._transports: dict[Address, httpx.AsyncHTTPTransport] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, address: Address, method: str, path: str, target: str, body: bytes = b"") -> bytes:
        """The peer's answer. ``target``: the incarnation that is meant, or ANYBODY.

        Blocks for at most 1 s for a connection, then for at most ``answer_seconds`` without progress. Raises Gone,
        Unreachable, Stranger, Silent.
        """
        proof = self._signer.sign(method, path, target, body)
        request = httpx.Request(
            method,
            _url(address, path),
            headers={HEADER: proof.header, "content-type": "application/json"},
            content=body,
            extensions={"timeout": self._timeouts},
        )
        try:
            response = await self._transport(address).handle_async_request(request)
            answer = await response.aread()
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unreachable(f"no connection to {address} within {CONNECT_SECONDS} s") from error
        except httpx.ConnectError as error:
            if not _is_gone(error):
                raise Unreachable(f"no connection to {address}: {error}") from error
            self._drop(address)
            raise Gone(str(address)) from error
        except httpx.TransportError as error:
            raise Silent(f"{address}: {error or type(error).__name__}") from error
        status = response.status_code
        if proof.is_answered_by(response.headers.get(HEADER, ""), status, answer) and status in (200, 409):
            if status == 409:
                raise Stranger(f"{address} is another incarnation")
            return answer
        if reason := _NOT_NOW.get(status):
            raise Unreachable(f"{address} {reason}")
        if 400 <= status < 500:
            raise Stranger(f"{address} answered {status}")
        raise Silent(f"{address} answered {status}, unsigned")

    async def close(self) -> None:
        """Close all connections; idempotent."""
        for address in list(self._transports):
            self._drop(address)
        await asyncio.gather(*self._closing)

    def _transport(self, address: Address) -> httpx.AsyncHTTPTransport:
        transport = self._transports.get(address)
        if transport is None:
            self._drop_removed()
            limits = httpx.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS)
            transport = self._transports[address] = httpx.AsyncHTTPTransport(
                verify=False, trust_env=False, limits=limits, uds=None if address.port else address.host
            )
        return transport

    def _drop_removed(self) -> None:
        """Let go of those whose socket is no longer in the directory."""
        for address in [each for each in self._transports if not each.port and not os.path.exists(each.host)]:
            self._drop(address)

    def _drop(self, address: Address) -> None:
        if transport := self._transports.pop(address, None):
            task = asyncio.get_running_loop().create_task(transport.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


@lru_cache(maxsize=1_000)
def _url(address: Address, path: str) -> httpx.URL:
    return httpx.URL(f"http://{address if address.port else 'peer'}{path}")


def _is_gone(error: BaseException) -> bool:
    """Whether the system refused the connection because nobody listens."""
    return any(isinstance(cause, OSError) and cause.errno in _GONE for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
