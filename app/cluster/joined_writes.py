"""One write a request: httpcore writes its head and its body apart, and each wakes the peer up."""

from __future__ import annotations

from typing import Any

import httpcore


class SingleWriteBackend(httpcore.AsyncNetworkBackend):
    """Connects as httpcore does by itself; what is written to a connection goes out when its answer is read."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(self, *place: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        """A connection to a host and port."""
        return _Stream(await self._backend.connect_tcp(*place, **options))

    async def connect_unix_socket(self, *place: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        """A connection to a Unix socket."""
        return _Stream(await self._backend.connect_unix_socket(*place, **options))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._held: list[bytes] = []

    async def write(self, buffer: bytes, *limit: Any, **limits: Any) -> None:
        self._held.append(buffer)

    async def read(self, max_bytes: int, *limit: Any, **limits: Any) -> bytes:
        if self._held:
            request = b"".join(self._held)
            self._held.clear()
            await self._stream.write(request, *limit, **limits)
        return await self._stream.read(max_bytes, *limit, **limits)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
