"""A topic as the landing place of the journal, and as its source for the pipeline.

A message is a frame: whole records, compressed together. Its key is unique, so that compaction of the topic removes
repetitions only. All frames of a process are in one partition, while the topic keeps their number.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from babelgate.brokers.kafka.errors import MISSING_TOPIC, error_of, translate
from babelgate.brokers.kafka.url import topic_of
from babelgate.brokers.landing import MessagesGone, TopicBounds, TopicMessage
from babelgate.errors import BrokerRejected, BrokerUnavailable
from babelgate.observe.journal.frames import Compression
from babelgate.observe.journal.record import COMPRESSED, PART, parse_segment
from babelgate.observe.journal.stores import LandedSegment, compress

SECONDS = 30.0
"""How long a question, or a message, waits for its answer."""

_NAME = "kafka"
"""Of the broker, in errors."""

_GROUP = "babelgate-journal"
"""librdkafka wants a name. No group is joined, and nothing is committed."""

_OVERHEAD_BYTES = 1024
"""Of a message beside its value: its key, its headers, and the head of its batch."""

_DEFAULT_BYTES = 1_048_588
"""https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes, for credentials that may not read it."""

_MAX_CLIENT_BYTES = 1_000_000_000
_LEAST_CLIENT_BYTES = 1000
"""Bounds of librdkafka: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md"""

_QUEUED_KIB = 16_384
_POLL_SECONDS = 0.2
_GONE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
"""The client connects again by itself."""
_IGNORED = _PASSING | {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""In an answer to a poll. The client asks for the coordinator of its group, which nothing here needs."""


class _Cluster:
    """What both directions need to know about the topic. ``cause``: the latest error of a connection."""

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        self.topic = topic
        self.cause: KafkaError | None = None
        # Else a question about a missing topic creates it, with the broker's defaults.
        self.settings: dict[str, Any] = {**client, "allow.auto.create.topics": False, "error_cb": self._failed}

    def partitions(self, client: Any) -> tuple[int, str]:
        """The number of partitions, and the id of the cluster. Raises BrokerError."""
        self.cause = None
        try:
            answer = client.list_topics(self.topic, timeout=SECONDS)
        except KafkaException as error:
            client.poll(0)
            raise self.translated(error) from None
        found = answer.topics[self.topic]
        if found.error is not None and found.error.code() in MISSING_TOPIC:
            raise BrokerRejected(_NAME, f"the topic {self.topic} does not exist, or may not be seen")
        if found.error is not None:
            raise self.translated(found.error)
        return len(found.partitions), str(answer.cluster_id)

    def translated(self, error: BaseException | KafkaError, *, written: bool = False) -> Exception:
        """The error of this project, with the cause where the client only says that it had no answer."""
        code = error if isinstance(error, KafkaError) else error_of(error)
        if self.cause is not None and code is not None and code.code() in (*_PASSING, KafkaError._TIMED_OUT):
            return translate(self.cause, _NAME, written=written)
        return translate(error, _NAME, written=written)

    def answer(self, asked: Future[Any]) -> Any:
        """The answer to a question of administration. Raises BrokerError."""
        try:
            return asked.result(SECONDS)
        except KafkaException as error:
            raise self.translated(error) from None
        except TimeoutError:
            raise BrokerUnavailable(_NAME, f"no answer within {SECONDS:g} s") from None

    def _failed(self, error: KafkaError) -> None:
        # That all brokers are down says less than why one of them is.
        if self.cause is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.cause = error


