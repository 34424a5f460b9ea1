"""Reads the options of a route into a RabbitMQ queue."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from babelgate.brokers.options import OptionMap, OptionReader, choice
from babelgate.brokers.rabbitmq import plain
from babelgate.brokers.rabbitmq.delays import MAX_QUEUE_BYTES
from babelgate.brokers.rabbitmq.ojs import profile as ojs
from babelgate.brokers.rabbitmq.profile import Profile
from babelgate.brokers.rabbitmq.topology import Declare
from babelgate.errors import ConfigError

_DECLARE: OptionReader[Declare] = choice("active", "passive", "none")
_PROFILES: Mapping[str, Callable[[str, OptionMap], Profile]] = {"plain": plain.profile_of, "ojs": ojs.profile_of}


@dataclass(frozen=True, slots=True)
class RabbitQueue:
    """A queue with the validated options of its route.

    ``identity``: that of the profile, which distinguishes queues. ``prioritized``: messages of a higher priority come
    first. ``stored_as``: ``profile`` and ``queue_type``. The type of a queue that another program declares is only
    known where the route states it.
    """

    profile: Profile = field(compare=False)
    identity: Hashable
    declare: Declare
    prioritized: bool = False
    stored_as: Mapping[str, str] = field(default_factory=dict, hash=False)


def queue_of(name: str, options: Mapping[str, Any]) -> RabbitQueue:
    """The queue ``name`` with a route's options.

    ``profile``: ``plain`` (the default) or ``ojs``. ``declare``: ``active`` (the default), ``passive`` or ``none``. The
    other options are the profile's. Raises ConfigError, ``key`` the option's name.
    """
    given = OptionMap(options)
    profile = given.read("profile", choice(*_PROFILES), "plain")
    declare = given.read("declare", _DECLARE, "active")
    _check_name(name)
    stored_as = {"profile": profile}
    if declare == "active" or "queue_type" in options:
        stored_as["queue_type"] = str(options.get("queue_type", "classic"))
    made = _PROFILES[profile](name, given)
    return RabbitQueue(made, made.identity, declare, options.get("max_priority") is not None, stored_as)


def _check_name(name: str) -> None:
    if len(name.encode()) > MAX_QUEUE_BYTES:
        reason = f"a name has at most {MAX_QUEUE_BYTES} bytes, so that a delay fits in front of it in a routing key"
        raise ConfigError(key="native_name", reason=reason)
    if not {"*", "#"}.isdisjoint(name.split(".")):
        raise ConfigError(key="native_name", reason="* and # between dots are wildcards, which a name must not contain")
    if name.startswith(("amq.", "babelgate.delay")):
        raise ConfigError(key="native_name", reason="names that start with amq. or babelgate.delay are reserved")
