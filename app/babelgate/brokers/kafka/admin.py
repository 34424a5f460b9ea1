"""Topics, offsets and settings of a cluster, by one client for administration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from msgspec import Struct

from babelgate.brokers.bounded import PING_SECONDS, within
from babelgate.brokers.connect import Closable
from babelgate.brokers.errors import translating
from babelgate.brokers.kafka.errors import MISSING_TOPIC, error_of, translate
from babelgate.brokers.kafka.reader import OFFSETS, CommittedOffsets, Position
from babelgate.brokers.kafka.url import DEAD_SUFFIX, KafkaQueue
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown
from babelgate.runtime.cache import Cache

KEEP = {"retention.ms": "-1"}
"""The settings of a new topic of dead letters, which are kept until they are removed."""

MARKERS = {"cleanup.policy": "compact"}
"""The settings of a new topic of markers: see :mod:`babelgate.brokers.kafka.dead_letters`."""

TIER = {"message.timestamp.type": "LogAppendTime"}
"""The settings of a new retry tier: the broker's clock dates its records, and their delay counts from that."""

ADDED_BYTES = 65_536
"""What ``max.message.bytes`` of a new retry tier or topic of dead letters is larger than that of its queue."""

_MOST_BYTES = 2**31 - 1
"""The setting is a number of 32 bits: https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes"""

_AGAIN_SECONDS = 0.02
"""The pause before a question to a new topic is repeated, whose partitions have no leader yet."""

_ATTEMPT_SECONDS = 2.0
"""How long one question for offsets may take, of several within the time-out."""

_TOPICS_BYTES = 16 * 1024 * 1024
_TOPIC_BYTES = 800
"""Of a topic beside the characters of its name: these once more, four numbers and two objects."""


class Topic(Struct, frozen=True):
    """A topic that exists. ``max_bytes``: its ``max.message.bytes``; None where the credentials may not read it.
    ``id``: 16 bytes. A topic that is deleted and created again has another one. ``kept_ms``: for how long after its
    date a record is kept; None: without end, or not known. ``copies``: the fewest replicas of a partition."""

    name: str
    partitions: int
    max_bytes: int | None
    id: bytes
    kept_ms: int | None = None
    copies: int = 1


