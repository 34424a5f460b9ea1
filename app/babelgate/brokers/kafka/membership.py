"""Whether a client is a member of its group, and when one that is not has to be replaced."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError

from babelgate.brokers.kafka.errors import error_of
from babelgate.errors import BrokerUnavailable

STATISTICS_MS = 1_000
"""How often a client reports the state of its group: only its statistics do."""

PROOF_SECONDS = 5.0
"""How long a proof of membership counts: several reports, of which a busy machine may delay one."""

ABSENT_SECONDS = 10.0
"""How long a client may be without its group, while the group answers another client, before it is replaced. After a
stall of the cluster that is shortly after its restart, librdkafka 2.16 may never look for the group again."""

_LOOK_SECONDS = 1.0
"""How often a member is looked after."""


class _Group(msgspec.Struct):
    state: str = ""


class _Statistics(msgspec.Struct):
    """What is read of https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md"""

    cgrp: _Group = msgspec.field(default_factory=_Group)


_statistics = msgspec.json.Decoder(_Statistics)


def generation_of(consumer: Consumer) -> int:
    """The generation of the group, or the epoch of the member, as the client knows it; not positive before it has
    joined. The client shows it only in the bytes that a transaction takes along."""
    metadata: Any = consumer.consumer_group_metadata()
    return int.from_bytes(metadata[7:11], "little", signed=True) if metadata.startswith(b"CGMDv2:") else 0


ENDS_MEMBERS = frozenset({KafkaError._FATAL, KafkaError.INCONSISTENT_GROUP_PROTOCOL})
"""Codes of errors after which a member is of no use."""

_REFUSED_SECONDS = 5.0
"""The pause after a group took no member."""


class Membership:
    """A client's place in its group. Used by the thread of the client; others may ask.

    ``proven_at``: when it was last proven to be a member, a time of ``now``. ``classic``: to join may take as long as
    another member works, minutes by default, so that a client which waits for that is not at fault.
    """

    def __init__(self, now: Callable[[], float], *, classic: bool) -> None:
        self.proven_at = -math.inf
        self._connected_at = -math.inf
        self._classic = classic
        self._now = now
        self._reported: str | None = None

    def measured(self, text: str) -> None:
        """Take the statistics of the client: its ``stats_cb``."""
        self._reported = _statistics.decode(text).cgrp.state

    def look(self, consumer: Consumer) -> None:
        """Follow a report, after the poll that brought it."""
        reported, self._reported = self._reported, None
        if reported == "up":
            self._connected_at = self._now()
            if generation_of(consumer) > 0:
                self.prove()

    def prove(self) -> None:
        """The group has just answered the member."""
        self.proven_at = self._now()

    def is_proven(self) -> bool:
        """Whether the client is a member, by a proof that is not too old."""
        return self._now() - self.proven_at <= PROOF_SECONDS

    def is_healthy(self) -> bool:
        """Whether the client is a member, or waits in a group that makes its members wait."""
        return self.is_proven() or (self._classic and self._now() - self._connected_at <= PROOF_SECONDS)


class Failure(msgspec.Struct, frozen=True):
    """Why the last member failed. ``until``: when another one may begin, a time of the loop; ``refused``: the group
    takes none, although it answers."""

    text: str
    until: float
    refused: bool

    def error(self, broker: str) -> BrokerUnavailable:
        """The error of a receive."""
        made = BrokerUnavailable(broker, self.text)
        made.answered = self.refused
        return made


def failure_of(error: BaseException, group: str, now: float) -> Failure:
    """The sentence about a member of ``group`` that failed with ``error``, and about another one before it begins."""
    cause = error_of(error)
    text = str(error) if cause is None else cause.str()
    if cause is not None and cause.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
        reason = f"the consumer group {group!r} has members without the assignor of group_protocol classic, such as "
        reason += "kafkajs. Set group_protocol of the broker to consumer, or its group to a name of its own"
    elif KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str() in text:
        reason = f"the consumer group {group!r} has a member that can share it with no other client, such as kafka-go. "
        reason += "Stop that member, or set group of the broker to a name of its own, for queues that no SDK consumes"
    else:
        return Failure(f"the member of the consumer group has failed: {text}", now, False)
    return Failure(f"{reason} ({text})", now + _REFUSED_SECONDS, True)


async def guard(
    is_healthy: Callable[[], bool], is_answered: Callable[[], Awaitable[bool]], replace: Callable[[], None]
) -> None:
    """Look after a client, without end: call ``replace`` when it stays without its group although others are answered.

    ``is_healthy``: the client has its group, or needs none. ``is_answered``: the group answers another client.
    """
    clock = asyncio.get_running_loop().time
    since: float | None = None
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        # While no client gets an answer the cluster is down, and the client is not at fault: its leases may outlive
        # that. So the time counts from the first answer to another client, and begins again when there is none.
        if is_healthy() or not await is_answered() or is_healthy():
            since = None
        elif since is None:
            since = clock()
        elif clock() - since >= ABSENT_SECONDS:
            since = None
            replace()
