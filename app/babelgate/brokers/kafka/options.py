"""Reads the native name and the options of a route into a Kafka topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from babelgate.brokers.options import OptionMap, OptionReader, choice, whole
from babelgate.errors import ConfigError
from babelgate.jsontext import is_number

DEAD_SUFFIX = ".dlq"
"""The SDKs of BabelQueue write dead letters to the topic ``<topic>.dlq``."""

RETRY_DELAYS_SECONDS = (5.0, 30.0, 300.0, 1800.0)
"""The retry tiers of the SDKs of BabelQueue."""

MAX_HELD = 10_000
"""Records of a partition between its committed offset and the last one that was handed out. What was acked among them
fits in the metadata of a commit, 4,096 bytes by default:
https://kafka.apache.org/documentation/#brokerconfigs_offset.metadata.max.bytes"""

MAX_HELD_BOUND = 20_000
_MAX_TIERS = 99
_MOST_PARTITIONS = 100_000
"""The client refuses to create a topic with more:
https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka_int.h"""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MAX_NAME = 249
"""https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/internals/Topic.java"""

_CREATE = choice("never", "missing")
_NO_SHARE_GROUPS = (
    "share groups were removed, and every topic is consumed by the consumer group; leave this option out, after the "
    "steps in docs/upgrading.md if it was share"
)


@dataclass(frozen=True, slots=True)
class KafkaQueue:
    """A topic with the validated options of its route.

    ``partitions`` and ``replication_factor`` of topics that the gateway creates; None: the broker's own defaults.
    ``create``: the gateway creates missing topics. ``retry_delays_seconds``: the delay of each retry tier, ascending;
    without any, nothing can be delayed. ``max_held``: see MAX_HELD.
    """

    name: str
    create: bool = False
    partitions: int | None = None
    replication_factor: int | None = None
    retry_delays_seconds: tuple[float, ...] = RETRY_DELAYS_SECONDS
    max_held: int = MAX_HELD

    @property
    def dead(self) -> str:
        """The topic of dead letters."""
        return self.name + DEAD_SUFFIX

    def tier(self, index: int) -> str:
        """The topic of the retry tier ``index``, from 0."""
        return f"{self.name}.retry.{index + 1}"

    @property
    def tiers(self) -> tuple[str, ...]:
        """The topics of the retry tiers."""
        return tuple(map(self.tier, range(len(self.retry_delays_seconds))))


def queue_of(native_name: str, options: Mapping[str, Any]) -> KafkaQueue:
    """The topic ``native_name`` with a route's options; the defaults are those of :class:`KafkaQueue`.

    Raises ConfigError, ``key`` "native_name" or the option's name.
    """
    given = OptionMap(options)
    if not _NAME.fullmatch(native_name) or native_name in (".", ".."):
        raise ConfigError(key="native_name", reason="a name on Kafka has letters, digits, . _ and -")
    create = given.read("create", _CREATE, "never") == "missing"
    if not create:
        for key in ("partitions", "replication_factor"):
            given.refuse(key, "create: missing is expected beside it")
    given.refuse("consume", _NO_SHARE_GROUPS)
    queue = KafkaQueue(
        native_name,
        create,
        given.read("partitions", whole(1, _MOST_PARTITIONS), 0) or None,
        given.read("replication_factor", whole(1, 32767), 0) or None,
        given.read("retry_delays_seconds", _DELAYS, RETRY_DELAYS_SECONDS),
        given.read("max_held", whole(1, MAX_HELD_BOUND), MAX_HELD),
    )
    given.finish()
    longest = max((queue.dead, *queue.tiers), key=len)
    if len(longest) > _MAX_NAME:
        reason = f"a name on Kafka has at most {_MAX_NAME} characters, with {longest[len(native_name) :]} behind it"
        raise ConfigError(key="native_name", reason=reason)
    return queue


def _delays(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_TIERS:
        raise ValueError
    delays = []
    for each in value:
        if not is_number(each, 0) or not each:
            raise ValueError
        delays.append(float(each))
    if any(later <= sooner for sooner, later in pairwise(delays)):
        raise ValueError
    return tuple(delays)


_DELAYS = OptionReader(f"a list of at most {_MAX_TIERS} numbers of seconds, ascending and above 0,", _delays)