class TopicStore:
    """Lands segments in a topic, frame by frame. A segment that is sent twice is twice in the topic.

    The path of a landed segment names its partition and the offsets of its frames, and the ``start`` and ``end`` of
    a read are numbers of frames.
    """

    def __init__(self, landing: str, compression: Compression) -> None:
        """Raises ConfigError, ``key`` "url" or that of an option."""
        self._cluster = _Cluster(*topic_of(landing, {}))
        self._compression = compression
        self._producer: tuple[Any, int] | None = None
        self._consumer: Any = None

    def check(self) -> None:
        """Do nothing: the constructor has checked all that needs no network."""

    def prepare(self) -> None:
        """Do nothing: a gateway may start while its broker is down."""

    def put(self, source: Path, name: str) -> tuple[str, list[tuple[int, int]]]:
        name = f"{name.rpartition('/')[2]}{COMPRESSED[self._compression]}"
        segment = parse_segment(source.name)
        assert segment is not None
        # Connect again after a failure: the limit of the topic may have changed, and messages may be left.
        (producer, limit), self._producer = self._producer or self._connect(), None
        count, _ = self._cluster.partitions(producer)
        partition = zlib.crc32(segment.owner.encode()) % count
        packed = source.with_name(f"{name}{PART}")
        try:
            sizes = compress(source, packed, self._compression, limit)
            largest = max((size for _, size in sizes), default=0)
            if largest > limit:
                needed = largest + _OVERHEAD_BYTES
                reason = f"a record takes {largest} bytes: max.message.bytes of {self._cluster.topic} must be {needed}"
                raise BrokerRejected(_NAME, reason)
            offsets = _SegmentSender(self._cluster, producer, partition).send(name, packed, [size for _, size in sizes])
        finally:
            packed.unlink(missing_ok=True)
        self._producer = producer, limit
        return f"partition={partition}/offsets={_ranges(offsets)}/{name}", [(plain, 1) for plain, _ in sizes]

    def read(self, path: str, start: int, end: int) -> bytes:
        partition, offsets = _place(path)
        if self._consumer is None:
            self._consumer = _consumer(self._cluster, {"queued.min.messages": 1, "queued.max.messages.kbytes": 1024})
        name, found = path.rpartition("/")[2], enumerate(offsets[start:end], start)
        return b"".join(self._frame(partition, offset, f"{name}/{number}") for number, offset in found)

    def pieces(self, path: str) -> Iterator[bytes]:
        for number in range(len(_place(path)[1])):
            yield self.read(path, number, number + 1)

    def files(self) -> list[LandedSegment]:
        raise UnsupportedOperation(
            "the segments in a topic of Kafka cannot be listed. The index has what this gateway lands from now on. "
            "For the rest, read the topic into a lake (babelgate pipeline ingest) and search that (babelgate pipeline "
            "message)"
        )

    def _connect(self) -> tuple[Any, int]:
        admin = AdminClient(self._cluster.settings)
        self._cluster.partitions(admin)
        limit = min(_max_bytes(self._cluster, admin), _MAX_CLIENT_BYTES)
        settings = self._cluster.settings | {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": round(SECONDS * 1000),
            "message.max.bytes": max(limit, _LEAST_CLIENT_BYTES),
            "batch.size": max(min(limit, 1_000_000) - _OVERHEAD_BYTES, 1),
            "queue.buffering.max.kbytes": max(_QUEUED_KIB, 2 * limit // 1024),
        }
        return Producer(settings), max(limit - _OVERHEAD_BYTES, 1)

    def _frame(self, partition: int, offset: int, key: str) -> bytes:
        consumer, until = self._consumer, time.monotonic() + SECONDS
        try:
            consumer.assign([TopicPartition(self._cluster.topic, partition, offset)])
            while time.monotonic() < until:
                found = consumer.poll(_POLL_SECONDS)
                error = None if found is None else found.error()
                if found is None or (error is not None and error.code() in _IGNORED):
                    continue
                if error is None and found.offset() == offset and found.key() == key.encode():
                    return found.value() or b""
                # It was deleted, or compacted, or the topic was created again.
                if error is None or error.code() in (*_GONE, KafkaError._PARTITION_EOF):
                    raise FileNotFoundError(key)
                raise self._cluster.translated(error)
            raise BrokerUnavailable(_NAME, f"no answer within {SECONDS:g} s")
        except KafkaException as error:
            raise self._cluster.translated(error) from None
        finally:
            consumer.unassign()


class _SegmentSender:
    """Sends the frames of one segment, and waits until all are confirmed."""

    def __init__(self, cluster: _Cluster, producer: Any, partition: int) -> None:
        self._cluster = cluster
        self._producer = producer
        self._partition = partition
        self._confirmed: dict[int, int] = {}
        self._failure: KafkaError | None = None

    def send(self, name: str, packed: Path, sizes: Sequence[int]) -> list[int]:
        """Send the frames of ``sizes`` in ``packed``; their offsets. Raises BrokerError."""
        with packed.open("rb") as file:
            for number, size in enumerate(sizes):
                self._produce(f"{name}/{number}", file.read(size), self._report(number))
                if self._failure is not None:
                    break
        while self._failure is None and len(self._confirmed) < len(sizes):
            # Each message is confirmed or has failed when its time-out is over.
            self._producer.poll(_POLL_SECONDS)
        if self._failure is not None:
            self._producer.purge()
            raise self._cluster.translated(self._failure, written=True)
        return [self._confirmed[number] for number in range(len(sizes))]

    def _produce(self, key: str, value: bytes, report: Callable[[Any, Any], None]) -> None:
        while self._failure is None:
            try:
                self._producer.produce(self._cluster.topic, value, key, partition=self._partition, on_delivery=report)
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                raise self._cluster.translated(error, written=True) from None
            else:
                self._producer.poll(0)
                return

    def _report(self, number: int) -> Callable[[Any, Any], None]:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._confirmed[number] = message.offset()
            else:
                self._failure = error

        return report


class TopicReader:
    """Reads a topic from given offsets on; see :class:`babelgate.brokers.landing.TopicSource`."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Raises ConfigError, ``key`` "url" or that of an option."""
        self._cluster = _Cluster(*topic_of(url, options))
        self.topic = self._cluster.topic
        self._admin: Any = None
        self._consumer: Any = None

    def bounds(self) -> TopicBounds:
        """The topic as it is now."""
        if self._consumer is None:
            more = {"enable.partition.eof": True, "queued.max.messages.kbytes": _QUEUED_KIB}
            self._consumer = _consumer(self._cluster, more)
        if self._admin is None:
            self._admin = AdminClient(self._cluster.settings)
        count, cluster_id = self._cluster.partitions(self._consumer)
        topics = TopicCollection([self.topic])
        described = self._cluster.answer(self._admin.describe_topics(topics, request_timeout=SECONDS)[self.topic])
        try:
            ends = [
                self._consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=SECONDS)
                for number in range(count)
            ]
        except KafkaException as error:
            raise self._cluster.translated(error) from None
        return TopicBounds(cluster_id, str(described.topic_id), [each[0] for each in ends], [each[1] for each in ends])

    def read(
        self, starts: Sequence[int], ends: Sequence[int], most: int, most_bytes: int
    ) -> tuple[list[TopicMessage], list[int]]:
        """See :meth:`babelgate.brokers.landing.TopicSource.read`."""
        consumer, after = self._consumer, list(starts)
        found: list[TopicMessage] = []
        size, until = 0, time.monotonic() + SECONDS
        wanted = [number for number, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < end]
        try:
            consumer.assign([TopicPartition(self.topic, number, starts[number]) for number in wanted])
            while any(after[number] < ends[number] for number in wanted) and len(found) < most and size < most_bytes:
                if time.monotonic() > until:
                    raise BrokerUnavailable(_NAME, f"no answer within {SECONDS:g} s")
                message = consumer.poll(_POLL_SECONDS)
                if message is None:
                    continue
                error, number = message.error(), message.partition()
                if error is None:
                    if message.offset() >= ends[number]:
                        after[number] = max(after[number], ends[number])
                        continue
                    until = time.monotonic() + SECONDS
                    after[number] = message.offset() + 1
                    if value := message.value():
                        found.append(TopicMessage(number, message.offset(), value))
                        size += len(value)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # The last offsets of a partition may have no message, after compaction for example.
                    after[number] = max(after[number], min(message.offset(), ends[number]))
                elif error.code() in _GONE:
                    raise MessagesGone
                elif error.code() not in _IGNORED:
                    raise self._cluster.translated(error)
        except KafkaException as error:
            raise self._cluster.translated(error) from None
        finally:
            consumer.unassign()
        return found, after

    def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            consumer.close()


