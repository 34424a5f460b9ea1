"""Asks the other gateways and workers for the pushes that calls have set there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from babelgate.cluster.asking import AllPeers
from babelgate.cluster.client import Address
from babelgate.cluster.sealing import PeerCipher
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import PUSHES_PATH, PushQuestion, decode_push_answer, encode_push_question
from babelgate.jsontext import decoded
from babelgate.push.file import Stored, Version, stored_pushes

ANSWER_SECONDS = 1.0


class PeerPushes:
    """Asks all peers at once, as :class:`AllPeers` does."""

    def __init__(
        self,
        signer: Signer,
        cipher: PeerCipher,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._cipher = cipher
        self._peers = AllPeers(signer, directory, addresses, seconds, "pushes")

    async def newer(self, versions: Mapping[str, Version]) -> Sequence[Stored]:
        """What each peer has that is newer than ``versions``; takes 3 s at most. Never raises."""
        found, _ = await self._peers.ask(
            "POST", PUSHES_PATH, encode_push_question(PushQuestion(versions)), self._opened
        )
        return found

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()

    def _opened(self, body: bytes) -> Stored:
        """Raises msgspec.MsgspecError, ValueError."""
        return decoded(stored_pushes, self._cipher.open(decode_push_answer(body).sealed))
