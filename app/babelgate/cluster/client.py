"""Signed HTTP calls to other gateways over pooled connections."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import httpcore

from babelgate.cluster.signing import HEADER, Signer
from babelgate.cluster.wire import MAX_CALL_BYTES
from babelgate.runtime.background import BackgroundTasks

CONNECT_SECONDS = 1
ANSWER_SECONDS = 5
_IDLE_SECONDS = 30
"""How long an idle connection is kept for reuse; the listener keeps it longer."""
_MAX_CONNECTIONS = 100
_MAX_ANSWER_BYTES = 4 * MAX_CALL_BYTES
"""Results with long errors are larger than their tokens."""
_HEADER = HEADER.encode("ascii")
_REFUSALS = {
    401: "refuses the signature: its token_keys differ, or its clock differs by more than a minute",
    429: "is overloaded",
}
_NOBODY_LISTENS = frozenset({errno.ECONNREFUSED, errno.ENOENT})


class Address(NamedTuple):
    """The address at which a gateway listens for peers: the path of a Unix socket, or a host and a port."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else self.host


class PeerGone(Exception):
    """No process listens at the address. Nothing was done."""


class PeerUnreachable(Exception):
    """No connection was made in time, or the peer refused the call. Nothing was done."""


class PeerRefuses(PeerUnreachable):
    """The peer refused the call. Nothing was done."""


class NotAPeer(Exception):
    """The process that answered is no peer, or another incarnation than the target. Nothing was done."""


class PeerSilent(Exception):
    """The call was written, but the peer did not answer. It may have been carried out."""


class PeerClient:
    """Calls peers. It never retries, uses no proxy and follows no redirect."""

    def __init__(self, signer: Signer, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._signer = signer
        self._timeouts = {
            "connect": CONNECT_SECONDS,
            "pool": CONNECT_SECONDS,
            "write": answer_seconds,
            "read": answer_seconds,
        }
        self._whole_seconds = 2 * CONNECT_SECONDS + answer_seconds
        self._pools: dict[Address, httpcore.AsyncConnectionPool] = {}
        self._used_at: dict[Address, float] = {}
        self._closing: BackgroundTasks[None] = BackgroundTasks()

    async def call(self, address: Address, method: str, path: str, target: str, body: bytes = b"") -> bytes:
        """Call the peer and return its answer. ``target``: the incarnation that must answer, or ANYBODY.

        Blocks at most 1 s for a connection, then at most ``answer_seconds`` without progress, and in all never more
        than 2 s beyond ``answer_seconds``. Raises PeerGone, PeerUnreachable, PeerRefuses, NotAPeer, PeerSilent.
        """
        proof = self._signer.sign(method, path, target, body)
        headers = [(HEADER, proof.header), ("content-type", "application/json")]
        try:
            async with (
                asyncio.timeout(self._whole_seconds),
                self._pool(address).stream(
                    method, _url(address, path), headers=headers, content=body, extensions={"timeout": self._timeouts}
                ) as response,
            ):
                answer = await _read(response)
        except (httpcore.ConnectTimeout, httpcore.PoolTimeout) as error:
            raise PeerUnreachable(f"no connection to {address} within {CONNECT_SECONDS} s") from error
        except httpcore.ConnectError as error:
            if not _nobody_listens(error):
                raise PeerUnreachable(f"no connection to {address}: {error}") from error
            raise PeerGone(str(address)) from error
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, TimeoutError) as error:
            raise PeerSilent(f"{address}: {str(error) or type(error).__name__}") from error
        status = response.status
        if proof.is_answered_by(_signature(response), status, answer) and status in (200, 409):
            if status == 409:
                raise NotAPeer(f"{address} is another incarnation")
            return answer
        if reason := _REFUSALS.get(status):
            raise PeerRefuses(f"{address} {reason}")
        if 400 <= status < 500:
            raise NotAPeer(f"{address} answered {status}")
        raise PeerSilent(f"{address} answered {status}, unsigned")

    async def close(self) -> None:
        """Close all connections; idempotent."""
        for address in list(self._pools):
            self._drop(address)
        await asyncio.gather(*self._closing)

    def _pool(self, address: Address) -> httpcore.AsyncConnectionPool:
        now = asyncio.get_running_loop().time()
        pool = self._pools.get(address)
        if pool is None:
            # Only idle pools are closed: a peer that refuses new calls may still answer earlier ones.
            for idle in [each for each, used_at in self._used_at.items() if now - used_at > _IDLE_SECONDS]:
                self._drop(idle)
            pool = self._pools[address] = httpcore.AsyncConnectionPool(
                max_connections=_MAX_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
                uds=None if address.port else address.host,
                network_backend=SingleWriteBackend(),
            )
        self._used_at[address] = now
        return pool

    def _drop(self, address: Address) -> None:
        del self._used_at[address]
        self._closing.start(self._pools.pop(address).aclose())


async def _read(response: httpcore.Response) -> bytes:
    pieces, size = [], 0
    async for piece in response.aiter_stream():
        size += len(piece)
        if size > _MAX_ANSWER_BYTES:
            raise httpcore.ProtocolError(f"more than {_MAX_ANSWER_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _signature(response: httpcore.Response) -> str:
    given = next((value for name, value in response.headers if name.lower() == _HEADER), b"")
    return given.decode("latin-1")


@lru_cache(maxsize=1_000)
def _url(address: Address, path: str) -> httpcore.URL:
    return httpcore.URL(f"http://{address if address.port else 'peer'}{path}")


def _nobody_listens(error: BaseException) -> bool:
    """Whether the connection was refused because no process listens."""
    return any(isinstance(cause, OSError) and cause.errno in _NOBODY_LISTENS for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class SingleWriteBackend(httpcore.AsyncNetworkBackend):
    """Connects as httpcore's own backend, but sends a request as one write, when its answer is read.

    httpcore writes the head and the body of a request separately, and each write wakes the peer up.
    """

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(self, *address: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        """A connection to a host and port."""
        return _SingleWriteStream(await self._backend.connect_tcp(*address, **options))

    async def connect_unix_socket(self, *address: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        """A connection to a Unix socket."""
        return _SingleWriteStream(await self._backend.connect_unix_socket(*address, **options))


class _SingleWriteStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._written: list[bytes] = []

    async def write(self, buffer: bytes, *limit: Any, **limits: Any) -> None:
        self._written.append(buffer)

    async def read(self, max_bytes: int, *limit: Any, **limits: Any) -> bytes:
        if self._written:
            request = b"".join(self._written)
            self._written.clear()
            await self._stream.write(request, *limit, **limits)
        return await self._stream.read(max_bytes, *limit, **limits)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
