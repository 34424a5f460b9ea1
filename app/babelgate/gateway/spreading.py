"""What all processes are to know: how a change spreads to peers, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

Change = TypeVar("Change")


class Heard(Struct, Generic[Change], frozen=True):
    """The changes that peers know, how many peers have answered, and the names of those that did not."""

    changes: Sequence[Change] = ()
    told: int = 0
    silent: Sequence[str] = ()


class OtherProcesses(Protocol[Change]):
    """The other gateways and workers."""

    has_addresses: bool
    """Whether gateways on other hosts are configured."""

    async def exchange(self, changes: Sequence[Change], digest: str = "") -> Heard[Change]:
        """Tell all peers ``changes`` and return theirs; takes 3 s at most. Never raises.

        ``digest``: of all that this process knows, where ``changes`` are less; a peer with the same one has no news.
        """

    async def close(self) -> None:
        """Close the connections; idempotent."""


class NobodyElse:
    """The peers of a process that has none."""

    has_addresses = False

    async def exchange(self, changes: Sequence[Any], digest: str = "") -> Heard[Any]:
        return Heard()

    async def close(self) -> None:
        """Do nothing."""


def spread_words(kept: bool, told: int, silent: Sequence[str], has_addresses: bool) -> str:
    """Who knows a change, in sentences. ``kept``: whether ``state_dir`` has it. ``told`` and ``silent``: see
    :class:`Heard`. ``has_addresses``: see :class:`OtherProcesses`."""
    words = [
        "It is kept in state_dir, which other processes with this directory read within a second."
        if kept
        else "It is in memory only, and ends with this process: state_dir cannot be written."
    ]
    if told:
        words.append(f"{told} other {'process knows' if told == 1 else 'processes know'} it.")
    if silent:
        words.append(f"No answer from {', '.join(silent)}: what does not answer learns it later.")
    elif not has_addresses:
        words.append("No peers on other hosts are configured: a gateway there does not learn it.")
    return " ".join(words)
