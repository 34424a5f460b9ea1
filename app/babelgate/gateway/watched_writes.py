"""Reports the writes that a broker's storage refuses, whichever part of the gateway makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from babelgate.brokers.binding import Binding
from babelgate.brokers.idempotency_store import KeepsKeys
from babelgate.errors import StorageFull, StorageReadOnly

Refusal = StorageFull | StorageReadOnly

WRITES = (
    *("publish", "reserve", "ack", "release", "extend", "dead_letter", "publish_dead_letters"),
    *("remove_dead", "purge", "purge_dead"),
)
"""The methods of a binding that store something: on some brokers a lease or an ack, too."""

KEY_WRITES = ("publish", "reserve", "settle", "sweep")
"""Those of its store of idempotency keys."""


def watch_writes(binding: Binding, refused: Callable[[Refusal], None]) -> None:
    """Let ``binding`` call ``refused`` for each call that its storage refuses, in whole or for one message.

    The methods of this object are replaced, because copies, dead letters, redrives, keys and sweeps call them from
    places that have nothing else in common.
    """
    _watch(binding, WRITES, refused)
    if isinstance(binding, KeepsKeys):
        _watch(binding.keys, KEY_WRITES, refused)


def _watch(target: object, names: tuple[str, ...], refused: Callable[[Refusal], None]) -> None:
    for name in names:
        if (write := getattr(target, name, None)) is not None:
            setattr(target, name, _watched(write, refused))


def _watched(write: Callable[..., Awaitable[Any]], refused: Callable[[Refusal], None]) -> Callable[..., Awaitable[Any]]:
    @wraps(write)
    async def watched(*arguments: Any, **named: Any) -> Any:
        try:
            results = await write(*arguments, **named)
        except (StorageFull, StorageReadOnly) as error:
            refused(error)
            raise
        # None is success, and counting it takes no step of Python a message.
        if isinstance(results, list | tuple) and results.count(None) < len(results):
            for each in results:
                if isinstance(each, Refusal):
                    refused(each)
                    break
        return results

    return watched
