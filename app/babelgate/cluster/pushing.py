"""Tells the other gateways and workers which pushes calls have changed, and asks for those that were changed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from babelgate.cluster.asking import AllPeers
from babelgate.cluster.client import Address
from babelgate.cluster.sealing import PeerCipher
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import PUSHES_PATH, PushQuestion, decode_push_answer, encode_push_question
from babelgate.gateway.spreading import Heard
from babelgate.jsontext import decoded
from babelgate.push.file import NOTHING, Stored, Version, stored_pushes

ANSWER_SECONDS = 1.0


class PeerPushes:
    """Asks all peers at once, as :class:`AllPeers` does."""

    def __init__(
        self,
        incarnation: str,
        signer: Signer,
        cipher: PeerCipher,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """``incarnation``: of this process."""
        self._incarnation = incarnation
        self._cipher = cipher
        self._peers = AllPeers(signer, directory, addresses, seconds, "pushes")

    async def newer(self, versions: Mapping[str, Version], changed: Stored = NOTHING) -> Heard[Stored]:
        """See :class:`babelgate.push.pushes.PushPeers`."""
        sealed = self._cipher.seal(msgspec.json.encode(changed)) if changed else ""
        question = encode_push_question(PushQuestion(versions, sealed))
        answers, silent = await self._peers.ask("POST", PUSHES_PATH, question, self._opened)
        # Two addresses may lead to one gateway, and one of them to this process.
        told = {incarnation for incarnation, _ in answers} - {self._incarnation, ""}
        return Heard([stored for _, stored in answers], len(told), silent)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()

    def _opened(self, body: bytes) -> tuple[str, Stored]:
        """Raises msgspec.MsgspecError, ValueError."""
        answer = decode_push_answer(body)
        return answer.incarnation, opened(self._cipher, answer.sealed)


def opened(cipher: PeerCipher, sealed: str) -> Stored:
    """The pushes that a peer has sealed. Raises msgspec.MsgspecError, ValueError."""
    return decoded(stored_pushes, cipher.open(sealed))
