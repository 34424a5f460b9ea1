"""Tracks the messages published on one channel that the broker has not confirmed yet."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct
from pamqp.commands import Basic

from babelgate.brokers.batching import Batch
from babelgate.brokers.rabbitmq.profile import AddressedMessage


class Returned(Exception):
    """The broker could not route the message; the text is the broker's."""


class Nacked(Exception):
    """The broker refused the message (``basic.nack``) without a reason; see publish.NackErrors."""


UNCONFIRMED = Exception("no confirm")

Confirmed = Batch[Exception | None]
"""The results of the messages of one write: None once a message is confirmed; UNCONFIRMED until then; or its error."""


class _Expected(Struct):
    message: AddressedMessage
    batch: Confirmed
    position: int
    returned: str | None = None


class Confirms:
    """The unconfirmed messages of a channel by delivery tag, counted from 1 as by the broker."""

    def __init__(self) -> None:
        self._tag = 0
        self._unconfirmed: OrderedDict[int, _Expected] = OrderedDict()

    def expect(self, message: AddressedMessage, batch: Confirmed, position: int) -> None:
        """Register the next message written. Its result in ``batch`` is None, Returned or Nacked."""
        self._tag += 1
        self._unconfirmed[self._tag] = _Expected(message, batch, position)

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
            expected = self._unconfirmed.pop(each, None)
            if expected is None:
                continue
            result: Exception | None = None
            if expected.returned is not None:
                result = Returned(expected.returned)
            elif not taken:
                result = Nacked("RabbitMQ did not take the message (basic.nack)")
            expected.batch.settle(expected.position, result)

    def abandon(self, error: Exception) -> None:
        """End all messages with ``error``, because the channel has ended."""
        unconfirmed, self._unconfirmed = self._unconfirmed, OrderedDict()
        for expected in unconfirmed.values():
            expected.batch.settle(expected.position, error)
