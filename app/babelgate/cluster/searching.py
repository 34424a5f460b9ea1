"""Asks the other gateways and workers what their journals have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from babelgate.cluster.asking import AllPeers
from babelgate.cluster.client import Address
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import SEARCH_PATH, decode_finding
from babelgate.gateway.merging import Finding, Inquiry
from babelgate.observe.journal.search import place_of

SEARCH_SECONDS = 2.0
"""How long a peer has to answer. A look-up of an id takes milliseconds, so one that needs longer hangs or is
overloaded."""


class PeerSearch:
    """Searches at all peers at once, as :class:`AllPeers` does. A part of the application, which closes it."""

    def __init__(
        self,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = SEARCH_SECONDS,
    ) -> None:
        self._peers = AllPeers(signer, directory, addresses, seconds, "journal")

    async def start(self) -> None:
        """Do nothing."""

    async def ask(self, inquiry: Inquiry) -> tuple[list[Finding], list[str]]:
        """What the peers found, and the names of those that gave no answer; takes 4 s at most. Never raises.

        A peer without a journal counts as silent, too, because what only it knows is missing.
        """
        return await self._peers.ask("POST", SEARCH_PATH, msgspec.json.encode(inquiry), _finding)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()


def _finding(body: bytes) -> Finding:
    """Raises msgspec.MsgspecError, ValueError."""
    found = decode_finding(body)
    if found is None:
        raise ValueError("it keeps no journal")
    if found.next_cursor is not None:
        place_of(found.next_cursor)
    return found
