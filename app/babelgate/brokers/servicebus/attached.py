"""Finds out whether the service has ended a link or its connection while no operation used it."""

from __future__ import annotations

import asyncio
from typing import Any

from azure.servicebus._pyamqp.constants import LinkState

_UNREAD_SECONDS = 1.0
"""How long reading the frames that have arrived may take. They are in memory, but the last one may be half a frame."""


async def is_attached(client: Any) -> bool:
    """Whether the link of an open sender or receiver is attached, also after the frames that came since its last use.

    The client library reads the socket during operations only: it would learn by the next one that the service has
    detached the link. No operation may be in progress.
    """
    amqp = client._handler
    if amqp is None or amqp._connection is None:
        return False
    try:
        async with asyncio.timeout(_UNREAD_SECONDS):
            while _has_unread(amqp._connection._transport):
                await amqp._connection.listen(wait=_UNREAD_SECONDS)
        return bool(amqp._link.get_state() == LinkState.ATTACHED)
    except Exception:
        # Whatever the client library raises, the link cannot be used.
        return False


def _has_unread(transport: Any) -> bool:
    """Whether something has arrived. Raises ConnectionError if the connection is lost."""
    is_stream = hasattr(transport, "reader")
    reader = transport.reader if is_stream else getattr(transport.sock, "_reader", None)
    if reader is None or reader.exception() is not None or (reader.at_eof() if is_stream else reader.is_eof()):
        raise ConnectionError
    return bool(reader._buffer)
