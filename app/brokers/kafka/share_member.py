"""A member of the share group: one client, whose calls all come from one thread.

While a member is open, it polls. After an empty poll its client goes on to fetch, and locks what comes next. So an open
member polls until it has a load, and then not again before it is opened. It begins open, because only a poll tells that
the group cannot be joined.

The client polls again only when every record of the last poll is acknowledged. So a member has one load at a time: the
records of a poll, all locked by the broker at about the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, ShareConsumer

from app.brokers.kafka.membership import statistics
from app.brokers.kafka.share_group import SHARE_GROUP
from app.observe.logs import get_logger

log = get_logger("babelgate.kafka")

_POLL_SECONDS = 0.2
_SERVE_SECONDS = 0.1
_SOCKET_MS = 20_000
_STATISTICS_MS = 100
"""How often the client tells whether it has joined the group: only its statistics do."""

Key = tuple[int, int]
"""The partition and the offset of a record."""

Settle = tuple[Key, AcknowledgeType]

Tell = Callable[[str, Any], None]
"""Called in the thread: ``joined`` with whether the member has partitions, ``records`` with messages and the time
(of ``time.monotonic``) since when they may be locked, ``looked`` with the time when an empty poll began, ``settled``
with {key: error or None}, ``reported`` with None after the statistics that were asked for, ``lost`` with None where the
broker may have released the load, ``failed`` with an error, ``ended`` with None."""


class ShareThread:
    """The client for ``topic``, and its thread, which begins at once. A commit takes ``timeout_seconds`` at most."""

    def __init__(self, settings: Mapping[str, Any], topic: str, timeout_seconds: float, tell: Tell) -> None:
        self._settings = {**settings, "stats_cb": self._measured, "error_cb": self._failed}
        self._topic = topic
        self._timeout_seconds = timeout_seconds
        self._tell = tell
        self._load: dict[Key, Any] = {}
        """The records of the last poll that are not acknowledged."""
        self._commands: list[Settle] = []
        self._lock = threading.Lock()
        self._commanded = threading.Event()
        self._closing = False
        self._report = False
        self._open = True
        self._joined = False
        self._several = True
        """The cluster has several brokers: while one has answered a poll, another may lock records for the next."""
        self._disconnects = 0
        self._learned: set[str] = set()
        """The brokers that were connected. The client forgets one, with its counts, when it reaches none any more."""
        self._fatal: KafkaError | None = None
        threading.Thread(target=self._run, name="kafka-share", daemon=True).start()

    def open(self) -> None:
        """Poll from now on, until there is a load."""
        self._open = True
        self._commanded.set()

    def settle(self, settles: Sequence[Settle]) -> None:
        """Acknowledge records of the load, and commit; an event ``settled`` follows."""
        with self._lock:
            self._commands += settles
        self._commanded.set()

    def report(self) -> None:
        """Tell ``reported`` with the next statistics, behind what they show."""
        self._report = True

    def close(self) -> None:
        """Give back what is not acknowledged, and end. Does not wait."""
        self._closing = True
        self._commanded.set()

    def _run(self) -> None:
        consumer: Any = None
        try:
            consumer = ShareConsumer(self._settings)
            consumer.subscribe([self._topic])
            self._serve(consumer)
        except Exception as error:
            self._tell("failed", error)
        finally:
            # What is not acknowledged is given back.
            try:
                if consumer is not None:
                    consumer.close()
            except KafkaException as error:
                log.warning("a member of the share group has not left it in good order", error=str(error))
            finally:
                self._tell("ended", None)

    def _serve(self, consumer: Any) -> None:
        empty, ended_at = True, time.monotonic()
        while not self._closing:
            if self._fatal is not None:
                raise KafkaException(self._fatal)
            if self._load or not self._open:
                self._commanded.wait(_SERVE_SECONDS)
                self._commanded.clear()
                self._commit(consumer)
                continue
            began_at = time.monotonic()
            found = list(consumer.poll(_POLL_SECONDS))
            self._load = {(each.partition(), each.offset()): each for each in found if each.error() is None}
            if self._load:
                self._open = False
                # A fetch that is under way after a poll goes on, and locks what it finds.
                since = ended_at if empty or self._several else began_at
                self._tell("records", (list(self._load.values()), since))
            empty, ended_at = not found, time.monotonic()
            if empty:
                self._tell("looked", began_at)
            for each in found:
                if (error := each.error()) is not None:
                    raise KafkaException(error)

    def _commit(self, consumer: Any) -> None:
        with self._lock:
            commands, self._commands = self._commands, []
        results: dict[Key, BaseException | None] = {}
        sent: list[Key] = []
        for key, kind in commands:
            message = self._load.pop(key, None)
            if message is None:
                continue
            try:
                consumer.acknowledge(message, kind)
                sent.append(key)
            except Exception as error:
                results[key] = error
        if not sent:
            # The client calls back for its statistics.
            consumer.commit_sync(0.0)
        else:
            try:
                answers = consumer.commit_sync(self._timeout_seconds)
                errors = {each.partition: error for each, error in answers.items()}
                missing = KafkaException(KafkaError(KafkaError._TIMED_OUT))
                results |= {key: errors.get(key[0], missing) for key in sent}
            except Exception as error:
                results |= dict.fromkeys(sent, error)
        if results:
            self._tell("settled", results)

    def _measured(self, text: str) -> None:
        report, self._report = self._report, False
        found = statistics.decode(text)
        learned = {name for name, each in found.brokers.items() if each.source == "learned"}
        self._several = len(learned) != 1
        disconnects = sum(each.disconnects for each in found.brokers.values())
        if disconnects != self._disconnects or not learned >= self._learned:
            self._lose()
        self._disconnects, self._learned = disconnects, learned
        joined = found.cgrp.join_state == "steady" and found.cgrp.assignment_size > 0
        if joined != self._joined:
            self._joined = joined
            self._tell("joined", joined)
        if report:
            self._tell("reported", None)

    def _lose(self) -> None:
        """A connection has ended, and a broker releases what it has locked for it."""
        if self._load:
            self._tell("lost", None)

    def _failed(self, error: KafkaError) -> None:
        """An error of the client, which connects again by itself unless the error is fatal."""
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self._lose()
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error


def member_settings(client: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The configuration of a member, made of that of all clients. ``size``: how many records a load should have. It may
    have more, because the broker locks no part of a producer's batch, nor of what it has locked together before."""
    return {
        **client,
        "group.id": SHARE_GROUP,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": size,
        # While a lease lasts nothing is polled.
        "max.poll.interval.ms": 86_400_000,
        "fetch.wait.max.ms": 100,
        "statistics.interval.ms": _STATISTICS_MS,
        # A connection that is given up loses its leases. A commit has a time-out of its own.
        "socket.timeout.ms": _SOCKET_MS,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 5_000,
        "log_level": 0,
    }
