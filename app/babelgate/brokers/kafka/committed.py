"""Reads the committed offsets of groups, by clients that never join them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

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


class CommittedOffsets:
    """The committed offsets of one cluster. ``settings``: of each client. A client begins with the first question about
    a group, and is replaced when it has had no answer for ABSENT_SECONDS."""

    def __init__(self, broker: str, settings: Mapping[str, Any], timeout_seconds: float) -> None:
        self._broker = broker
        self._settings = settings
        self._seconds = timeout_seconds
        self._clients: dict[str, Consumer] = {}
        self._failing: dict[str, float] = {}
        """Since when a client has had no answer, by its group."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafka-committed")

    def close(self) -> None:
        """End the clients; the next call connects again."""
        clients, self._clients = self._clients, {}
        self._failing.clear()
        for each in clients.values():
            self._threads.submit(each.close)

    async def of(self, group: str, positions: Sequence[Position]) -> dict[Position, tuple[int, str]]:
        """The committed offset of each partition, with its metadata; those without one are left out.

        Raises BrokerUnavailable without an answer within the time-out. ``AdminClient.list_consumer_group_offsets`` of
        librdkafka 2.16 ends the process, by a segmentation fault, when the coordinator of the group moves or loads.
        """
        if not positions:
            return {}
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._asked, group, positions)
        return await within(self._seconds + _PAUSE_SECONDS, self._broker, _awaited(work))

    async def find_coordinator(self, group: str, seconds: float) -> None:
        """Wait at most ``seconds`` until the coordinator of ``group`` has answered once.

        In a new cluster that takes longer than a reserve may take.
        """
        with suppress(BabelgateError):
            await within(seconds, self._broker, self.of(group, [(OFFSETS, 0)]))

    async def is_answered(self, group: str) -> bool:
        """Whether the coordinator of ``group`` answers a client that is no member."""
        try:
            await self.of(group, [(OFFSETS, 0)])
        except BabelgateError:
            return False
        return True

    def _asked(self, group: str, positions: Sequence[Position]) -> dict[Position, tuple[int, str]]:
        client = self._clients.get(group)
        if client is None:
            settings = {**self._settings, "group.id": group, "enable.auto.commit": False}
            client = self._clients.setdefault(group, Consumer(settings))
        deadline = time.monotonic() + self._seconds
        while True:
            left = max(deadline - time.monotonic(), _PAUSE_SECONDS)
            try:
                found = client.committed([TopicPartition(*each) for each in positions], timeout=left)
                break
            except KafkaException as error:
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

    def _failed(self, group: str, client: Consumer) -> None:
        since = self._failing.setdefault(group, time.monotonic())
        if time.monotonic() - since >= ABSENT_SECONDS and self._clients.get(group) is client:
            del self._clients[group]
            self._failing.pop(group, None)
            self._threads.submit(client.close)


async def _awaited(work: asyncio.Future[Any]) -> Any:
    return await work
