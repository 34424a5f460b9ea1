"""All pushes of one process, which start and stop with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from babelgate.gateway.gateway import Gateway
from babelgate.push.addresses import AddressGuard
from babelgate.push.pusher import Pusher, Report
from babelgate.push.targets import PushTarget
from babelgate.push.transport import Poster


class Pushes:
    """The pushers of the queues that have a target."""

    def __init__(
        self, gateway: Gateway, targets: Mapping[str, PushTarget], guard: AddressGuard, report: Report
    ) -> None:
        """``targets``: by queue."""
        self._gateway = gateway
        self._targets = targets
        self._guard = guard
        self._report = report
        self.running: dict[str, Pusher] = {}

    async def start(self) -> None:
        """Begin to push."""
        for queue, target in self._targets.items():
            self.running[queue] = pusher = self._pusher(queue, target)
            pusher.start()

    async def close(self) -> None:
        """Stop, and return what was not settled; at most a little longer than the time-out of a settle."""
        await asyncio.gather(*(pusher.close() for pusher in self.running.values()))
        self.running.clear()

    def _pusher(self, queue: str, target: PushTarget) -> Pusher:
        poster = Poster(
            target.url,
            self._guard,
            self._gateway.clock,
            timeout_seconds=target.timeout_seconds,
            connections=target.concurrency,
        )
        return Pusher(self._gateway, queue, target, poster, self._report)
