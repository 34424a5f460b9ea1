"""Which peer listens where. Peers are asked who they are; nothing that a client sent is ever taken for an address."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Sequence

import msgspec

from app.peers_client import Address, Gone, PeerClient, Silent, Stranger, Unreachable
from app.peers_signing import ANYBODY
from app.peers_sockets import SocketDirectory
from app.peers_wire import IDENTITY_PATH, Identity

log = logging.getLogger("babelgate.peers")

ASK_EVERY_SECONDS = 1
RESOLVE_SECONDS = 2


class Addresses:
    """Finds peers in the directory of this host, at the ``static`` addresses, and at all those of the ``names``."""

    def __init__(
        self,
        client: PeerClient,
        directory: SocketDirectory,
        static: Sequence[Address] = (),
        names: Sequence[Address] = (),
    ) -> None:
        self._client = client
        self._directory = directory
        self._static = tuple(static)
        self._names = tuple(names)
        self._known: dict[str, Address] = {}
        self._missing: dict[str, float] = {}
        self._silent: list[str] = []
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")

    async def find(self, incarnation: str) -> Address | None:
        """Where ``incarnation`` listens; None: nowhere. Raises Unreachable when a peer that may be it did not answer.

        One that is not known yet has all peers asked, at most once a second, by all who wait together: blocks at most
        10 s.
        """
        place = self._directory.find(incarnation)
        if place is not None:
            return Address(place)
        if not self._static and not self._names:
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
                raise Unreachable(f"{', '.join(self._silent)} did not say who they are")
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
            resolved = await asyncio.gather(*map(self._resolve, self._names))
            addresses = list(dict.fromkeys((*self._static, *itertools.chain.from_iterable(resolved))))
            answers = await asyncio.gather(*map(self._ask, addresses))
            self._known = {name: address for name, address in zip(answers, addresses, strict=True) if name is not None}
            self._missing.clear()
            self._asked_at = began
        finally:
            self._asking = None

    async def _resolve(self, name: Address) -> list[Address]:
        """All addresses of a name."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await loop.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError) as error:
            log.warning("peers: %s cannot be resolved: %s", name.host, error)
            if getattr(error, "errno", None) != socket.EAI_NONAME:
                self._silent.append(name.host)
            return []
        return [Address(str(address[0]), name.port) for *_, address in found]

    async def _ask(self, address: Address) -> str | None:
        """Who lives at ``address``."""
        try:
            answer = await self._client.call(address, "GET", IDENTITY_PATH, ANYBODY)
            return msgspec.json.decode(answer, type=Identity).incarnation
        except Gone:
            return None
        except (Unreachable, Silent) as error:
            self._silent.append(str(address))
            log.warning("peers: %s", error)
        except (Stranger, msgspec.MsgspecError) as error:
            log.warning("peers: %s is no peer with a key of ours: %s", address, error)
        return None
