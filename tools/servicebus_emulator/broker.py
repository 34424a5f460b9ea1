"""The state of the emulator: its queues, clock, timers and faults, on one event loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from tools.servicebus_emulator.entity import Entity, Queue
from tools.servicebus_emulator.faults import Faults, Refused
from tools.servicebus_emulator.message import (
    ACTIVE,
    GROUP_ID,
    MESSAGE_ID,
    SCHEDULED,
    Arrival,
    Message,
    arrival,
)
from tools.servicebus_emulator.settings import Options, QueueSettings
from tools.servicebus_emulator.store import Store

_DEAD = "/$deadletterqueue"
_TRANSFER_DEAD = "/$transfer/$deadletterqueue"
_BATCH_OVERHEAD = 64 * 1024


class Peer(Protocol):
    """A connection with bytes to send."""

    def write_out(self) -> None: ...
    def abort(self) -> None: ...


class Broker:
    """All access is on the event loop. Nothing is sent to a client before :meth:`flush` has committed what it tells."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path)
        self.faults = Faults()
        self.counts: Counter[str] = Counter()
        self.queues: dict[str, Queue] = {}
        self.peers: set[Peer] = set()
        self._loop = asyncio.get_running_loop()
        self._dirty_peers: dict[Peer, None] = {}
        self._offers: dict[Entity, None] = {}
        self._timers: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._scheduled = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0
        self._load()

    # The clock.

    def now(self) -> int:
        """Milliseconds since 1970, ahead of the real time by what a test moved it."""
        return time.time_ns() // 1_000_000 + self._offset

    def advance(self, seconds: float) -> int:
        """Move the clock; returns how far it is ahead of the real time, in milliseconds."""
        self._offset += int(seconds * 1000)
        self.store.keep("offset", self._offset)
        self._alarm_at = 0
        self.touch()
        return self._offset

    def at(self, due: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back when the clock reaches a time."""
        heappush(self._timers, (due, next(self._order), callback, arguments))

    # Work.

    def touch(self, peer: Peer | None = None) -> None:
        """Commit and send soon; ``peer`` has something to send."""
        if peer is not None:
            self._dirty_peers[peer] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def close(self) -> None:
        """Drop all clients and write what is left."""
        for peer in list(self.peers):
            peer.abort()
        self.flush()
        if self._alarm is not None:
            self._alarm.cancel()
        self.store.close()
        self._scheduled = True  # Nothing is written any more.

    def offer(self, entity: Entity) -> None:
        """The entity may have messages for its receivers."""
        self._offers[entity] = None
        self.touch()

    def flush(self) -> None:
        """Run what is due, deliver, commit, and then send."""
        self._scheduled = False
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            _, _, callback, arguments = heappop(self._timers)
            callback(*arguments)
        while self._offers:
            entity, _ = self._offers.popitem()
            entity.pump(now)
        self.store.commit()
        while self._dirty_peers:
            self._dirty_peers.popitem()[0].write_out()
        self._set_alarm(now)

    def _set_alarm(self, now: int) -> None:
        due = self._timers[0][0] if self._timers else 0
        if self._alarm is not None and due == self._alarm_at:
            return  # A move of the clock sets ``_alarm_at`` to 0, so that the delay is computed again.
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = due
        if due:
            self._alarm = self._loop.call_later(max(0, due - now) / 1000 + 0.001, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.touch()

    # Entities.

    def _load(self) -> None:
        store = self.store
        self._offset: int = store.meta("offset") or 0
        self.defaults = QueueSettings().changed(store.meta("defaults") or {})
        self.options = Options().changed(store.meta("options") or {})
        by_id: dict[int, Queue] = {}
        for identifier, name, settings, sequence, created in store.rows("queue"):
            queue = Queue(self, identifier, name, QueueSettings(**json.loads(settings)), created)
            queue.sequence = sequence
            self.queues[name.lower()] = by_id[identifier] = queue
        for queue_id, name, state, updated in store.rows("session"):
            session = by_id[queue_id].main.session(name)
            session.state, session.updated = state, updated
        for queue_id, name, until in store.rows("duplicate"):
            by_id[queue_id].duplicates[name] = until
        bodies = store.bodies()
        highest = 0
        for row in store.rows("message"):
            highest = max(highest, row[0])
            queue = by_id[row[1]]
            self._load_message(queue.dead if row[2] else queue.main, row, bodies[row[0]])
        self._ids = count(highest + 1)
        self._queue_ids = count(max(by_id, default=0) + 1)
        self.touch()

    def _load_message(self, entity: Entity, row: tuple[Any, ...], raw: bytes) -> None:
        message = Message(row[0], entity, row[3], raw)
        (message.original, message.state, message.token, message.locked_until, message.count) = row[4:9]
        (message.enqueued, message.due, message.expires, message.session, message.source) = row[9:14]
        entity.messages[message.sequence] = message
        entity.queue.bytes += len(raw)
        entity.watch_expiry(message)
        if message.token is not None and entity.sessionful:
            message.token, message.locked_until = None, 0  # The session's lock ended with its link.
        if message.token is not None:
            entity.tokens[message.token] = message
            entity.watch_lock(message)
        elif message.state == ACTIVE:
            entity.make_ready(message)
        elif message.state == SCHEDULED:
            entity.watch_schedule(message)

    def entity(self, path: str) -> Entity:
        """The entity of a path, which is created if that is allowed; raises Refused."""
        key = path.strip("/").lower()
        dead = key.endswith(_DEAD)
        name = path.strip("/")[: -len(_DEAD)] if dead else path.strip("/")
        queue = self.queues.get(name.lower())
        if queue is None:
            if not self.options.auto_create or not name or key.endswith(_TRANSFER_DEAD) or "/subscriptions/" in key:
                text = f"The messaging entity '{path}' could not be found."
                raise Refused("amqp:not-found", text, 404)
            queue = self.create(name)
        return queue.dead if dead else queue.main

    def create(self, name: str, settings: QueueSettings | None = None) -> Queue:
        """A new queue."""
        queue = Queue(self, next(self._queue_ids), name, settings or self.defaults, self.now())
        self.queues[name.lower()] = queue
        self.store.save_queue(queue)
        return queue

    def delete(self, queue: Queue) -> None:
        """Remove a queue and its messages."""
        for entity in (queue.main, queue.dead):
            for message in list(entity.messages.values()):
                entity.remove(message)
        del self.queues[queue.name.lower()]
        self.store.remove_queue(queue)

    def change(self, queue: Queue, values: Mapping[str, Any]) -> None:
        """Change a queue's settings."""
        queue.settings = queue.settings.changed(values)
        queue.updated = self.now()
        self.store.save_queue(queue)
        self.offer(queue.main)

    def set_defaults(self, values: Mapping[str, Any]) -> None:
        """Change the settings of queues that are created from now on."""
        self.defaults = self.defaults.changed(values)
        self.store.keep("defaults", self.defaults.json())

    def set_options(self, values: Mapping[str, Any]) -> None:
        """Change the emulator's own settings."""
        self.options = self.options.changed(values)
        self.store.keep("options", self.options.json())

    # Messages arrive.

    def accept(self, entity: Entity, raws: Sequence[bytes], size: int, *, schedules: bool = False) -> list[int]:
        """Store all messages of a transfer or none; returns the sequence numbers. Raises Refused.

        A message id that is in the window of duplicate detection is dropped; its number is 0.
        """
        queue = entity.queue
        settings = queue.settings
        if settings.disabled:
            raise Refused("com.microsoft:entity-disabled", f"The entity '{queue.name}' is disabled.", 403)
        limit = settings.max_batch_size + _BATCH_OVERHEAD if len(raws) > 1 else settings.max_message_size
        if size > limit:
            text = f"The received message (size:{size} bytes) exceeds the limit ({limit} bytes) currently allowed."
            raise Refused("amqp:link:message-size-exceeded", text, 413)
        if settings.max_size and queue.bytes + size > settings.max_size:
            text = f"The maximum entity size has been reached or exceeded for Queue: '{queue.name}'."
            raise Refused("amqp:resource-limit-exceeded", text, 403)
        looks = settings.requires_session or settings.duplicate_detection_seconds > 0
        arrivals = [arrival(raw, properties=looks) for raw in raws]
        if settings.requires_session and any(not item.property(GROUP_ID) for item in arrivals):
            raise Refused("amqp:not-allowed", "The SessionId was not set on a message, and it cannot be sent.", 400)
        if schedules and any(not item.due for item in arrivals):
            raise Refused("com.microsoft:argument-error", "A message names no time.", 400)
        now = self.now()
        return [self._store(entity, item, now) for item in arrivals]

    def _store(self, entity: Entity, item: Arrival, now: int) -> int:
        queue = entity.queue
        settings = queue.settings
        if settings.duplicate_detection_seconds > 0 and self._repeated(queue, item, now):
            entity.counts["duplicates"] += 1
            return 0
        message = Message(next(self._ids), entity, queue.next_sequence(), item.raw)
        message.enqueued = now
        if settings.requires_session:
            message.session = str(item.property(GROUP_ID))
        if item.due > now:
            message.state, message.due = SCHEDULED, item.due
        self._expiry(message, item.ttl, settings)
        entity.messages[message.sequence] = message
        entity.counts["accepted"] += 1
        queue.bytes += len(item.raw)
        self.store.save(message, body=True)
        if message.state == ACTIVE:
            entity.make_ready(message)
        else:
            entity.watch_schedule(message)
        return message.sequence

    def _expiry(self, message: Message, ttl: int | None, settings: QueueSettings) -> None:
        limits = [float(ttl)] if ttl is not None else []
        if settings.default_ttl_seconds:
            limits.append(settings.default_ttl_seconds * 1000)
        if limits:
            message.expires = (message.due or message.enqueued) + int(min(limits))
            message.entity.watch_expiry(message)

    def _repeated(self, queue: Queue, item: Arrival, now: int) -> bool:
        identifier = item.property(MESSAGE_ID)
        if identifier is None:
            return False
        key = str(identifier)
        known = queue.duplicates.get(key, 0)
        if known > now:
            return True
        until = now + int(queue.settings.duplicate_detection_seconds * 1000)
        queue.duplicates[key] = until
        self.store.save_duplicate(queue, key, until)
        self.at(until, self._window_ends, queue, key)
        return False

    def _window_ends(self, queue: Queue, key: str) -> None:
        if 0 < queue.duplicates.get(key, 0) <= self.now():
            del queue.duplicates[key]
            self.store.remove_duplicate(queue, key)
