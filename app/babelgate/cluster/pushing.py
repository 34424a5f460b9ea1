"""Asks the other gateways and workers for the pushes that calls have set there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from babelgate.cluster.asking import Asked, ask
from babelgate.cluster.client import Address, PeerClient
from babelgate.cluster.discovery import all_peers
from babelgate.cluster.sealing import PeerCipher
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import PUSHES_PATH, PushQuestion, decode_push_answer, encode_push_question
from babelgate.jsontext import decoded
from babelgate.observe.logs import get_logger
from babelgate.push.file import Stored, Version, stored_pushes

ANSWER_SECONDS = 1.0

log = get_logger(__name__)


class PeerPushes:
    """Asks all peers at once. It connects when it asks."""

    def __init__(
        self,
        signer: Signer,
        cipher: PeerCipher,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """``addresses``: the peers on other hosts, and maybe this process; a host name stands for all its IP
        addresses."""
        self._cipher = cipher
        self._directory = directory
        self._addresses = tuple(addresses)
        self._client = PeerClient(signer, seconds)
        self._seconds = seconds
        self._silent: frozenset[str] = frozenset()
        """The peers that gave no answer last time, so that each silence is logged once."""

    async def newer(self, versions: Mapping[str, Version]) -> Sequence[Stored]:
        """What each peer has that is newer than ``versions``; takes 3 s at most. Never raises.

        A socket on which no process listens is that of a killed process, and no peer.
        """
        names, silent = await all_peers(self._directory, self._addresses)
        body = encode_push_question(PushQuestion(versions))
        answers = await asyncio.gather(*(self._ask(address, body) for address in names))
        reasons = {name: a.reason for name, a in zip(names.values(), answers, strict=True) if a.state == "silent"}
        reasons |= dict.fromkeys(silent, "not resolved")
        for name in reasons.keys() - self._silent:
            log.warning("a peer was not asked for pushes", peer=name, reason=reasons[name])
        self._silent = frozenset(reasons)
        return [asked.answer for asked in answers if asked.answer is not None]

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._client.close()

    async def _ask(self, address: Address, body: bytes) -> Asked[Stored]:
        return await ask(self._client, address, "POST", PUSHES_PATH, ANYBODY, body, self._opened, self._seconds)

    def _opened(self, body: bytes) -> Stored:
        """Raises msgspec.MsgspecError, ValueError."""
        return decoded(stored_pushes, self._cipher.open(decode_push_answer(body).sealed))
