"""The options that a route gives its RabbitMQ queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from app.brokers.rabbitmq.delays import MAX_QUEUE_BYTES
from app.brokers.rabbitmq.plain import Plain
from app.brokers.rabbitmq.profile import Profile, Queue
from app.brokers.rabbitmq.topology import Declare
from app.errors import ConfigError

DELIVERY_LIMIT = 20
"""The broker's own default since 4.0: https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""

_DECLARE = ("active", "passive", "none")
TYPES = ("classic", "quorum")
_PLAIN = ("profile", "declare", "queue_type", "delivery_limit")


@dataclass(frozen=True, slots=True)
class RabbitQueue:
    """A queue with a route's options, validated. ``quorum``: made by the gateway as a quorum queue."""

    profile: Profile
    declare: Declare
    quorum: bool = False


def queue_of(name: str, options: Mapping[str, Any]) -> RabbitQueue:
    """The queue ``name`` with a route's options.

    ``profile``: ``plain`` (the default) or ``ojs``. ``declare``: ``active`` (the default), ``passive`` or ``none``. In
    the plain profile, ``queue_type``: ``classic`` (the default, declared without arguments as the SDKs do) or
    ``quorum``, which breaks peers that declare without arguments; ``delivery_limit`` of a quorum queue (default 20;
    null: none) is how often the broker gives a message out again before it dead-letters it.
    Raises ConfigError, ``key`` the option's name.
    """
    profile = one_of(options, "profile", ("plain", "ojs"))
    declare = cast(Declare, one_of(options, "declare", _DECLARE))
    _check_name(name)
    if profile == "ojs":
        # Only where it is used: a gateway with plain queues never reads it.
        from app.brokers.rabbitmq.ojs.profile import profile_of

        others = {key: value for key, value in options.items() if key not in ("profile", "declare")}
        return RabbitQueue(profile_of(name, others), declare, quorum=others.get("queue_type") == "quorum")
    for key in options:
        if key not in _PLAIN:
            raise ConfigError(key=key, reason=f"unknown in the profile plain; known are {', '.join(_PLAIN)}")
    quorum = one_of(options, "queue_type", TYPES) == "quorum"
    if not quorum:
        if "delivery_limit" in options:
            raise ConfigError(key="delivery_limit", reason="queue_type: quorum is expected beside it")
        return RabbitQueue(Plain(Queue(name), Queue(f"{name}.dlq")), declare)
    limit = limit_of(options.get("delivery_limit", DELIVERY_LIMIT))
    return RabbitQueue(Plain(*_quorum(name, limit)), declare, quorum=True)


def _quorum(name: str, limit: int) -> tuple[Queue, Queue]:
    """The queue and its dead letters'. What runs into the limit is moved with confirms, where the broker can."""
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": limit,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{name}.dlq",
    }
    # Since 3.10; the strategy asks for this overflow: https://www.rabbitmq.com/docs/quorum-queues#dead-lettering
    confirmed = {**arguments, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    # To read dead letters is to get them and put them back, any number of times.
    dead = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    return Queue(name, confirmed), Queue(f"{name}.dlq", dead)


def one_of(options: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    """The option ``key``; the first that is known where it is left out. Raises ConfigError."""
    value = options.get(key, known[0])
    if not isinstance(value, str) or value not in known:
        raise ConfigError(key=key, reason=f"{', '.join(known[:-1])} or {known[-1]} is expected")
    return value


def limit_of(value: object) -> int:
    """The limit for RabbitMQ, where -1 means none. Raises ConfigError."""
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(key="delivery_limit", reason="a number from 1, or null for none, is expected")
    return value


def _check_name(name: str) -> None:
    if len(name.encode()) > MAX_QUEUE_BYTES:
        reason = f"the name of a queue has at most {MAX_QUEUE_BYTES} bytes, so that a delay fits in front of it"
        raise ConfigError(key="native_name", reason=reason)
    if not {"*", "#"}.isdisjoint(name.split(".")):
        raise ConfigError(
            key="native_name", reason="* and # between dots are wildcards, which no queue may be named by"
        )
    if name.startswith(("amq.", "babelgate.delay")):
        raise ConfigError(key="native_name", reason="names that start with amq. or babelgate.delay are taken")
