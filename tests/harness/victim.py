"""A process that redrives a queue and is killed between the publish and the removal of its second page.

``python -m tests.harness.victim '{"url": …, "queue_options": {…}}' QUEUE``
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from babelgate.brokers import registry
from babelgate.brokers.binding import DeadRecord, NativeQueue
from babelgate.clock import now_ms
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.redrive import RedriveOrder
from babelgate.gateway.routing import Router, Rule
from tests.harness.passing import Passing

_PATIENT = {"timeout_seconds": 15}
"""A busy machine is no hung broker; but messages that were hidden for this process come back in the time of a test."""


class KilledAtTheSecondRemoval(Passing):
    """Ends this process without a warning."""

    removals = 0

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        self.removals += 1
        if self.removals == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self.inner.remove_dead(queue, records, cursor)


async def redrive(broker: Mapping[str, Any], queue: str) -> None:
    binding = KilledAtTheSecondRemoval(registry.connect("victim", broker["url"], _PATIENT, now_ms))
    router = Router([], Rule("*", binding, options=broker["queue_options"]))
    gateway = Gateway({binding.name: binding}, router, TokenSealer([TokenKey("victim", os.urandom(32))]))
    await gateway.start()
    await gateway.letters.redrive(ANYONE, queue, RedriveOrder(), None, None)
    await gateway.close()


if __name__ == "__main__":
    asyncio.run(redrive(json.loads(sys.argv[1]), sys.argv[2]))
