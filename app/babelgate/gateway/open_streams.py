"""The open streams of a process: who holds which leases, and what a stream hears when one of its leases ends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.authorization import Caller, Ending
from babelgate.gateway.routing import Route
from babelgate.runtime.background import BackgroundTasks


class StreamOptions(Struct, frozen=True):
    """What a consumer asks of a stream. ``lease_seconds`` None: the queue's policy."""

    max_in_flight: int = 10
    lease_seconds: float | None = None
    auto_extend: bool = True


class StreamLease(Struct):
    """The lease of a message that was handed out and is not settled. Loop times: when it ends, and how long it may
    last."""

    lease: Lease
    ends: float
    until: float

    def extension(self, now: float, lease_seconds: float, longest: float) -> float:
        """For how many seconds from ``now`` on to prolong it: never less than its consumer has. ``longest``: the
        longest lease of the broker, in seconds."""
        seconds, left = min(lease_seconds, self.until - now), self.ends - now
        # Whole seconds, so that leases which were extended together are prolonged together.
        return seconds if left <= seconds + 1 else min(math.ceil(left), longest)


class OpenStream(Protocol):
    """A stream that holds leases. See :class:`babelgate.gateway.streaming.Stream`."""

    labels: tuple[str, str]
    route: Route
    window: int

    def resize(self, window: int) -> None:
        """Change the window, and ask again for as many messages as it has room."""

    def settled(self, handle: str, action: str, outcome: Any) -> None:
        """A consumer has settled or extended the lease of ``handle``, with this outcome."""

    def drain(self) -> None:
        """Hand out nothing more."""

    def move(self, route: Route) -> None:
        """Take messages by ``route``, to which the queue has moved."""

    def retire(self) -> None:
        """Hand out nothing more, and end once all is settled."""

    def expire(self) -> None:
        """End with an error, because the credential of the consumer has ended."""


class _Lease(Protocol):
    @property
    def queue(self) -> str: ...
    @property
    def handle(self) -> str: ...


class OpenStreams:
    """The streams of one process. ``holders``: the stream of each lease that is held for one, by queue and handle.

    ``returning``: give-backs of streams that have ended.
    """

    def __init__(self) -> None:
        self.holders: dict[tuple[str, str], OpenStream] = {}
        self.returning: BackgroundTasks[None] = BackgroundTasks()
        self._open: dict[OpenStream, Ending] = {}

    def add(self, stream: OpenStream, caller: Caller) -> None:
        """Add a stream of ``caller`` that has begun. It ends with the credential."""
        self._open[stream] = caller.when_ended(stream.expire)

    def remove(self, stream: OpenStream) -> None:
        """Remove a stream that has ended; idempotent."""
        ending = self._open.pop(stream, None)
        if ending is not None:
            ending.cancel()

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """The number of open streams by queue and broker."""
        return Counter(stream.labels for stream in self._open)

    def settled(self, action: str, leases: Sequence[_Lease | Exception], outcomes: Sequence[Any]) -> None:
        """Tell the streams of ``leases`` what became of them."""
        for lease, outcome in zip(leases, outcomes, strict=True):
            if not isinstance(lease, Exception):
                holder = self.holders.get((lease.queue, lease.handle))
                if holder is not None:
                    holder.settled(lease.handle, action, outcome)

    def routes(self) -> list[Route]:
        """The routes of the open streams."""
        return [stream.route for stream in self._open]

    def ask_anew(self) -> None:
        """Let all streams begin their receives again: what waits does not know of other limits of leases."""
        for stream in self._open:
            stream.resize(stream.window)

    def move(self, former: Route, route: Route | None) -> None:
        """Let the streams of a queue that has left ``former`` take messages by ``route``. None: it has none, so they
        hand out nothing more, and end once all is settled."""
        for stream in tuple(self._open):
            if stream.route.location != former.location:
                continue
            if route is None:
                stream.retire()
            else:
                stream.move(route)

    def drain(self) -> None:
        """Let all streams hand out nothing more; idempotent."""
        for stream in tuple(self._open):
            stream.drain()

    async def close(self) -> None:
        """Wait until the messages of streams that have ended are given back: the time-out of a broker at most."""
        await self.returning.wait()
