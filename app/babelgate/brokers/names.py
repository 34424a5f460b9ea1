"""Names of queues that a broker lists."""

from __future__ import annotations

from collections.abc import Iterable


def queue_names(listed: Iterable[str], dead_suffix: str) -> list[str]:
    """``listed``, sorted, without the names of other listed queues with ``dead_suffix``: these hold dead letters."""
    names = set(listed)
    return sorted(name for name in names if name.removesuffix(dead_suffix) not in names - {name})
