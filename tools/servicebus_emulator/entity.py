"""Queues and their dead letters: the states of messages, locks and sessions."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from tools.servicebus_emulator.faults import Refused
from tools.servicebus_emulator.message import ACTIVE, DEFERRED, SCHEDULED, Message

if TYPE_CHECKING:
    from tools.servicebus_emulator.broker import Broker
    from tools.servicebus_emulator.settings import QueueSettings

DEAD_LETTERS = "/$DeadLetterQueue"
LOCK_LOST = "com.microsoft:message-lock-lost"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"


class Consumer(Protocol):
    """A link on which a client receives."""

    session: Session | None
    deletes: bool
    held: dict[bytes, Message]

    def credit(self) -> int:
        """The number of messages that it may get now."""

    def deliver(self, message: Message, tag: bytes) -> None: ...

    def end_drain(self) -> None:
        """No more messages for now: if the client drains the link, consume its credit."""

    def lose_session(self) -> None:
        """The session's lock has ended: detach."""

    def accept(self, session: Session) -> None:
        """The session that it waits for is now its own."""

    def refuse(self, condition: str, description: str) -> None: ...


class Session:
    """The messages and the state that share a session id."""

    def __init__(self, identifier: str) -> None:
        self.id = identifier
        self.ready: list[int] = []
        self.state: bytes | None = None
        self.updated = 0
        self.holder: Consumer | None = None
        self.locked_until = 0


