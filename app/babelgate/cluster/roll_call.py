"""Asks all peers who they are."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.cluster.asking import AllPeers
from babelgate.cluster.client import Address
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import IDENTITY_PATH, decode_identity
from babelgate.gateway.replicas import Identity

ANSWER_SECONDS = 1.0


class PeerRollCall:
    """Asks all peers at once, as :class:`AllPeers` does. A part of the application, which closes it."""

    def __init__(
        self,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._peers = AllPeers(signer, directory, addresses, seconds, "identity")

    async def start(self) -> None:
        """Do nothing."""

    async def ask(self) -> tuple[list[Identity], list[str]]:
        """The peers, and the names of those that gave no answer; takes 3 s at most. Never raises."""
        return await self._peers.ask("GET", IDENTITY_PATH, b"", decode_identity)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()
