"""Tells the other gateways and workers which queues are paused, and asks what they know."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from babelgate.cluster.asking import Asked, ask
from babelgate.cluster.client import Address, PeerClient
from babelgate.cluster.discovery import all_peers
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import PAUSES_PATH, PauseExchange, decode_pauses, encode_pauses
from babelgate.gateway.pauses import Heard, PauseChange
from babelgate.observe.logs import get_logger

EXCHANGE_SECONDS = 1.0
"""How long a peer has to answer: it writes at most one small file before."""

log = get_logger(__name__)


class PeerPauses:
    """Exchanges with all peers at once. It connects when it asks."""

    def __init__(
        self,
        incarnation: str,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = EXCHANGE_SECONDS,
    ) -> None:
        """``incarnation``: of this process. ``addresses``: the peers on other hosts, and maybe this process; a host
        name stands for all its IP addresses."""
        self._incarnation = incarnation
        self._directory = directory
        self._addresses = tuple(addresses)
        self._client = PeerClient(signer, seconds)
        self._seconds = seconds
        self.has_addresses = bool(addresses)
        self._silent: frozenset[str] = frozenset()
        """The peers that gave no answer last time, so that each silence is logged once."""

    async def exchange(self, changes: Sequence[PauseChange]) -> Heard:
        """Tell all peers ``changes`` and return theirs; takes 3 s at most. Never raises.

        A socket on which no process listens is that of a killed process, and no peer. A peer of a version that cannot
        pause is silent.
        """
        names, silent = await all_peers(self._directory, self._addresses)
        if not names:
            return Heard(silent=silent)
        body = encode_pauses(self._incarnation, changes)
        answers = await asyncio.gather(*(self._exchange(address, body) for address in names))
        reasons = {name: a.reason for name, a in zip(names.values(), answers, strict=True) if a.state == "silent"}
        for name in reasons.keys() - self._silent:
            log.warning("a peer was not asked which queues are paused", peer=name, reason=reasons[name])
        self._silent = frozenset(reasons)
        silent += reasons
        # Two addresses may lead to one gateway, and one of them to this process.
        heard = {each.answer.incarnation: each.answer.changes for each in answers if each.answer is not None}
        heard.pop(self._incarnation, None)
        return Heard(list(chain.from_iterable(heard.values())), len(heard), silent)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _exchange(self, address: Address, body: bytes) -> Asked[PauseExchange]:
        return await ask(self._client, address, "POST", PAUSES_PATH, ANYBODY, body, decode_pauses, self._seconds)
