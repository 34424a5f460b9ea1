"""What a profile decides: how envelopes look on a RabbitMQ queue, and which exchanges and queues carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from msgspec import Struct
from pamqp.commands import Basic

from app.brokers.binding import Outgoing
from app.errors import ConfigError

DELIVERY_LIMIT = 20
"""The broker's own default since 4.0: https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""

_QUEUE_TYPES = ("classic", "quorum")


@dataclass(frozen=True, slots=True)
class ExchangeDeclaration:
    """A durable exchange. What it cannot route goes to its ``alternate``, where it has one."""

    name: str
    kind: Literal["direct", "topic", "fanout", "headers"]
    alternate: str | None = None


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A durable queue, neither exclusive nor deleted by the broker, with its ``arguments`` (``x-…``).

    ``or_else``: arguments to declare it with, in this order, where the broker refuses those before. An
    ``x-delivery-limit`` of -1 means none, however the broker has it said.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    or_else: Sequence[Mapping[str, Any]] = field(default=(), hash=False)


@dataclass(frozen=True, slots=True)
class BindingDeclaration:
    """``destination`` (a queue, or an exchange) gets from ``exchange`` what has ``routing_key``."""

    exchange: str
    destination: str
    routing_key: str
    to_exchange: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """What must exist, declared in this order: exchanges, queues, bindings."""

    exchanges: Sequence[ExchangeDeclaration] = ()
    queues: Sequence[QueueDeclaration] = ()
    bindings: Sequence[BindingDeclaration] = ()


class AddressedMessage(Struct, frozen=True):
    """A message as it is published. ``needs`` must exist before, beside the profile's own topology."""

    exchange: str
    routing_key: str
    properties: Basic.Properties
    body: bytes
    needs: Topology | None = None


class NativeMessage(Struct, frozen=True):
    """A message as the broker handed it out."""

    body: bytes
    properties: Basic.Properties
    exchange: str
    routing_key: str
    redelivered: bool


class DecodedMessage(Struct, frozen=True):
    """A message as the gateway sees it: as in :class:`app.brokers.binding.Delivery`."""

    body: bytes
    headers: Mapping[str, str]
    delivery_count: int
    carried: Any = None


class Profile(Protocol):
    """How one queue's messages are written and read. Pure."""

    queue: str
    """The native queue that is consumed."""

    dead_queue: str
    """The native queue where dead letters rest."""

    topology: Topology
    """What publishing to, and consuming from, the queue needs."""

    dead_topology: Topology
    """What dead-lettering needs."""

    def message(self, outgoing: Outgoing) -> AddressedMessage:
        """A message to publish: a new one, or a retry where ``outgoing.failure`` is set; a delay is kept by routing."""

    def dead(self, record: Outgoing) -> AddressedMessage:
        """A dead-letter record to publish."""

    def read(self, native: NativeMessage) -> DecodedMessage:
        """A delivery. Never raises: what is no envelope keeps its body, and is found to be poison above."""

    def read_dead(self, native: NativeMessage) -> DecodedMessage:
        """A dead letter at rest, as a dead-letter record where it can be one; else its body as it is."""


def one_of(options: Mapping[str, Any], key: str, known: Sequence[str]) -> str:
    """The option ``key``, one of ``known``; the first of them where it is absent. Raises ConfigError."""
    value = options.get(key, known[0])
    if not isinstance(value, str) or value not in known:
        raise ConfigError(key=key, reason=f"{', '.join(known[:-1])} or {known[-1]} is expected")
    return value


def quorum_limit(options: Mapping[str, Any]) -> int | None:
    """The delivery limit of a quorum queue, -1 for none, by ``queue_type`` and ``delivery_limit``.

    None for a classic queue. Raises ConfigError.
    """
    if one_of(options, "queue_type", _QUEUE_TYPES) == "classic":
        if "delivery_limit" in options:
            raise ConfigError(key="delivery_limit", reason="queue_type: quorum is expected beside it")
        return None
    limit = options.get("delivery_limit", DELIVERY_LIMIT)
    if limit is None:
        return -1
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigError(key="delivery_limit", reason="a number from 1, or null for none, is expected")
    return limit


def confirmed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` for a quorum queue that dead-letters at least once, which RabbitMQ 3.10 and newer can.

    The strategy needs this overflow: https://www.rabbitmq.com/docs/quorum-queues#dead-lettering
    """
    return {
        **arguments,
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


UNLIMITED: Mapping[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": -1}
"""Arguments of a quorum queue whose messages are taken and put back any number of times."""
