"""What was published on one channel and is not confirmed yet."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from msgspec import Struct
from pamqp.commands import Basic

from app.brokers.rabbitmq.profile import AddressedMessage


class Returned(Exception):
    """The broker could not route the message; the text is the broker's."""


class Nacked(Exception):
    """The broker refused the message (``basic.nack``), and gave no reason; see :mod:`app.brokers.rabbitmq.publish`."""


class _Unconfirmed(Struct):
    message: AddressedMessage
    future: asyncio.Future[None]
    returned: str | None = None


class Confirms:
    """Counts as the broker does: the first message written on a channel has the tag 1."""

    def __init__(self) -> None:
        self._tag = 0
        self._unconfirmed: OrderedDict[int, _Unconfirmed] = OrderedDict()

    def expect(self, message: AddressedMessage, future: asyncio.Future[None]) -> None:
        """``message`` is the next that is written; ``future`` is done at its confirm, or raises Returned or Nacked."""
        self._tag += 1
        self._unconfirmed[self._tag] = _Unconfirmed(message, future)

    def returned(self, method: Basic.Return, body: bytes) -> None:
        """Mark the message that came back: the oldest such that is not confirmed. Its confirm is still to come."""
        way = method.exchange or "", method.routing_key or ""
        for unconfirmed in self._unconfirmed.values():
            message = unconfirmed.message
            if unconfirmed.returned is None and (message.exchange, message.routing_key) == way and message.body == body:
                unconfirmed.returned = method.reply_text or "unroutable"
                return

    def confirmed(self, tag: int, multiple: bool, taken: bool) -> None:
        """The broker's word on the message ``tag``, or with ``multiple`` on all up to it."""
        tags = [tag]
        if multiple:
            tags = []
            for each in self._unconfirmed:
                if each > tag:
                    break
                tags.append(each)
        for each in tags:
            unconfirmed = self._unconfirmed.pop(each, None)
            if unconfirmed is None or unconfirmed.future.done():
                continue
            if unconfirmed.returned is not None:
                unconfirmed.future.set_exception(Returned(unconfirmed.returned))
            elif taken:
                unconfirmed.future.set_result(None)
            else:
                unconfirmed.future.set_exception(Nacked("RabbitMQ did not take the message (basic.nack)"))

    def abandon(self) -> list[asyncio.Future[None]]:
        """The channel has ended: the futures that will hear no more."""
        futures = [unconfirmed.future for unconfirmed in self._unconfirmed.values()]
        self._unconfirmed.clear()
        return futures
