"""Asks the other gateways and workers what their journals have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from babelgate.cluster.client import Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from babelgate.cluster.discovery import resolved
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import SEARCH_PATH, decode_finding
from babelgate.gateway.merging import Finding, Inquiry
from babelgate.observe.journal.search import InvalidCursor, place_of
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
        addresses, silent = await resolved(self._addresses)
        asked = {Address(path): PurePath(path).stem for path in self._directory.others()}
        asked |= {address: str(address) for address in addresses}
        answers = await asyncio.gather(*(self._ask(address, name, body) for address, name in asked.items()))
        silent += [name for name, answer in zip(asked.values(), answers, strict=True) if answer is None]
        return [answer for answer in answers if isinstance(answer, Finding)], silent

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _ask(self, address: Address, name: str, body: bytes) -> Finding | PeerGone | None:
        """What the peer found; PeerGone if that was a socket of no process, None for any other failure."""
        reason: object
        try:
            async with asyncio.timeout(self._seconds):
                found = decode_finding(await self._client.call(address, "POST", SEARCH_PATH, ANYBODY, body))
            if found is not None:
                if found.next_cursor is not None:
                    place_of(found.next_cursor)
                return found
            reason = "it keeps no journal"
        except PeerGone as error:
            if not address.port:
                return error
            reason = "nothing listens there"
        except TimeoutError:
            reason = f"no answer within {self._seconds:g} s"
        except (PeerUnreachable, PeerSilent, NotAPeer, InvalidCursor, msgspec.MsgspecError) as error:
            reason = error
        log.warning("the journal of a peer was not searched", peer=name, reason=str(reason))
        return None
