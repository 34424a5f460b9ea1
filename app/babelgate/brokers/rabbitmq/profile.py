"""The protocol of a profile, which maps envelopes to AMQP messages, and the declarations that profiles share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from msgspec import Struct
from pamqp.commands import Basic

from babelgate.brokers.binding import DeadRecord, Delivery, Outgoing
from babelgate.brokers.options import OptionMap, choice, optional, whole
from babelgate.envelope.options import MAX_PRIORITY
from babelgate.errors import ConfigError

_MAX_PRIORITY = 255
"""https://www.rabbitmq.com/docs/priority"""

DELIVERY_LIMIT = 20
"""The broker's own default since 4.0: https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""


@dataclass(frozen=True, slots=True)
class ExchangeDeclaration:
    """A durable exchange. Messages that it cannot route go to the exchange ``alternate``, where it is set."""

    name: str
    kind: Literal["direct", "topic", "fanout", "headers"]
    alternate: str | None = None


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A durable queue, neither exclusive nor deleted by the broker, with its ``arguments`` (``x-…``).

    ``or_else``: alternative arguments, tried in this order when the broker refuses ``arguments``. An
    ``x-delivery-limit`` of -1 means no limit, for every version of the broker.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    or_else: Sequence[Mapping[str, Any]] = field(default=(), hash=False)


@dataclass(frozen=True, slots=True)
class BindingDeclaration:
    """Routes messages with ``routing_key`` from ``exchange`` to ``destination``, a queue or an exchange."""

    exchange: str
    destination: str
    routing_key: str
    to_exchange: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """The exchanges, queues and bindings that must exist; they are declared in this order."""

    exchanges: Sequence[ExchangeDeclaration] = ()
    queues: Sequence[QueueDeclaration] = ()
    bindings: Sequence[BindingDeclaration] = ()


EXPIRED_HEADER = "x-babelgate-expired"
"""Marks a copy of a message of which a lease expired. A message without failures loses the mark."""


class AddressedMessage(Struct, frozen=True):
    """A message to publish. ``needs`` must exist first, in addition to the profile's own topology.

    ``given``: its properties, or what they are in a content header, flags and values.
    """

    exchange: str
    routing_key: str
    given: Basic.Properties | bytes
    body: bytes
    needs: Topology | None = None


class NativeMessage(Struct, frozen=True):
    """A message as the broker delivered it: its delivery ``tag`` on a channel, and how many were ``left`` in the queue
    after a get."""

    body: bytes
    properties: Basic.Properties
    redelivered: bool
    tag: int = 0
    left: int = 0


def priority_of(native: NativeMessage) -> int | None:
    """The priority of a message, at most that of the gateway's own; None without one."""
    found = native.properties.priority
    return None if found is None else min(found, MAX_PRIORITY)


class Profile(Protocol):
    """Writes and reads the messages of one queue. Pure.

    ``queue``: the native queue that is consumed. ``dead_queue``: that of the dead letters. ``exchange``: to which a new
    message without a delay is published, with ``routing_key``; empty: the default exchange. ``topology``: what
    publishing to, and consuming from, the queue needs. ``dead_topology``: what dead-lettering needs. ``identity``:
    equal for profiles that read and write the same queues, because a reload makes all profiles again. ``assigned``: the
    headers of a new message that state the time of its publishing.
    """

    queue: str
    dead_queue: str
    exchange: str
    routing_key: str
    topology: Topology
    dead_topology: Topology
    identity: Hashable
    assigned: frozenset[str]

    def message(self, outgoing: Outgoing) -> AddressedMessage:
        """The AMQP message for a new message, or for a retry where ``failure`` is set. Routing implements a delay."""

    def dead(self, record: Outgoing) -> AddressedMessage:
        """A dead-letter record to publish."""

    def read(self, native: NativeMessage, handle: str = "") -> Delivery:
        """A delivery. Never raises: a body that is no envelope stays as it is, and the gateway treats it as poison."""

    def read_dead(self, native: NativeMessage, key: object = None) -> DeadRecord:
        """A stored dead letter, as a dead-letter record where possible; otherwise with its body as it is."""


def read_quorum_limit(options: OptionMap) -> int | None:
    """Read ``queue_type`` and ``delivery_limit``; the limit of a quorum queue (-1: none), None for a classic queue."""
    queue_type = options.read("queue_type", choice("classic", "quorum"), "classic")
    if queue_type == "classic":
        options.refuse("delivery_limit", "queue_type: quorum is expected beside it")
    limit = options.read("delivery_limit", optional(whole(1, what="a number"), "none"), DELIVERY_LIMIT)
    if queue_type == "classic":
        return None
    return -1 if limit is None else limit


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


def read_priorities(options: OptionMap, quorum_limit: int | None) -> dict[str, Any]:
    """Read ``max_priority``, 1 to 255: the arguments that a queue with priorities has. ``quorum_limit``: that of
    :func:`read_quorum_limit`.

    Raises ConfigError, also for a quorum queue, which has no priorities in RabbitMQ 3 and two in RabbitMQ 4:
    https://www.rabbitmq.com/docs/priority
    """
    highest = options.read("max_priority", optional(whole(1, _MAX_PRIORITY), "none"), None)
    if highest is None:
        return {}
    if quorum_limit is not None:
        raise ConfigError(key="max_priority", reason="a quorum queue has no priority levels: leave out one of the two")
    return {"x-max-priority": highest}
