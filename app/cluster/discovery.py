"""Which peer listens where. Peers are asked who they are; nothing that a client sent is ever taken for an address."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Sequence

import msgspec

from app.cluster.client import Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from app.cluster.signing import ANYBODY
from app.cluster.sockets import SocketDirectory
from app.cluster.wire import IDENTITY_PATH, Identity
from app.observe.logs import get_logger

log = get_logger("babelgate.peers")

ASK_EVERY_SECONDS = 1
ASK_SECONDS = 2
RESOLVE_SECONDS = 2
_NOBODY = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class Addresses:
    """Finds peers in the directory of this host, and at all addresses that the names of the ``places`` have."""

    def __init__(self, client: PeerClient, directory: SocketDirectory, places: Sequence[Address] = ()) -> None:
        self._client = client
        self._directory = directory
        self._places = tuple(places)
        self._known: dict[str, Address] = {}
        self._missing: dict[str, float] = {}
        self._silent: list[str] = []
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")

    async def find(self, incarnation: str) -> Address | None:
        """Where ``incarnation`` listens; None when no peer has that incarnation.

        An unknown incarnation makes this process query all peers, at most once per second; concurrent callers share
        one query. Blocks at most 10 s. Raises PeerUnreachable when a peer that may be the owner did not answer.
        """
        place = self._directory.find(incarnation)
        if place is not None:
            return Address(place)
        if not self._places:
            return None
        loop = asyncio.get_running_loop()
        since = loop.time()
        if since < self._missing.get(incarnation, float("-inf")) + ASK_EVERY_SECONDS:
            return None
        # An asking that began before may have missed a peer that has started since.
        while incarnation not in self._known and self._asked_at < since:
            if self._asking is None:
                self._asking = loop.create_task(self._ask_all())
            await asyncio.shield(self._asking)
        found = self._known.get(incarnation)
        if found is None:
            if self._silent:
                raise PeerUnreachable(f"{', '.join(self._silent)} did not say who they are")
            self._missing[incarnation] = loop.time()
        return found

    def forget(self, incarnation: str) -> None:
        """It is no longer where it was found."""
        self._known.pop(incarnation, None)

    async def _ask_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._asked_at + ASK_EVERY_SECONDS - loop.time())
            began = loop.time()
            self._silent = []
            resolved = await asyncio.gather(*map(self._resolve, self._places))
            addresses = list(dict.fromkeys(itertools.chain.from_iterable(resolved)))
            answers = await asyncio.gather(*map(self._ask, addresses))
            self._known = {name: address for name, address in zip(answers, addresses, strict=True) if name is not None}
            self._missing.clear()
            self._asked_at = began
        finally:
            self._asking = None

    async def _resolve(self, place: Address) -> list[Address]:
        """All addresses of a name; an address has itself."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning("peers not resolved", host=place.host, error=str(error) or "no answer")
            if error.errno not in _NOBODY:
                self._silent.append(place.host)
            return []
        return [Address(str(address[0]), place.port) for *_, address in found]

    async def _ask(self, address: Address) -> str | None:
        """Who lives at ``address``."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                answer = await self._client.call(address, "GET", IDENTITY_PATH, ANYBODY)
            return msgspec.json.decode(answer, type=Identity).incarnation
        except PeerGone:
            return None
        except (PeerUnreachable, PeerSilent, TimeoutError) as error:
            self._silent.append(str(address))
            log.warning("peer silent", address=address, error=str(error) or f"no answer within {ASK_SECONDS} s")
        except (NotAPeer, msgspec.MsgspecError) as error:
            log.warning("no peer with a key of ours", address=address, error=error)
        return None
