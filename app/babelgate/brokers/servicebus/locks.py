"""Receives the messages of queues without sessions, and keeps and ends their locks: by their tokens, through the
management node of their queue.

A lock belongs to its token, so any process can end or renew it:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from babelgate.brokers.batching import batches
from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.bounded import GRACE_SECONDS, answering
from babelgate.brokers.connect import CONNECT_SECONDS
from babelgate.brokers.servicebus.client import Handler, ServiceBusConnections
from babelgate.brokers.servicebus.errors import translate
from babelgate.brokers.servicebus.sdk_internals import LockedMessage, ReceiveLink, renew_locks, settle_by_tokens
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerError, BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

Disposition = Literal["completed", "abandoned", "suspended"]

MAX_RECEIVED = 100
"""Messages of one receive. More credit takes more messages from other replicas at once."""

MAX_TOKENS = 100
"""Lock tokens of one request."""

_LONGEST_SECONDS = 300.0
"""The longest ``LockDuration`` of a queue:
https://learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement#peeklock"""

_TRUSTED_SECONDS = 30.0
"""A lock is renewed as if it lasted no longer than this. Half of the default ``LockDuration``, so that a clock that is
behind loses no lock of an ordinary queue, even if no fresh message has shown how long its locks last."""

_LEAST_PAUSE_SECONDS = 0.5
_throttled = LogThrottle(get_logger(__name__))


