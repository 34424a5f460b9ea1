"""The transport and the flow control of a connection, on top of those of asyncio and uvicorn."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

_MAX_COLLECTED_BYTES = 65_536
STALL_SECONDS = 30
"""How often a client that reads slowly is looked at."""
READ_BYTES_PER_SECOND = 1_024
"""A client that reads its answer more slowly is disconnected."""


class ReadWatch:
    """Disconnects a client that reads an answer at less than 1,024 bytes a second, which otherwise keeps its memory.

    Answers that fit the buffers are written at once, and not watched before the connection closes.
    """

    __slots__ = ("_loop", "_seconds", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """``seconds``: how often to look."""
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the client, to which nothing more is written until :meth:`stop`."""
        self._look(math.inf)

    def stop(self) -> None:
        """End the watch; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def finish(self) -> None:
        """Disconnect the client of a closing connection when it has not read the rest in time, unless it is watched."""
        unread = self._transport.get_write_buffer_size()
        if unread and self._timer is None:
            seconds = self._seconds + unread / READ_BYTES_PER_SECOND
            self._timer = self._loop.call_later(seconds, self._transport.abort)

    def _look(self, before: float) -> None:
        unread = self._transport.get_write_buffer_size()
        if before - unread < self._seconds * READ_BYTES_PER_SECOND:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(self._seconds, self._look, unread)


class BufferedTransport:
    """A transport that collects writes until the end of the event loop's turn, then writes them with one system call.

    uvicorn writes the head and the body of an answer separately. At most 64 KiB are collected, so that flow control
    still notices a slow reader.
    """

    def __init__(self, transport: asyncio.Transport, stall_seconds: float) -> None:
        """``stall_seconds``: how often a client that reads slowly is looked at."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self.reading = ReadWatch(transport, self._loop, stall_seconds)
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
        """Write the collected data, then close, when the client has read it or has had the time for it."""
        self._flush()
        self._transport.close()
        self.reading.finish()

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
