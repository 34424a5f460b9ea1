"""Asks all peers who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from babelgate.cluster.asking import ask
from babelgate.cluster.client import Address, PeerClient
from babelgate.cluster.discovery import all_peers
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import IDENTITY_PATH, decode_identity
from babelgate.gateway.replicas import Identity

ANSWER_SECONDS = 1.0


class PeerRollCall:
    """A part of the application, which closes it; it connects when it asks."""

    def __init__(
        self,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """``addresses``: the peers on other hosts; a host name stands for all its IP addresses."""
        self._directory = directory
        self._addresses = tuple(addresses)
        self._client = PeerClient(signer, seconds)
        self._seconds = seconds

    async def start(self) -> None:
        """Do nothing."""

    async def ask(self) -> tuple[list[Identity], list[str]]:
        """The peers, and the names of those that gave no answer: address, or name of the socket. Takes 3 s at most. A
        socket on which no process listens is that of a killed process, and no peer. Never raises."""
        names, silent = await all_peers(self._directory, self._addresses)
        client, seconds = self._client, self._seconds
        answers = await asyncio.gather(
            *(ask(client, each, "GET", IDENTITY_PATH, ANYBODY, b"", decode_identity, seconds) for each in names)
        )
        silent += [name for name, asked in zip(names.values(), answers, strict=True) if asked.state == "silent"]
        return [asked.answer for asked in answers if asked.answer is not None], silent

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()
