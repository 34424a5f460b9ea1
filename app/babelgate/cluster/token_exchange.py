"""Tells the other gateways and workers which tokens were made, rotated and revoked, and asks what they know."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from babelgate.cluster.asking import AllPeers
from babelgate.cluster.client import Address
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import TOKENS_PATH, TokenExchange, decode_tokens, encode_tokens
from babelgate.tokens.file import MadeToken
from babelgate.tokens.peers import HeardTokens

EXCHANGE_SECONDS = 1.0
"""How long a peer has to answer: it writes at most one small file before."""


class PeerTokens:
    """Exchanges with all peers at once, as :class:`AllPeers` does."""

    def __init__(
        self,
        incarnation: str,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        seconds: float = EXCHANGE_SECONDS,
    ) -> None:
        """``incarnation``: of this process."""
        self._incarnation = incarnation
        self._peers = AllPeers(signer, directory, addresses, seconds, "tokens")
        self.has_addresses = self._peers.has_addresses

    async def exchange(self, versions: Sequence[MadeToken], digest: str) -> HeardTokens:
        """Tell all peers ``versions``, and ask those whose digest is another one for theirs; takes 3 s at most. Never
        raises."""
        body = encode_tokens(TokenExchange(self._incarnation, versions, digest))
        answers, silent = await self._peers.ask("POST", TOKENS_PATH, body, decode_tokens)
        # Two addresses may lead to one gateway, and one of them to this process.
        heard = {answer.incarnation: answer.versions for answer in answers}
        heard.pop(self._incarnation, None)
        return HeardTokens(list(chain.from_iterable(heard.values())), len(heard), silent)

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._peers.close()