class LockTime:
    """The duration of the locks of one queue or session.

    Service Bus states when a lock ends by its own clock, and never what that clock shows. A message is locked after it
    was enqueued, so that no lock lasts longer than the shortest time between the two. ``longest``: that, in seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.longest = _LONGEST_SECONDS

    def learn(self, enqueued_at: int, locked_until: int) -> None:
        """Take note of a message that was enqueued before it was locked. Times in Unix ms of the service's clock; 0
        where it states none."""
        if 0 < enqueued_at < locked_until:
            self.longest = min(self.longest, (locked_until - enqueued_at) / 1000)

    def pause(self, locked_until: int) -> float:
        """Seconds until the renewal of a lock that was obtained now: half of its time, as far as that is known."""
        by_clock = (locked_until - self._clock()) / 1000
        return max(min(by_clock, self.longest, _TRUSTED_SECONDS) / 2, _LEAST_PAUSE_SECONDS)


class HeldLock:
    """The lock of a delivery that this process received. Loop times: ``ends_at`` when it is over at the latest, and
    ``renew_at``; ``early_at``: from then on it is renewed together with others."""

    __slots__ = ("early_at", "ends_at", "handler", "link", "received", "renew_at")

    def __init__(self, handler: Handler, link: ReceiveLink, received: LockedMessage) -> None:
        self.handler = handler
        self.link = link
        self.received = received
        self.ends_at = 0.0
        self.renew_at = 0.0
        self.early_at = 0.0


class QueueLocks:
    """The deliveries of one queue, and their locks.

    The locks of deliveries that this process handed out are renewed until they end. A token is lost when the service
    says so, or when its time is over and the service could not be asked. ``unconfirmed``: the tokens whose settle had
    no answer, of all queues.
    """

    def __init__(
        self, connections: ServiceBusConnections, entity: str, clock: Clock, unconfirmed: Cache[bytes, None]
    ) -> None:
        self._connections = connections
        self._entity = entity
        self._time = LockTime(clock)
        self._held: dict[str, HeldLock] = {}
        self._unconfirmed = unconfirmed
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: BackgroundTasks[None] = BackgroundTasks()
        self._receives = 0
        self._polls = 0
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether this process has deliveries of the queue, renews their locks, or receives."""
        return bool(self._held or self._renewing or self._receives)

    async def reserve(self, limit: int, wait_seconds: float) -> Sequence[Delivery]:
        """At most ``limit`` messages. Raises BrokerError.

        A receive that waits ends early when one that does not wait comes: it can show, too, that the queue is empty.
        The time that a receive may take does not include that of connecting, which over TLS and with a token takes many
        round trips.
        """
        connections, broker = self._connections, self._connections.broker
        is_poll = wait_seconds <= 0
        self._receives += 1
        self._polls += is_poll
        try:
            no_connection = f"no connection within {CONNECT_SECONDS:g} s"
            async with answering(CONNECT_SECONDS, translate, broker, reason=no_connection):
                handler = await connections.taken("receive", self._entity)
            try:
                seconds = wait_seconds + connections.timeout_seconds - GRACE_SECONDS
                until = asyncio.get_running_loop().time() + seconds
                async with answering(seconds, translate, broker, reason="no answer in time"), handler.lock:
                    return await self._receive(handler, min(limit, MAX_RECEIVED), wait_seconds, until)
            finally:
                connections.leave(handler)
        finally:
            self._receives -= 1
            self._polls -= is_poll

    def holds(self, handle: str) -> bool:
        """Whether this process has the delivery of ``handle``, and its lock is not known to be over."""
        return handle in self._held

    async def settle(
        self, handles: Sequence[str], disposition: Disposition, details: Mapping[str, str] | None = None
    ) -> list[Outcome]:
        """End the locks of ``handles``: one outcome each. ``details``: reason and description of a dead letter.

        Service Bus refuses a request with a lock that is over, and it is not documented what became of the others. So
        each is then settled by a request of its own, and what that one refuses may have been settled by the first.
        """
        tokens = [_token(handle) for handle in handles]
        valid = list(dict.fromkeys(token for token in tokens if token is not None))
        outcomes: dict[UUID, Outcome] = {}
        for several in batches(valid, MAX_TOKENS):
            outcomes |= await self._settle(several, disposition, details)
        for token, outcome in outcomes.items():
            if outcome is None or isinstance(outcome, LeaseLost):
                self._held.pop(token.hex, None)
        return [LeaseLost() if token is None else outcomes[token] for token in tokens]

    async def give_back(self, handles: Sequence[str]) -> list[Outcome]:
        """Make the messages available at once: uncounted where this process holds the delivery, else counted."""
        outcomes: dict[str, Outcome] = {}
        for handle in handles:
            held = self._held.get(handle)
            if held is not None and not held.handler.closed:
                try:
                    await held.link.give_back(held.received, self._connections.timeout_seconds)
                except Exception:
                    # The management node knows what became of it.
                    continue
                outcomes[handle] = None
                self._held.pop(handle, None)
        left = [handle for handle in handles if handle not in outcomes]
        outcomes |= dict(zip(left, await self.settle(left, "abandoned") if left else (), strict=True))
        return [outcomes[handle] for handle in handles]

    async def prove(self, handles: Sequence[str]) -> list[Outcome]:
        """Renew the locks: None for each that the service has renewed. A lost one is forgotten."""
        proofs = [None if isinstance(end, int) else end for end in await self.renew(handles)]
        for handle, proof in zip(handles, proofs, strict=True):
            if isinstance(proof, LeaseLost):
                self._held.pop(handle, None)
        return proofs

    async def renew(self, handles: Sequence[str]) -> list[int | BabelgateError]:
        """Renew locks once, for the time that the queue is configured with; the new ends in Unix ms."""
        tokens = [_token(handle) for handle in handles]
        ends = await self._renew([token for token in tokens if token is not None])
        return [LeaseLost() if token is None else ends[token] for token in tokens]

    def close(self) -> None:
        """Stop renewing and waiting for messages. The locks last until they expire."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._renewing.wait()

    async def _receive(self, handler: Handler, limit: int, wait_seconds: float, until: float) -> Sequence[Delivery]:
        try:
            if handler.closed:
                raise BrokerUnavailable(self._connections.broker, "the connection was closed")
            link = ReceiveLink(handler.client)
            several = await link.receive(limit, wait_seconds, until, lambda: not (self._polls or self._closed))
        except BaseException:
            # Its credit may still be with the service, which would lock messages without a receive.
            self._connections.discard(handler)
            raise
        for received in several:
            self._time.learn(received.message.enqueued_at, received.message.locked_until)
        for received in several:
            held = self._held[received.token.hex] = HeldLock(handler, link, received)
            self._locked_until(held, received.message.locked_until)
        self._schedule()
        return [delivery_of(each) for each in several]

    async def _settle(
        self, tokens: Sequence[UUID], disposition: Disposition, details: Mapping[str, str] | None
    ) -> dict[UUID, Outcome]:
        async def dispose(receiver: Any) -> None:
            await settle_by_tokens(receiver, disposition, tokens, details)

        broker = self._connections.broker
        try:
            await self._connections.call("manage", self._entity, dispose, writes=True)
            return dict.fromkeys(tokens)
        except LeaseLost as error:
            if len(tokens) == 1:
                if tokens[0].bytes not in self._unconfirmed:
                    return {tokens[0]: error.without_frames()}
                reason = "an earlier request to settle it had no answer, and now its lock is over"
                return {tokens[0]: OutcomeUnknown(broker, reason)}
        except BrokerError as error:
            if isinstance(error, OutcomeUnknown):
                for token in tokens:
                    self._unconfirmed.keep(token.bytes, None)
            return dict.fromkeys(tokens, error.without_frames())
        outcomes: dict[UUID, Outcome] = {}
        for token in tokens:
            (outcome,) = (await self._settle([token], disposition, details)).values()
            if isinstance(outcome, LeaseLost):
                reason = "the lock is over, or a request for several messages, one of whose locks was over, settled it"
                outcome = OutcomeUnknown(broker, reason)
            outcomes[token] = outcome
        return outcomes

    async def _renew(self, tokens: Sequence[UUID]) -> dict[UUID, int | BabelgateError]:
        if not tokens:
            return {}

        async def renew(receiver: Any) -> list[int]:
            return await renew_locks(receiver, tokens, self._connections.timeout_seconds)

        ends: dict[UUID, int | BabelgateError] = {}
        try:
            answer = await self._connections.call("manage", self._entity, renew, writes=False)
        except LeaseLost as error:
            if len(tokens) == 1:
                return {tokens[0]: error.without_frames()}
            for token in tokens:
                ends |= await self._renew([token])
            return ends
        except BrokerError as error:
            return dict.fromkeys(tokens, error.without_frames())
        return dict(zip(tokens, answer, strict=True))

    def _locked_until(self, held: HeldLock, locked_until: int) -> None:
        """Plan the next renewal of a lock whose end, by the service's clock, was just received."""
        now, pause = asyncio.get_running_loop().time(), self._time.pause(locked_until)
        held.ends_at = now + self._time.longest
        held.renew_at, held.early_at = now + pause, now + pause / 2

    def _schedule(self) -> None:
        if self._timer is None and not self._renewing and self._held and not self._closed:
            when = min(held.renew_at for held in self._held.values())
            self._timer = asyncio.get_running_loop().call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._renewing.start(self._renew_due()).add_done_callback(lambda _: self._schedule())

    async def _renew_due(self) -> None:
        """Renew the locks that are due now or soon, in requests of many."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        # Not those that are new: a request for many fails when one of them is settled meanwhile.
        soonest = [held.received.token for held in self._held.values() if held.early_at <= now]
        for several in batches(soonest, MAX_TOKENS):
            for token, end in (await self._renew([token for token in several if token.hex in self._held])).items():
                held = self._held.get(token.hex)
                if held is None:
                    continue
                if isinstance(end, int):
                    self._locked_until(held, end)
                elif isinstance(end, LeaseLost) or loop.time() > held.ends_at:
                    del self._held[token.hex]
                else:
                    held.renew_at = loop.time() + _LEAST_PAUSE_SECONDS
                    broker = self._connections.broker
                    _throttled.warning("a lock was not renewed", queue=self._entity, broker=broker, error=end)


def _token(handle: str) -> UUID | None:
    """The lock token in ``handle``, its 32 hexadecimal digits; None for a malformed one."""
    try:
        token = UUID(hex=handle)
    except ValueError:
        return None
    return token if token.hex == handle else None


def delivery_of(received: LockedMessage) -> Delivery:
    """The delivery of a message. The gateway keeps its lease."""
    found = received.message
    return Delivery(
        found.body,
        received.token.hex,
        0,
        found.headers,
        found.count,
        found.count > 0,
        found.carried,
        unsupported_version=found.version,
        properties={**found.properties, "LockToken": str(received.token)},
        ordering_key=found.properties.get("SessionId"),
    )