def _consumer(cluster: _Cluster, more: Mapping[str, Any]) -> Any:
    settings = {"group.id": _GROUP, "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer({**cluster.settings, **settings, **more})


def _max_bytes(cluster: _Cluster, admin: Any) -> int:
    """The ``max.message.bytes`` of the topic."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, cluster.topic)
    try:
        found = cluster.answer(admin.describe_configs([resource], request_timeout=SECONDS)[resource])
    except BrokerRejected:
        return _DEFAULT_BYTES
    entry = found.get("max.message.bytes")
    return _DEFAULT_BYTES if entry is None or entry.value is None else int(entry.value)


def _ranges(offsets: Sequence[int]) -> str:
    """``120-375.380``: ascending offsets as ranges, ends included."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and offset == ranges[-1][1] + 1:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return ".".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def _place(path: str) -> tuple[int, list[int]]:
    """The partition and the offsets in the path of a landed segment. Raises FileNotFoundError for another path."""
    try:
        partition, offsets, _ = path.split("/")
        found = [
            offset
            for each in offsets.removeprefix("offsets=").split(".")
            for offset in range(int(each.partition("-")[0]), int(each.rpartition("-")[2]) + 1)
        ]
        return int(partition.removeprefix("partition=")), found
    except ValueError:
        # It landed elsewhere, before journal.landing was changed.
        raise FileNotFoundError(path) from None
