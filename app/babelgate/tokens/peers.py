"""What the tokens of a process need of its peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from babelgate.tokens.file import MadeToken


class HeardTokens(Struct, frozen=True):
    """The versions that peers have and this process may not, how many peers answered, and who did not."""

    versions: Sequence[MadeToken] = ()
    told: int = 0
    silent: Sequence[str] = ()


class TokenPeers(Protocol):
    """The other gateways and workers."""

    has_addresses: bool
    """Whether gateways on other hosts are configured."""

    async def exchange(self, versions: Sequence[MadeToken], digest: str) -> HeardTokens:
        """Tell all peers ``versions``, and ask those whose digest is another one for theirs; takes 3 s at most. Never
        raises."""

    async def close(self) -> None:
        """Close the connections; idempotent."""


class NoTokenPeers:
    """The peers of a process that has none."""

    has_addresses = False

    async def exchange(self, versions: Sequence[MadeToken], digest: str) -> HeardTokens:
        return HeardTokens()

    async def close(self) -> None:
        """Do nothing."""
