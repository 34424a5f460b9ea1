"""A gateway with its private side, on a broker in memory where only the receiver settles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from babelgate.clock import Clock, now_ms
from babelgate.cluster.client import Address
from babelgate.cluster.peers import Peers
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.history import History
from babelgate.gateway.model import Settlement
from babelgate.gateway.routing import Router, Rule
from babelgate.observe.events import Event
from babelgate.server.peer_port import PeerPort
from tests.harness.memory import MemoryBinding, lacking
from tests.harness.observed import events_into
from tests.harness.world import KEYS, draft

QUEUE = "jobs"
OWNED = lacking(ack_scope="owner")


class Replica:
    """One gateway. Handles of its broker are small numbers: two replicas hand out the same ones."""

    def __init__(
        self,
        directory: Path,
        *,
        keys: Sequence[TokenKey] = KEYS,
        listen: Address | None = None,
        places: Sequence[Address] = (),
        answer_seconds: float = 5,
        clock: Clock = now_ms,
        binding: MemoryBinding | None = None,
        history: History | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.binding = binding or MemoryBinding(capabilities=OWNED)
        self.signer = Signer(keys, clock)
        self.sockets = SocketDirectory(directory)
        self.peers = Peers(self.signer, self.sockets, places, answer_seconds)
        self.gateway = Gateway(
            {self.binding.name: self.binding},
            Router([], Rule("*", self.binding)),
            TokenSealer(KEYS),
            forwarder=self.peers,
            observe=events_into(self.events),
            history=history,
        )
        self.port = PeerPort(self.gateway, self.signer, self.sockets, listen)

    async def start(self) -> Replica:
        await self.gateway.start()
        await self.port.open()
        return self

    async def close(self) -> None:
        await self.port.close()
        await self.gateway.close()
        await self.peers.close()

    async def tokens(self, count: int) -> list[str]:
        """Tokens of so many messages, published and received here."""
        for n in range(count):
            await self.gateway.publish(ANYONE, QUEUE, draft({"n": n}))
        messages = await self.gateway.receive(ANYONE, QUEUE, max_messages=count)
        assert len(messages) == count
        return [message.ack_token for message in messages]

    async def token(self) -> str:
        return (await self.tokens(1))[0]

    async def settle(self, settlement: Settlement) -> list[BabelgateError | None]:
        return [each.error for each in await self.gateway.settle(ANYONE, QUEUE, settlement)]

    async def ack(self, *tokens: str) -> list[BabelgateError | None]:
        return await self.settle(Settlement(tokens))

    async def held(self) -> int:
        """How many messages are leased here."""
        return (await self.binding.stats(self.binding.native_queue(QUEUE, {}))).in_flight or 0