class KafkaAdmin(Closable):
    """One cluster. Every call ends within ``timeout_seconds``, and raises BrokerUnavailable without an answer."""

    def __init__(self, broker: str, client: Mapping[str, Any], timeout_seconds: float) -> None:
        self.broker = broker
        self.timeout_seconds = timeout_seconds
        self._settings = dict(client) | {
            "socket.timeout.ms": max(int(timeout_seconds * 1000), 1000),
            "topic.metadata.refresh.fast.interval.ms": 100,
            "error_cb": self._failed,
        }
        self._cause: KafkaError | None = None
        """Why the brokers are not reached: a password, a certificate. An answer alone says only that it is missing."""
        self._client: AdminClient | None = None
        self.commits = CommittedOffsets(broker, self._settings, timeout_seconds, self.check_open)
        self._topics: Cache[str, Topic] = Cache(_TOPICS_BYTES, _TOPIC_BYTES)
        self.least_max_bytes = _MOST_BYTES
        """The smallest ``max.message.bytes`` of the topics that were looked up."""

    def close(self) -> None:
        """Forget the client and what it knows of topics."""
        self._client = None
        self._topics.clear()
        self.commits.close()

    async def probe(self, seconds: float = PING_SECONDS) -> None:
        """One cheap round trip. Raises BrokerUnavailable without an answer within ``seconds``.

        It asks for one topic. ``AdminClient.describe_cluster`` of librdkafka 2.16 ends the process, by an assertion,
        when a broker that the cluster has fenced answers that there is no broker.
        """
        client = self._admin
        try:
            await within(seconds, self.broker, asyncio.to_thread(self._list_topics, client, seconds, OFFSETS))
        except BrokerUnavailable:
            client.poll(0)
            if self._cause is None:
                raise
            raise translate(self._cause, self.broker, written=False) from None
        client.poll(0)
        self._cause = None

    async def topic(self, name: str) -> Topic | None:
        """The topic, which is looked up once; None if it does not exist."""
        known = self._topics.get(name)
        if known is None:
            known = await self._look_up(name)
            if known is not None:
                self._topics.keep(name, known)
        return known

    async def topics_now(self, *names: str) -> list[Topic | None]:
        """The topics as they are now, each None if it does not exist."""
        asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self.timeout_seconds)
        for name, answer in await self._answers(asked):
            known = self._topics.get(name)
            if isinstance(answer, BaseException):
                found = error_of(answer)
                if found is None or found.code() not in MISSING_TOPIC:
                    raise translate(answer, self.broker, written=False)
                self.forget(name)
            elif known is None or (known.id, known.partitions) != (_id_of(answer), len(answer.partitions)):
                self.forget(name)
                await self.topic(name)
        return [self._topics.get(name) for name in names]

    def knows(self, name: str) -> bool:
        """Whether the topic was found to exist."""
        return name in self._topics

    def forget(self, name: str) -> None:
        """Look the topic up again at its next use."""
        self._topics.forget(name)

    async def ensured(self, queue: KafkaQueue, name: str, settings: Mapping[str, str] | None = None) -> Topic:
        """The topic ``name`` of ``queue``, created with ``settings`` if it is missing and the route allows that.

        Raises BrokerRejected for a missing topic that the route does not let the gateway create.
        """
        known = await self.topic(name)
        if known is not None:
            return known
        if not queue.create:
            reason = f"the topic {name} does not exist: create it, or set create: missing in the route"
            raise BrokerRejected(self.broker, reason)
        return await self._create(queue, name, settings or {})

    async def positions(self, *topics: str) -> list[Position]:
        """The partitions of those of ``topics`` that exist."""
        found = [await self.topic(name) for name in topics]
        return [(each.name, number) for each in found if each is not None for number in range(each.partitions)]

    async def offsets(self, positions: Sequence[Position], *, latest: bool, again: bool = True) -> dict[Position, int]:
        """The end of each partition, or its first offset; those of missing topics are left out.

        The end is what a consumer reads up to: before the first record of an open transaction.

        ``again``: ask again after a failure that may pass. Raises BrokerError for the first partition that fails.
        """
        if not positions:
            return {}
        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
        deadline = asyncio.get_running_loop().time() + self.timeout_seconds
        while True:
            # After a restart of a broker the client sends no question until it has looked up the leaders again.
            left = max(deadline - asyncio.get_running_loop().time(), _AGAIN_SECONDS)
            asked = self._admin.list_offsets(
                {TopicPartition(*each): spec for each in positions},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=min(_ATTEMPT_SECONDS, left),
            )
            answers = await self._answers(asked)
            offsets = {
                (each.topic, each.partition): answer.offset
                for each, answer in answers
                if not isinstance(answer, BaseException)
            }
            failures = [answer for _, answer in answers if isinstance(answer, BaseException)]
            missing = [each for each in failures if (found := error_of(each)) and found.code() in MISSING_TOPIC]
            # The client has no error for a broker whose connection it has lost, but an offset that is none.
            if any(offset < 0 for offset in offsets.values()):
                failures.append(BrokerUnavailable(self.broker, "the broker did not report the topic's offsets"))
            if len(missing) == len(failures):
                for topic, _ in positions if missing else ():
                    self.forget(topic)
                return offsets
            failure = next(each for each in failures if each not in missing)
            error = failure if isinstance(failure, BabelgateError) else translate(failure, self.broker, written=False)
            over = not again or asyncio.get_running_loop().time() + _AGAIN_SECONDS > deadline
            if over or not isinstance(error, BrokerUnavailable):
                raise error
            await asyncio.sleep(_AGAIN_SECONDS)
            await self.all_names()

    async def bounds(
        self, group: str, positions: Sequence[Position]
    ) -> tuple[dict[Position, tuple[int, int]], dict[Position, tuple[int, str]]]:
        """Per partition the first offset that ``group`` has not committed, and the end; and the commits."""
        ends, starts, committed = await asyncio.gather(
            self.offsets(positions, latest=True),
            self.offsets(positions, latest=False),
            self.commits.of(group, positions),
        )
        bounds = {
            each: (max(starts[each], committed.get(each, (0, ""))[0]), ends[each])
            for each in positions
            if each in starts and each in ends
        }
        return bounds, committed

    async def delete_before(self, offsets: Mapping[Position, int]) -> None:
        """Remove the records before these offsets. Raises the error of the first partition that refuses."""
        asked = self._admin.delete_records(
            [TopicPartition(*position, offset) for position, offset in offsets.items()],
            request_timeout=self.timeout_seconds,
        )
        for _, answer in await self._answers(asked, written=True):
            if isinstance(answer, BaseException):
                raise translate(answer, self.broker, written=True)

    async def names(self) -> list[str]:
        """The topics of the cluster that are no retry tiers, dead letters or markers, and not Kafka's own."""
        every = await self.all_names()
        return sorted(name for name in every if not name.startswith("__") and _parent(name) not in every)

    async def all_names(self) -> set[str]:
        """All topics of the cluster."""
        seconds = self.timeout_seconds
        asked = asyncio.to_thread(self._list_topics, self._admin, seconds)
        return set(await within(seconds, self.broker, asked))

    async def settings_of(self, *names: str) -> dict[str, dict[str, str]]:
        """The settings of topics, without those that do not exist, and without those that may not be read."""
        kind = ConfigResource.Type.TOPIC
        asked = self._admin.describe_configs(
            [ConfigResource(kind, name) for name in names], request_timeout=self.timeout_seconds
        )
        found = {}
        for resource, answer in await self._answers(asked):
            if not isinstance(answer, BaseException):
                found[resource.name] = {key: entry.value for key, entry in answer.items()}
            elif not isinstance(error := translate(answer, self.broker, written=False), BrokerRejected):
                raise error from None
        return found

    @property
    def _admin(self) -> AdminClient:
        self.check_open()
        if self._client is None:
            self._client = AdminClient(self._settings)
        return self._client

    def _failed(self, error: KafkaError) -> None:
        """Note the error of a connection, unless it says less than an earlier one."""
        if self._cause is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._cause = error

    def _list_topics(self, client: AdminClient, seconds: float, topic: str | None = None) -> list[str]:
        """The names of all topics, or of the one asked for."""
        with translating(translate, self.broker):
            return list(client.list_topics(topic, timeout=seconds).topics)

    async def _look_up(self, name: str) -> Topic | None:
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_seconds)
        try:
            described = await self._raw(asked[name])
        except KafkaException as error:
            if error.args[0].code() in MISSING_TOPIC:
                return None
            raise translate(error, self.broker, written=False) from None
        settings = (await self.settings_of(name)).get(name, {})
        setting = settings.get("max.message.bytes")
        limit = None if setting is None else int(setting)
        if limit is not None:
            self.least_max_bytes = min(self.least_max_bytes, limit)
        dated = settings.get("message.timestamp.type") != "LogAppendTime"
        kept = kept_ms(settings) if dated else None
        copies = min((len(each.replicas) for each in described.partitions), default=0)
        return Topic(name, len(described.partitions), limit, _id_of(described), kept, copies)

    async def _create(self, queue: KafkaQueue, name: str, settings: Mapping[str, str]) -> Topic:
        config = dict(settings)
        if settings in (KEEP, TIER):
            # A message that fits the topic fits here, too, with what a tier or a dead letter adds.
            parent = await self.topic(queue.name)
            if parent is not None and parent.max_bytes is not None:
                config["max.message.bytes"] = str(min(parent.max_bytes + ADDED_BYTES, _MOST_BYTES))
        wanted = NewTopic(
            name,
            # One partition keeps the order of dead letters, and decides who removed which.
            num_partitions=1 if settings in (KEEP, MARKERS) else queue.partitions or -1,
            replication_factor=queue.replication_factor or -1,
            config=config,
        )
        seconds = self.timeout_seconds
        asked = self._admin.create_topics([wanted], operation_timeout=seconds, request_timeout=seconds)[name]
        try:
            await self._raw(asked)
        except KafkaException as error:
            found = error_of(error)
            if found is None or found.name() != "TOPIC_ALREADY_EXISTS":
                refusal = translate(error, self.broker, written=False)
                if isinstance(refusal, BrokerRejected):
                    reason = f"the topic {name} cannot be created: {refusal.reason}"
                    refusal = BrokerRejected(self.broker, reason)
                raise refusal from None
        deadline = asyncio.get_running_loop().time() + seconds
        while (made := await self.topic(name)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerUnavailable(self.broker, f"the new topic {name} is not there yet")
            await asyncio.sleep(_AGAIN_SECONDS)
        return made

    async def _answers(
        self, asked: Mapping[Any, Future[Any]], *, written: bool = False
    ) -> list[tuple[Any, Any | BaseException]]:
        """Each key with its answer, or its error."""
        futures = [asyncio.wrap_future(each) for each in asked.values()]
        call = asyncio.gather(*futures, return_exceptions=True)
        answers = await within(
            self.timeout_seconds, self.broker, call, OutcomeUnknown if written else BrokerUnavailable
        )
        return list(zip(asked, answers, strict=True))

    async def _raw(self, future: Future[Any]) -> Any:
        return await within(self.timeout_seconds, self.broker, asyncio.wrap_future(future))


def _id_of(described: Any) -> bytes:
    found = described.topic_id
    # Both are signed.
    halves = found.get_most_significant_bits(), found.get_least_significant_bits()
    return b"".join(int(each).to_bytes(8, signed=True) for each in halves)


def kept_ms(settings: Mapping[str, str]) -> int | None:
    """For how long a topic with these settings keeps records; None: without end, or not known."""
    retention = int(settings.get("retention.ms", -1))
    return retention if retention >= 0 and deletes(settings) else None


def deletes(settings: Mapping[str, str]) -> bool:
    """Whether a topic with these settings deletes old records, and not only those that were replaced."""
    return "delete" in settings.get("cleanup.policy", "delete")


def _parent(name: str) -> str:
    """The queue of a topic that belongs to another one; its own name for an ordinary topic."""
    for suffix in (f"{DEAD_SUFFIX}.removed", DEAD_SUFFIX):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    queue, mark, number = name.rpartition(".retry.")
    return queue if mark and number.isdigit() else ""
