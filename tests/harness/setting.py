"""A process over a broker in memory, and a clock that the test sets."""

from __future__ import annotations

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Policy, Router, Rule
from tests.harness.memory import CAPABLE, MemoryBinding
from tests.harness.observed import events_into
from tests.harness.world import KEYS, ORDINARY, Process


class Setting:
    """``kind`` is the class of the broker, ``now`` what its clock and the gateway's say, in Unix ms."""

    def __init__(
        self,
        queue: str,
        capabilities: BrokerCapabilities = CAPABLE,
        kind: type[MemoryBinding] = MemoryBinding,
        policy: Policy = ORDINARY,
    ) -> None:
        self.now = 1_700_000_000_000
        self.queue = queue
        self.binding = kind("memory", capabilities, self.clock)

        def make(process: Process) -> Gateway:
            router = Router([], Rule("*", self.binding, policy))
            observe = events_into(process.events)
            return Gateway({"memory": self.binding}, router, TokenSealer(KEYS), clock=self.clock, observe=observe)

        self.process = Process(queue, make)

    def clock(self) -> int:
        return self.now

    async def inject(self, body: bytes) -> None:
        """Put ``body`` on the queue unchecked."""
        await self.binding.publish(NativeQueue(self.queue), [Outgoing(body)])
