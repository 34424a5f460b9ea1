"""How slowly a client may send a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from uvicorn.protocols.http.flow_control import FlowControl


@dataclass(frozen=True, slots=True)
class Patience:
    """Time that a client may take to send one request, counted only while the server reads.

    A head must be complete ``head_seconds`` after its first bytes. A body must be complete ``body_seconds`` after its
    head, and one second later for each ``body_bytes_per_second`` bytes that have arrived after the head.
    """

    head_seconds: float = 30
    body_seconds: float = 30
    body_bytes_per_second: float = 1024

    def rule(self, head: bool) -> str:
        """The rule for a head, or else for a body, as a clause."""
        if head:
            return f"a head may take {self.head_seconds:g} s"
        return f"a body may take {self.body_seconds:g} s, and 1 s more for each {self.body_bytes_per_second:g} bytes"


class ReadingClock(FlowControl):
    """Flow control with a clock that stands still while the server does not read from the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._paused_at = 0.0
        self._paused_seconds = 0.0

    def time(self) -> float:
        """Seconds during which the server has read, from an arbitrary origin."""
        return (self._paused_at if self.read_paused else self._loop.time()) - self._paused_seconds

    def pause_reading(self) -> None:
        if not self.read_paused:
            self._paused_at = self._loop.time()
            super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._paused_seconds += self._loop.time() - self._paused_at
            super().resume_reading()
