"""The transport and the flow control of a connection, on top of those of asyncio and uvicorn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

_MAX_COLLECTED_BYTES = 65_536


class BufferedTransport:
    """A transport that collects writes until the end of the event loop's turn, then writes them with one system call.

    uvicorn writes the head and the body of an answer separately. At most 64 KiB are collected, so that flow control
    still notices a slow reader.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._size = 0
        # Asked for with each request.
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write ``data`` together with the other writes of this turn."""
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MAX_COLLECTED_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the collected data, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            # The peer may have reset the connection since `write`; uvloop would raise an error.
            if not self._transport.is_closing():
                self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@dataclass(frozen=True, slots=True)
class Patience:
    """Time in which a client must send a request, counted only while the server reads.

    A head must be complete ``head_seconds`` after its first byte. A body must be complete ``body_seconds`` after its
    head, plus one second per ``body_bytes_per_second`` bytes received after the head.
    """

    head_seconds: float = 30
    body_seconds: float = 30
    body_bytes_per_second: float = 1024

    def rule(self, head: bool) -> str:
        """The limit of a head, or else of a body, as a clause."""
        if head:
            return f"a head may take {self.head_seconds:g} s"
        return f"a body may take {self.body_seconds:g} s, and 1 s more for each {self.body_bytes_per_second:g} bytes"


class ReadingClock(FlowControl):
    """Flow control with a clock that stops while the server does not read from the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._paused_at = 0.0
        self._paused_seconds = 0.0

    def time(self) -> float:
        """Seconds for which the server has read, from an arbitrary origin."""
        return (self._paused_at if self.read_paused else self._loop.time()) - self._paused_seconds

    def pause_reading(self) -> None:
        if not self.read_paused:
            self._paused_at = self._loop.time()
            super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._paused_seconds += self._loop.time() - self._paused_at
            super().resume_reading()
