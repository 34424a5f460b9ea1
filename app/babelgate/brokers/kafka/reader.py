"""Clients that join no group: they read ranges of topics, and the committed offsets of groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from babelgate.brokers.bounded import within
from babelgate.brokers.kafka.errors import translate
from babelgate.brokers.kafka.membership import ABSENT_SECONDS
from babelgate.errors import BabelgateError, BrokerUnavailable

Position = tuple[str, int]
"""A topic and the number of its partition."""

OFFSETS = "__consumer_offsets"
"""The broker's own topic of committed offsets."""

_THREADS = 2
"""Calls block."""

_PAUSE_SECONDS = 0.02

_GROUP = "babelqueue"
"""librdkafka wants a name. Without a subscription no group is joined, and nothing is committed."""

_IDLE_SECONDS = 10.0
_CHUNK = 500
_POLL_SECONDS = 0.2


class KafkaReader:
    """One client without a group, for one read at a time; it disconnects after a while without a read.

    ``check_open`` raises BrokerUnavailable where no client may begin any more.
    """

    def __init__(
        self, broker: str, client: Mapping[str, Any], timeout_seconds: float, check_open: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._seconds = timeout_seconds
        self._check_open = check_open
        self._settings = dict(client) | {
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
            # A page is small, and records fetched beyond it are thrown away.
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 4096,
        }
        self._lock = asyncio.Lock()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kafka-reader")
        self._consumer: Any = None
        self._topics: set[str] = set()
        self._idle: asyncio.TimerHandle | None = None

    async def read(self, position: Position, start: int, limit: int) -> tuple[list[Any], int | None]:
        """At most ``limit`` records of a partition from the offset ``start``, and the offset after them, or None where
        the partition ends. Raises BrokerUnavailable without an answer within the time-out.
        """
        async with self._lock:
            self._check_open()
            if self._idle is not None:
                self._idle.cancel()
            try:
                work = asyncio.get_running_loop().run_in_executor(self._threads, self._read, position, start, limit)
                return await within(self._seconds + _POLL_SECONDS, self._broker, work)
            finally:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._disconnect)

    async def close(self) -> None:
        """Disconnect."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._disconnect()

    def _disconnect(self) -> None:
        self._threads.submit(self._close_consumer)

    def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _read(self, position: Position, start: int, limit: int) -> tuple[list[Any], int | None]:
        deadline = time.monotonic() + self._seconds
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
            self._topics.clear()
        consumer = self._consumer
        found: list[Any] = []
        try:
            if position[0] not in self._topics:
                # Otherwise the client itself looks for the leaders of a new topic, up to a second later.
                consumer.list_topics(position[0], timeout=self._seconds)
                self._topics.add(position[0])
            consumer.assign([TopicPartition(*position, start)])
            while time.monotonic() < deadline:
                # A consume waits until it has as many as it asks for, so it takes only what has arrived.
                first = consumer.poll(_POLL_SECONDS)
                if first is None:
                    continue
                more = min(limit - len(found), _CHUNK) - 1
                for record in [first, *(consumer.consume(more, 0) if more else ())]:
                    error = record.error()
                    if error is None:
                        found.append(record)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found, None
                    elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                        raise translate(error, self._broker, written=False)
                if len(found) == limit:
                    return found, found[-1].offset() + 1
        except KafkaException as error:
            raise translate(error, self._broker, written=False) from None
        finally:
            consumer.unassign()
        raise BrokerUnavailable(self._broker, f"no answer within {self._seconds:g} s")


class CommittedOffsets:
    """The committed offsets of one cluster. ``settings``: of each client. A client begins with the first question about
    a group, and is replaced when it has had no answer for ABSENT_SECONDS. ``check_open``: as of a reader."""

    def __init__(
        self, broker: str, settings: Mapping[str, Any], timeout_seconds: float, check_open: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._seconds = timeout_seconds
        self._check_open = check_open
        self._clients: dict[str, Consumer] = {}
        self._failing: dict[str, float] = {}
        """Since when a client has had no answer, by its group."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafka-committed")

    def close(self) -> None:
        """End the clients."""
        clients, self._clients = self._clients, {}
        self._failing.clear()
        for each in list(clients.values()):
            self._threads.submit(each.close)

    async def of(
        self, group: str, positions: Sequence[Position], seconds: float | None = None
    ) -> dict[Position, tuple[int, str]]:
        """The committed offset of each partition, with its metadata; those without one are left out.

        Raises BrokerUnavailable without an answer within ``seconds``, or the time-out. The call
        ``AdminClient.list_consumer_group_offsets`` of librdkafka 2.16 ends the process, by a segmentation fault, when
        the coordinator of the group moves or loads.
        """
        if not positions:
            return {}
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._asked, group, positions)
        return await within(seconds or self._seconds + _PAUSE_SECONDS, self._broker, work)

    async def is_answered(self, group: str, seconds: float | None = None) -> bool:
        """Whether the coordinator of ``group`` answers a client that is no member, within ``seconds`` or the time-out.

        In a new cluster that takes longer than a reserve may take.
        """
        try:
            await self.of(group, [(OFFSETS, 0)], seconds)
        except BabelgateError:
            return False
        return True

    def _asked(self, group: str, positions: Sequence[Position]) -> dict[Position, tuple[int, str]]:
        deadline = time.monotonic() + self._seconds
        while True:
            left = max(deadline - time.monotonic(), _PAUSE_SECONDS)
            client = self._client_of(group)
            try:
                found = client.committed([TopicPartition(*each) for each in positions], timeout=left)
                break
            except (KafkaException, RuntimeError) as error:
                # A client that another call has replaced, or a close has ended, raises RuntimeError.
                raised = translate(error, self._broker, written=False)
                if not isinstance(raised, BrokerUnavailable) or left <= _PAUSE_SECONDS:
                    self._failed(group, client)
                    raise raised from None
            # The coordinator of the group moves, or loads its offsets.
            time.sleep(_PAUSE_SECONDS)
        self._failing.pop(group, None)
        return {
            (each.topic, each.partition): (each.offset, each.metadata or "")
            for each in found
            if each.error is None and each.offset >= 0
        }

    def _client_of(self, group: str) -> Consumer:
        # A close takes this table away, and then none begins.
        clients = self._clients
        client = clients.get(group)
        if client is None:
            self._check_open()
            settings = {**self._settings, "group.id": group, "enable.auto.commit": False}
            client = clients.setdefault(group, Consumer(settings))
        return client

    def _failed(self, group: str, client: Consumer) -> None:
        since = self._failing.setdefault(group, time.monotonic())
        if time.monotonic() - since >= ABSENT_SECONDS and self._clients.get(group) is client:
            del self._clients[group]
            self._failing.pop(group, None)
            self._threads.submit(client.close)
