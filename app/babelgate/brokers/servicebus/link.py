"""Receives from one link of the client library, and leaves no credit behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.brokers.servicebus.message import AmqpMessage, read
from babelgate.brokers.servicebus.sdk_internals import LinkInternals
from babelgate.runtime import turns

_LISTEN_SECONDS = 0.1
"""How long one look at the socket waits for a frame."""

_TOKEN_BYTES = 16


class LockedMessage(NamedTuple):
    """A message on a link: its lock token, and the id and tag of the delivery."""

    token: UUID
    delivery_id: int
    tag: bytes
    message: AmqpMessage


class ReceiveLink:
    """The link of an open ``receiver`` of the client library.

    The client's own receive leaves its credit on the link when it ends early: a message that comes later is locked
    without a receive. Here each receive ends with a drain: the service sends what it has for the credit, or takes the
    credit back, and says so. So an empty answer is the service's. The AMQP specification, section 2.6.7, has the rule:
    https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html#doc-flow-control
    """

    def __init__(self, receiver: Any) -> None:
        self._link = LinkInternals(receiver, self._learn_credit)
        self._drained = False

    async def receive(
        self, limit: int, wait_seconds: float, until: float, waits: Callable[[], bool] = lambda: True
    ) -> list[LockedMessage]:
        """At most ``limit`` messages: those that are there, or those that come within ``wait_seconds`` while ``waits``.

        Raises TimeoutError when the service has not answered at the loop time ``until``, and the client library's
        errors. The link must not be used again after an error.
        """
        clock = asyncio.get_running_loop().time
        link = self._link
        with link.translating():
            if wait_seconds > 0:
                wait_until = clock() + wait_seconds
                await link.flow(limit)
                while not link.arrived and waits() and (left := wait_until - clock()) > 0:
                    await link.listen(min(left, _LISTEN_SECONDS))
            self._drained = False
            if len(link.arrived) < limit:
                await link.flow(limit - len(link.arrived), drain=True)
                while len(link.arrived) < limit and not self._drained:
                    if clock() > until + GRACE_SECONDS:
                        raise TimeoutError
                    await link.listen(_LISTEN_SECONDS)
        return await turns.mapped(_received, link.take(), lambda taken: len(taken[2]))

    async def give_back(self, delivery_id: int, tag: bytes, seconds: float) -> None:
        """Make a delivery available at once, uncounted. Raises the client library's errors."""
        await self._link.release(delivery_id, tag, seconds)

    def _learn_credit(self, credit: int) -> None:
        self._drained = self._drained or not credit


def _received(taken: tuple[int, bytes, bytes]) -> LockedMessage:
    delivery_id, tag, encoded = taken
    # A message that is removed by its receive has no lock.
    token = UUID(bytes_le=tag) if len(tag) == _TOKEN_BYTES else UUID(int=0)
    return LockedMessage(token, delivery_id, tag, read(encoded))
