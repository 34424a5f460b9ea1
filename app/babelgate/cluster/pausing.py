"""Tells the other gateways and workers which queues are paused, and asks what they know."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from babelgate.cluster.asking import AllPeers
from babelgate.cluster.client import Address
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import PAUSES_PATH, decode_pauses, encode_pauses
from babelgate.gateway.pauses import Heard, PauseChange

EXCHANGE_SECONDS = 1.0
"""How long a peer has to answer: it writes at most one small file before."""


class PeerPauses:
    """Exchanges with all peers at once, as :class:`AllPeers` does."""

    def __init__(
        self,
        incarnation: str,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = EXCHANGE_SECONDS,
    ) -> None:
        """``incarnation``: of this process."""
        self._incarnation = incarnation
        self._peers = AllPeers(signer, directory, addresses, seconds, "pauses")
        self.has_addresses = self._peers.has_addresses

    async def exchange(self, changes: Sequence[PauseChange]) -> Heard:
        """Tell all peers ``changes`` and return theirs; takes 3 s at most. Never raises."""
        body = encode_pauses(self._incarnation, changes)
        answers, silent = await self._peers.ask("POST", PAUSES_PATH, body, decode_pauses)
        # Two addresses may lead to one gateway, and one of them to this process.
        heard = {answer.incarnation: answer.changes for answer in answers}
        heard.pop(self._incarnation, None)
        return Heard(list(chain.from_iterable(heard.values())), len(heard), silent)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()
