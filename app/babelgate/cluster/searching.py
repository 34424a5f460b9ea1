"""Asks the other gateways and workers what their journals have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from babelgate.cluster.asking import Asked, ask
from babelgate.cluster.client import Address, PeerClient
from babelgate.cluster.discovery import all_peers
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import SEARCH_PATH, decode_finding
from babelgate.gateway.merging import Finding, Inquiry
from babelgate.observe.journal.search import place_of
from babelgate.observe.logs import get_logger

log = get_logger(__name__)

SEARCH_SECONDS = 2.0
"""How long a peer has to answer. A look-up of an id takes milliseconds, so one that needs longer hangs or is
overloaded."""


class PeerSearch:
    """Searches at all peers at once. A part of the application, which closes it; it connects when it asks."""

    def __init__(
        self,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = SEARCH_SECONDS,
    ) -> None:
        """``addresses``: the peers on other hosts; a host name stands for all its IP addresses."""
        self._directory = directory
        self._addresses = tuple(addresses)
        self._client = PeerClient(signer, seconds)
        self._seconds = seconds

    async def start(self) -> None:
        """Do nothing."""

    async def ask(self, inquiry: Inquiry) -> tuple[list[Finding], list[str]]:
        """What the peers found, and the names of those that gave no answer: the address, or the name of the socket.

        Resolves host names, for at most 2 s, and then waits ``seconds`` at most. A socket on which no process listens
        is that of a killed process, and no peer. A peer without a journal, or of a version that cannot search, counts
        as silent, because what only it knows is missing.
        """
        body = msgspec.json.encode(inquiry)
        names, silent = await all_peers(self._directory, self._addresses)
        answers = await asyncio.gather(*(self._ask(address, name, body) for address, name in names.items()))
        silent += [name for name, asked in zip(names.values(), answers, strict=True) if asked.state == "silent"]
        return [asked.answer for asked in answers if asked.answer is not None], silent

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _ask(self, address: Address, name: str, body: bytes) -> Asked[Finding]:
        asked = await ask(self._client, address, "POST", SEARCH_PATH, ANYBODY, body, _finding, self._seconds)
        if asked.state == "silent":
            log.warning("the journal of a peer was not searched", peer=name, reason=asked.reason)
        return asked


def _finding(body: bytes) -> Finding:
    """Raises msgspec.MsgspecError, ValueError."""
    found = decode_finding(body)
    if found is None:
        raise ValueError("it keeps no journal")
    if found.next_cursor is not None:
        place_of(found.next_cursor)
    return found
