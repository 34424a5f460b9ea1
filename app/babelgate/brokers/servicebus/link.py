"""Receives from one link of the client library, and leaves no credit behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from azure.servicebus._pyamqp.error import AMQPException

from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.brokers.servicebus.message import AmqpMessage, read
from babelgate.brokers.servicebus.typed import typed_properties
from babelgate.runtime import turns

_LISTEN_SECONDS = 0.1
"""How long one look at the socket waits for a frame."""

_TOKEN_BYTES = 16
_QUIET = logging.getLogger("azure.servicebus")


class LockedMessage(NamedTuple):
    """A message on a link: its lock token, and the id and tag of the delivery."""

    token: UUID
    delivery_id: int
    tag: bytes
    message: AmqpMessage


class ReceiveLink:
    """The link of an open ``receiver`` of the client library.

    The client's own receive leaves its credit on the link when it ends early: a message that comes later is locked for
    nobody. Here each receive ends with a drain: the service sends what it has for the credit, or takes the credit
    back, and says so. So an empty answer is the service's. The AMQP specification, section 2.6.7, has the rule:
    https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html#doc-flow-control
    """

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver
        self._amqp = receiver._handler
        self._link = self._amqp._link
        self._drained = False
        self._typed: dict[int, Mapping[str, bytes]] = {}
        """The typed properties of the messages that arrived, by the id of their delivery."""
        self._transferred = self._link._incoming_transfer
        self._link._incoming_transfer = self._transfer
        # The client library drops this frame.
        self._link._incoming_flow = self._flow

    async def receive(
        self, limit: int, wait_seconds: float, until: float, waits: Callable[[], bool] = lambda: True
    ) -> list[LockedMessage]:
        """At most ``limit`` messages: those that are there, or those that come within ``wait_seconds`` while ``waits``.

        Raises TimeoutError when the service has not answered at the loop time ``until``, and the client library's
        errors. The link must not be used again after an error.
        """
        clock = asyncio.get_running_loop().time
        arrived = self._amqp._received_messages
        self._receiver._receive_context.set()
        try:
            if wait_seconds > 0:
                wait_until = clock() + wait_seconds
                await self._link.flow(link_credit=limit)
                while arrived.empty() and waits() and (left := wait_until - clock()) > 0:
                    await self._listen(min(left, _LISTEN_SECONDS))
            self._drained = False
            if arrived.qsize() < limit:
                await self._link.flow(link_credit=limit - arrived.qsize(), drain=True)
                while arrived.qsize() < limit and not self._drained:
                    if clock() > until + GRACE_SECONDS:
                        raise TimeoutError
                    await self._listen(_LISTEN_SECONDS)
        except AMQPException as error:
            raise self._receiver._amqp_transport.create_servicebus_exception(_QUIET, error) from error
        finally:
            self._receiver._receive_context.clear()
        taken = [arrived.get_nowait() for _ in range(arrived.qsize())]
        return await turns.mapped(self._received, taken)

    async def give_back(self, delivery_id: int, tag: bytes, seconds: float) -> None:
        """Make a delivery available at once, uncounted. Raises the client library's errors."""
        await self._amqp.settle_messages_async(
            delivery_id, tag, "released", await_outcome=True, outcome_timeout=seconds
        )

    async def _listen(self, seconds: float) -> None:
        # It also renews the access token.
        if await self._amqp.auth_complete_async():
            self._link.get_state()
            await self._amqp._connection.listen(wait=seconds)

    async def _transfer(self, frame: Any) -> None:
        """A part of a message, the last one unless ``frame[5]``. The first has the id of the delivery in ``frame[1]``,
        and all have bytes in ``frame[11]``."""
        if not frame[5]:
            before = self._link._received_payload
            typed = typed_properties(b"".join((before, frame[11])) if before else frame[11])
            if typed:
                self._typed[(frame if frame[1] is not None else self._link._first_frame)[1]] = typed
        await self._transferred(frame)

    def _received(self, taken: tuple[Any, Any]) -> LockedMessage:
        frame, message = taken
        tag = bytes(frame[2] or b"")
        # A message that is removed by its receive has no lock.
        token = UUID(bytes_le=tag) if len(tag) == _TOKEN_BYTES else UUID(int=0)
        return LockedMessage(token, frame[1], tag, read(message, self._typed.pop(frame[1], {})))

    async def _flow(self, frame: Any) -> None:
        """The state of the link as the service tells it: handle, delivery count and credit are fields 4 to 6."""
        if frame[4] is not None and frame[5] is not None:
            self._link.delivery_count = frame[5]
            self._link.current_link_credit = frame[6] or 0
            self._drained = self._drained or not frame[6]
