"""Reads the native name and the options of a route into a Service Bus queue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from babelgate.brokers.options import BOOLEAN, OptionMap, choice
from babelgate.errors import ConfigError

DEAD_SUFFIX = ".dlq"
"""The SDKs of BabelQueue write dead letters to the queue ``<queue>.dlq``."""

NATIVE_DEAD = "/$DeadLetterQueue"
"""https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues"""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_MAX_NAME = 260
"""https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"""


@dataclass(frozen=True, slots=True)
class ServiceBusQueue:
    """A queue with the validated options of its route.

    ``native_dead``: dead letters go to the ``$DeadLetterQueue`` of the queue. ``sessions``: it is a queue with
    sessions, and an ordering key is a session.
    """

    name: str
    native_dead: bool = False
    sessions: bool = False

    @property
    def dead(self) -> str:
        """The name of the queue that dead letters are written to."""
        return self.name + (NATIVE_DEAD if self.native_dead else DEAD_SUFFIX)

    @property
    def dead_queues(self) -> tuple[str, ...]:
        """The queues where dead letters are looked for. Service Bus itself moves messages to the second one."""
        native = self.name + NATIVE_DEAD
        return (native,) if self.native_dead else (self.dead, native)


def queue_of(native_name: str, options: Mapping[str, Any]) -> ServiceBusQueue:
    """The queue ``native_name`` with a route's options: ``dead_letters``, ``queue`` (the default) or ``native``, and
    ``sessions`` (default false).

    Raises ConfigError, ``key`` "native_name" or the option's name.
    """
    given = OptionMap(options)
    if not _NAME.fullmatch(native_name):
        reason = "a name on Azure Service Bus has letters, digits, . _ - and /, and a letter or digit at both ends"
        raise ConfigError(key="native_name", reason=reason)
    if len(native_name + DEAD_SUFFIX) > _MAX_NAME:
        reason = f"a name on Azure Service Bus has at most {_MAX_NAME} characters, with {DEAD_SUFFIX} for dead letters"
        raise ConfigError(key="native_name", reason=reason)
    native_dead = given.read("dead_letters", choice("queue", "native"), "queue") == "native"
    sessions = given.read("sessions", BOOLEAN, False)
    given.finish()
    return ServiceBusQueue(native_name, native_dead, sessions)
