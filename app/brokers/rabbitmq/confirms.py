"""Tracks the messages published on one channel that the broker has not confirmed yet."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from msgspec import Struct
from pamqp.commands import Basic

from app.brokers.rabbitmq.profile import AddressedMessage


class Returned(Exception):
    """The broker could not route the message; the text is the broker's."""


class Nacked(Exception):
    """The broker refused the message (``basic.nack``) without a reason; see publish.NackErrors."""


class _Unconfirmed(Struct):
    message: AddressedMessage
    future: asyncio.Future[None]
    returned: str | None = None


class Confirms:
    """The unconfirmed messages of a channel by delivery tag, counted from 1 as by the broker."""

    def __init__(self) -> None:
        self._tag = 0
        self._unconfirmed: OrderedDict[int, _Unconfirmed] = OrderedDict()

    def expect(self, message: AddressedMessage, future: asyncio.Future[None]) -> None:
        """Register the next message written. ``future`` is done at its confirm, or raises Returned or Nacked."""
        self._tag += 1
        self._unconfirmed[self._tag] = _Unconfirmed(message, future)

    def returned(self, method: Basic.Return, body: bytes) -> None:
        """Mark the oldest unconfirmed message that equals the returned one. Its confirm follows later."""
        way = method.exchange or "", method.routing_key or ""
        for unconfirmed in self._unconfirmed.values():
            message = unconfirmed.message
            if unconfirmed.returned is None and (message.exchange, message.routing_key) == way and message.body == body:
                unconfirmed.returned = method.reply_text or "unroutable"
                return

    def confirmed(self, tag: int, multiple: bool, taken: bool) -> None:
        """Resolve the message ``tag``, or with ``multiple`` all up to it; ``taken``: an ack, otherwise a nack."""
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
        """Forget all messages, because the channel has ended; their futures."""
        futures = [unconfirmed.future for unconfirmed in self._unconfirmed.values()]
        self._unconfirmed.clear()
        return futures
