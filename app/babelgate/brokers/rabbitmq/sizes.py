"""Learns the largest message that a server accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from babelgate.brokers.rabbitmq.profile import AddressedMessage
from babelgate.errors import BodyTooLarge

ALWAYS_BYTES = 16_384
"""Bodies up to this size are taken for accepted: a thousandth of RabbitMQ's default limit of 16 MiB."""

# rabbit_channel.erl, check_msg_size/2, of RabbitMQ 3.8 to 4.1. The management API does not report the limit.
_REFUSED = re.compile(r"message size \d+ is larger than (?:\w+ )*max size (\d+)")


class AcceptedSizes:
    """The limit of one connection, ``max_message_size``, as far as its server has shown it.

    It is read at the start of a server, so that another connection may have another limit.
    ``proven``: bodies up to this size, in bytes, are accepted. ``limit``: larger ones are refused; None: not known.
    """

    __slots__ = ("_generation", "limit", "proven")

    def __init__(self) -> None:
        self._generation = 0
        self.proven = ALWAYS_BYTES
        self.limit: int | None = None

    def of_connection(self, generation: int) -> None:
        """Forget the limit learned on another connection than number ``generation``."""
        if generation != self._generation:
            self._generation = generation
            self.proven, self.limit = ALWAYS_BYTES, None

    def refusal(self, size: int) -> BodyTooLarge | None:
        """The error of a body of ``size`` bytes, where the limit is known and less."""
        if self.limit is None or size <= self.limit:
            return None
        return BodyTooLarge(actual=size, limit=self.limit)

    def runs(self, messages: Sequence[AddressedMessage]) -> Iterator[Sequence[AddressedMessage]]:
        """``messages`` in order: as many as possible of proven sizes together, each other one by itself."""
        at = 0
        while at < len(messages):
            end = at
            while end < len(messages) and len(messages[end].body) <= self.proven:
                end += 1
            end = max(end, at + 1)
            yield messages[at:end]
            at = end

    def accepted(self, size: int) -> None:
        """The server has confirmed a body of ``size`` bytes."""
        self.proven = max(self.proven, size)

    def refused(self, reason: str) -> None:
        """Learn the limit from the ``reason`` with which the server closed a channel, if that was a message's size."""
        if (found := _REFUSED.search(reason)) is not None:
            self.limit = int(found[1])
            self.proven = min(self.proven, self.limit)