class Entity:
    """Something to receive from: a queue, or its dead letters."""

    def __init__(self, broker: Broker, queue: Queue, *, dead: bool) -> None:
        self.broker = broker
        self.queue = queue
        self.dead = dead
        self.path = queue.name + (DEAD_LETTERS if dead else "")
        self.key = self.path.lower()
        self.messages: dict[int, Message] = {}
        self.ready: list[int] = []
        self.tokens: dict[bytes, Message] = {}
        self.receivers: deque[Consumer] = deque()
        self.sessions: dict[str, Session] = {}
        self.waiting: deque[Consumer] = deque()
        self.held: list[tuple[Any, Callable[[], None]]] = []
        self.counts: Counter[str] = Counter()

    @property
    def sessionful(self) -> bool:
        """Whether messages are received by session."""
        return self.queue.settings.requires_session and not self.dead

    def ordered(self, first: int = 0) -> Iterator[Message]:
        """All messages from a sequence number on, in the order of these numbers."""
        keys = sorted(self.messages) if self.dead else self.messages
        return (self.messages[key] for key in keys if key >= first)

    def session(self, identifier: str) -> Session:
        """A session, which exists as soon as it is named."""
        found = self.sessions.get(identifier)
        if found is None:
            found = self.sessions[identifier] = Session(identifier)
        return found

    # Messages become available.

    def make_ready(self, message: Message) -> None:
        """Offer an active message to receivers; its sequence number gives its place."""
        if not message.queued:
            message.queued = True
            heap = self.session(message.session or "").ready if self.sessionful else self.ready
            heappush(heap, message.sequence)
        self.broker.offer(self)

    def _take(self, heap: list[int], now: int, *, remove: bool = True) -> Message | None:
        while heap:
            message = self.messages.get(heap[0])
            if message is not None and message.queued and message.state == ACTIVE and message.token is None:
                if not message.expires or message.expires > now:
                    if remove:
                        heappop(heap)
                        message.queued = False
                    return message
                message.queued = False
                self.expire(message)
            heappop(heap)
        return None

    def pump(self, now: int) -> None:
        """Give available messages to the links that have credit."""
        if self.broker.faults.hangs(self.key):
            return
        if self.sessionful:
            self._serve_waiting(now)
            for link in self.receivers:
                while link.session is not None and link.credit() > 0:
                    message = self._take(link.session.ready, now)
                    if message is None:
                        break
                    self._deliver(link, message, now)
        else:
            while self.ready and (ready := self._with_credit()) is not None:
                message = self._take(self.ready, now)
                if message is None:
                    break
                self._deliver(ready, message, now)
        for link in self.receivers:
            link.end_drain()

    def _with_credit(self) -> Consumer | None:
        receivers = self.receivers
        for _ in range(len(receivers)):
            link = receivers[0]
            receivers.rotate(-1)
            if link.credit() > 0:
                return link
        return None

    def _deliver(self, link: Consumer, message: Message, now: int) -> None:
        self.counts["delivered"] += 1
        if link.deletes:
            link.deliver(message, os.urandom(16))
            self.remove(message)
            return
        token = self.lock(message, now, link.session)
        message.holder = link
        link.held[token] = message
        link.deliver(message, token)

    # Locks.

    def lock(self, message: Message, now: int, session: Session | None = None) -> bytes:
        """Lock a message; returns its lock token."""
        token = os.urandom(16)
        message.token = token
        self.tokens[token] = message
        if session is None:
            message.locked_until = now + int(self.queue.settings.lock_seconds * 1000)
            self.broker.at(message.locked_until, self._lock_ends, message, token)
        else:
            message.locked_until = session.locked_until
        self.broker.store.save(message)
        return token

    def _lock_ends(self, message: Message, token: bytes) -> None:
        if message.token != token:
            return
        if message.locked_until > self.broker.now():
            self.broker.at(message.locked_until, self._lock_ends, message, token)
        else:
            self.counts["expired_locks"] += 1
            self.unlock(message, counted=True)

    def watch_lock(self, message: Message) -> None:
        """End the lock of a message that was loaded when it is due."""
        assert message.token is not None
        self.broker.at(message.locked_until, self._lock_ends, message, message.token)

    def locked(self, token: bytes) -> Message:
        """The message that a token locks; raises Refused if the lock has ended."""
        message = self.tokens.get(token)
        if message is None:
            raise Refused(
                LOCK_LOST, "The lock supplied is invalid. Either the lock expired, or the message is gone.", 410
            )
        if message.locked_until <= self.broker.now():
            self._lock_ends(message, token)
            raise Refused(LOCK_LOST, "The lock supplied is invalid. The lock expired.", 410)
        return message

    def _forget_lock(self, message: Message) -> None:
        token = message.token
        if token is not None:
            self.tokens.pop(token, None)
            message.token = None
            if message.holder is not None:
                message.holder.held.pop(token, None)
                message.holder = None

    def unlock(self, message: Message, *, counted: bool) -> None:
        """Make a locked message available again; ``counted`` raises its delivery count."""
        self._forget_lock(message)
        message.locked_until = 0
        if counted:
            message.count += 1
            if not self.dead and message.count >= self.queue.settings.max_delivery_count:
                text = f"Message could not be consumed after {message.count} delivery attempts."
                self.dead_letter(message, "MaxDeliveryCountExceeded", text)
                return
        if message.expires and message.expires <= self.broker.now():
            self.expire(message)
            return
        self.broker.store.save(message)
        if message.state == ACTIVE:
            self.make_ready(message)

    # Ends of messages.

    def remove(self, message: Message) -> None:
        """The message is gone."""
        self._forget_lock(message)
        message.queued = False
        del self.messages[message.sequence]
        self.queue.bytes -= len(message.raw)
        self.broker.store.remove(message)

    def complete(self, message: Message) -> None:
        """The client has settled the message."""
        self.counts["completed"] += 1
        self.remove(message)

    def abandon(self, message: Message) -> None:
        """The client gives the message back as failed."""
        self.counts["abandoned"] += 1
        self.unlock(message, counted=True)

    def release(self, message: Message) -> None:
        """The client gives the message back as not tried."""
        self.counts["released"] += 1
        self.unlock(message, counted=False)

    def defer(self, message: Message) -> None:
        """The message stays until it is received by its sequence number."""
        self.counts["deferred"] += 1
        self._forget_lock(message)
        message.state = DEFERRED
        message.locked_until = 0
        self.broker.store.save(message)

    def dead_letter(self, message: Message, reason: str | None, description: str | None) -> None:
        """Move the message to the dead letters; it keeps its sequence number."""
        self.counts["dead_lettered"] += 1
        told = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
        size = len(message.raw)
        message.add_application_properties({name: text for name, text in told.items() if text})
        self.queue.bytes += len(message.raw) - size
        self._forget_lock(message)
        message.locked_until = 0
        message.state = ACTIVE
        message.queued = False
        message.expires = 0
        if not self.dead:
            del self.messages[message.sequence]
            message.source = self.queue.name
            message.entity = self.queue.dead
            self.queue.dead.messages[message.sequence] = message
        self.broker.store.save(message, body=True)
        message.entity.make_ready(message)

    def expire(self, message: Message) -> None:
        """The message's time to live has ended."""
        if message.token is not None or message.entity is not self or message.sequence not in self.messages:
            return
        self.counts["expired"] += 1
        if self.queue.settings.dead_letter_on_expiration and not self.dead:
            self.dead_letter(message, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self.remove(message)

    def watch_expiry(self, message: Message) -> None:
        """Expire the message when its time to live ends."""
        if message.expires:
            self.broker.at(message.expires, self._expiry_due, message)

    def _expiry_due(self, message: Message) -> None:
        if message.expires and message.expires <= self.broker.now():
            self.expire(message)

    # Scheduled messages.

    def watch_schedule(self, message: Message) -> None:
        """Make a scheduled message active when it is due."""
        self.broker.at(message.due, self._schedule_due, message)

    def _schedule_due(self, message: Message) -> None:
        if message.state != SCHEDULED or self.messages.get(message.sequence) is not message:
            return
        # "appended to the queue as if it had been enqueued at the current instant, which includes assigning a new
        # SequenceNumber": https://learn.microsoft.com/azure/service-bus-messaging/message-sequencing
        del self.messages[message.sequence]
        message.state = ACTIVE
        message.enqueued = message.due
        message.sequence = self.queue.next_sequence()
        self.messages[message.sequence] = message
        self.broker.store.save(message)
        self.make_ready(message)

    # Sessions.

    def free_session(self, now: int) -> Session | None:
        """A session with an available message that nobody holds."""
        for session in self.sessions.values():
            if session.holder is None and self._take(session.ready, now, remove=False) is not None:
                return session
        return None

    def _serve_waiting(self, now: int) -> None:
        while self.waiting and (session := self.free_session(now)) is not None:
            link = self.waiting.popleft()
            self.lock_session(session, link, now)
            link.accept(session)

    def lock_session(self, session: Session, link: Consumer, now: int) -> None:
        """The session is the link's own until the lock ends."""
        session.holder = link
        session.locked_until = now + int(self.queue.settings.lock_seconds * 1000)
        self.broker.at(session.locked_until, self._session_ends, session, link)

    def renew_session(self, session: Session) -> int:
        """Extend the lock; returns its end."""
        if session.holder is None or session.locked_until <= self.broker.now():
            raise Refused(SESSION_LOCK_LOST, "The session lock has expired.", 410)
        session.locked_until = self.broker.now() + int(self.queue.settings.lock_seconds * 1000)
        for message in session.holder.held.values():
            message.locked_until = session.locked_until
            self.broker.store.save(message)
        return session.locked_until

    def _session_ends(self, session: Session, link: Consumer) -> None:
        if session.holder is not link:
            return
        if session.locked_until > self.broker.now():
            self.broker.at(session.locked_until, self._session_ends, session, link)
            return
        self.release_session(session, counted=True)
        link.lose_session()

    def release_session(self, session: Session, *, counted: bool) -> None:
        """The session is free for another link, with the messages that were locked."""
        link = session.holder
        session.holder = None
        session.locked_until = 0
        for message in list(link.held.values()) if link is not None else ():
            self.unlock(message, counted=counted)
        self.broker.offer(self)


class Queue:
    """A queue with its dead letters."""

    def __init__(self, broker: Broker, id: int, name: str, settings: QueueSettings, created: int) -> None:
        self.id = id
        self.name = name
        self.settings = settings
        self.created = created
        self.updated = created
        self.sequence = 0
        self.bytes = 0
        self.duplicates: dict[str, int] = {}
        self._broker = broker
        self.main = Entity(broker, self, dead=False)
        self.dead = Entity(broker, self, dead=True)

    def next_sequence(self) -> int:
        """The next sequence number, from 1."""
        self.sequence += 1
        self._broker.store.save_sequence(self)
        return self.sequence
