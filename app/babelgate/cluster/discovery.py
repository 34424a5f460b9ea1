"""Finds the addresses of peers by asking each peer for its identity. An address is never taken from client input."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from babelgate.cluster.client import Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from babelgate.cluster.signing import ANYBODY
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import IDENTITY_PATH, decode_identity
from babelgate.observe.logs import get_logger

log = get_logger(__name__)

QUERY_EVERY_SECONDS = 1
QUERY_SECONDS = 2
RESOLVE_SECONDS = 2
_NOBODY = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class Addresses:
    """Finds peers in the socket directory of this host and at all IP addresses of ``addresses``."""

    def __init__(self, client: PeerClient, directory: SocketDirectory, addresses: Sequence[Address] = ()) -> None:
        self._client = client
        self._directory = directory
        self._configured = tuple(addresses)
        self._known: dict[str, Address] = {}
        self._missing: dict[str, float] = {}
        self._silent: list[str] = []
        self._query: asyncio.Task[None] | None = None
        self._queried_at = float("-inf")

    async def find(self, incarnation: str) -> Address | None:
        """The address of ``incarnation``; None when no peer has that incarnation.

        An unknown incarnation makes this process query all peers, at most once per second; concurrent callers share
        one query. Blocks at most 10 s. Raises PeerUnreachable when a peer that may be the owner did not answer.
        """
        socket_path = self._directory.find(incarnation)
        if socket_path is not None:
            return Address(socket_path)
        if not self._configured:
            return None
        loop = asyncio.get_running_loop()
        since = loop.time()
        if since < self._missing.get(incarnation, float("-inf")) + QUERY_EVERY_SECONDS:
            return None
        # A query that began earlier may have missed a peer that has started since.
        while incarnation not in self._known and self._queried_at < since:
            if self._query is None:
                self._query = loop.create_task(self._query_all())
            await asyncio.shield(self._query)
        found = self._known.get(incarnation)
        if found is None:
            if self._silent:
                raise PeerUnreachable(f"{', '.join(self._silent)} did not answer with their identity")
            self._missing[incarnation] = loop.time()
        return found

    def forget(self, incarnation: str) -> None:
        """Drop the cached address of ``incarnation``."""
        self._known.pop(incarnation, None)

    async def _query_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._queried_at + QUERY_EVERY_SECONDS - loop.time())
            began = loop.time()
            found, self._silent = await resolved(self._configured)
            answers = await asyncio.gather(*map(self._identify, found))
            self._known = {name: address for name, address in zip(answers, found, strict=True) if name is not None}
            self._missing.clear()
            self._queried_at = began
        finally:
            self._query = None

    async def _identify(self, address: Address) -> str | None:
        """The incarnation of the peer at ``address``; None if there is none."""
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                answer = await self._client.call(address, "GET", IDENTITY_PATH, ANYBODY)
            return decode_identity(answer).incarnation
        except PeerGone:
            return None
        except (PeerUnreachable, PeerSilent, TimeoutError) as error:
            self._silent.append(str(address))
            log.warning("peer silent", address=address, error=str(error) or f"no answer within {QUERY_SECONDS} s")
        except (NotAPeer, msgspec.MsgspecError) as error:
            log.warning("no peer with a shared key", address=address, error=error)
        return None


async def all_peers(directory: SocketDirectory, addresses: Sequence[Address]) -> tuple[dict[Address, str], list[str]]:
    """The peers in ``directory`` and at ``addresses``, each with its name: the name of its socket, or its address; and
    the host names that were not resolved. Takes at most 2 s."""
    found, silent = await resolved(addresses) if addresses else ([], [])
    names = {Address(path): PurePath(path).stem for path in directory.others()}
    return names | {address: str(address) for address in found}, silent


async def resolved(addresses: Sequence[Address]) -> tuple[list[Address], list[str]]:
    """All IP addresses of ``addresses``, whose hosts are names or IP addresses, and the names that were not resolved.

    A name without any address is resolved: it stands for no peer now. Takes at most 2 s.
    """
    silent: list[str] = []
    several = await asyncio.gather(*(_resolve(address, silent) for address in addresses))
    return list(dict.fromkeys(itertools.chain.from_iterable(several))), silent


async def _resolve(address: Address, silent: list[str]) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        log.warning("peers not resolved", host=address.host, error=str(error) or "no answer")
        if error.errno not in _NOBODY:
            silent.append(address.host)
        return []
    return [Address(str(sockaddr[0]), address.port) for *_, sockaddr in found]
