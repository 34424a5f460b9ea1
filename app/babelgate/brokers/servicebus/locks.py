"""Keeps and ends the locks of messages, by their tokens and through the management node of their queue.

A lock belongs to its token, so any process can end or renew it:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from babelgate.brokers.binding import Outcome
from babelgate.brokers.servicebus.client import Handler, ServiceBusConnections
from babelgate.brokers.servicebus.link import LockedMessage, ReceiveLink
from babelgate.brokers.servicebus.lock_time import LockTime
from babelgate.brokers.servicebus.sdk_internals import renew_locks, settle_by_tokens
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerError, LeaseLost, OutcomeUnknown
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Cache

Disposition = Literal["completed", "abandoned", "suspended"]

MAX_TOKENS = 100
"""Lock tokens of one request."""

_LEAST_PAUSE_SECONDS = 0.5
_throttled = LogThrottle(get_logger(__name__))


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
    """The locks of one queue.

    Those of deliveries that this process handed out are renewed until they end. A token is lost when the service says
    so, or when its time is over and the service could not be asked. ``unconfirmed``: the tokens whose settle had no
    answer, of all queues.
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

    @property
    def busy(self) -> bool:
        """Whether this process has deliveries of the queue, or renews their locks."""
        return bool(self._held or self._renewing)

    def hold(self, handler: Handler, link: ReceiveLink, several: Sequence[LockedMessage]) -> None:
        """Renew the locks of deliveries until they are settled here, or lost."""
        for received in several:
            self._time.learn(received.message.enqueued_at, received.message.locked_until)
        for received in several:
            held = self._held[received.token.hex] = HeldLock(handler, link, received)
            self._locked_until(held, received.message.locked_until)
        self._schedule()

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
        for start in range(0, len(valid), MAX_TOKENS):
            outcomes |= await self._settle(valid[start : start + MAX_TOKENS], disposition, details)
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
                    seconds = self._connections.timeout_seconds
                    await held.link.give_back(held.received.delivery_id, held.received.tag, seconds)
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
        """Stop renewing. The locks last until they expire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._renewing.wait()

    async def _settle(
        self, tokens: Sequence[UUID], disposition: Disposition, details: Mapping[str, str] | None
    ) -> dict[UUID, Outcome]:
        try:
            await self._dispose(tokens, disposition, details)
            return dict.fromkeys(tokens)
        except LeaseLost as error:
            if len(tokens) == 1:
                return {tokens[0]: self._lost(tokens[0], error)}
        except OutcomeUnknown as error:
            self._remember(tokens)
            return dict.fromkeys(tokens, error.without_frames())
        except BrokerError as error:
            return dict.fromkeys(tokens, error.without_frames())
        outcomes: dict[UUID, Outcome] = {}
        for token in tokens:
            (outcome,) = (await self._settle([token], disposition, details)).values()
            if isinstance(outcome, LeaseLost):
                outcome = OutcomeUnknown(
                    self._connections.broker,
                    "the lock is over, or a request for several messages, one of whose locks was over, settled it",
                )
            outcomes[token] = outcome
        return outcomes

    async def _dispose(
        self, tokens: Sequence[UUID], disposition: Disposition, details: Mapping[str, str] | None
    ) -> None:
        async def dispose(receiver: Any) -> None:
            await settle_by_tokens(receiver, disposition, tokens, details)

        await self._connections.call("manage", self._entity, dispose, writes=True)

    def _lost(self, token: UUID, error: LeaseLost) -> Outcome:
        if token.bytes not in self._unconfirmed:
            return error.without_frames()
        reason = "an earlier request to settle it had no answer, and now its lock is over"
        return OutcomeUnknown(self._connections.broker, reason)

    def _remember(self, tokens: Sequence[UUID]) -> None:
        for token in tokens:
            self._unconfirmed.keep(token.bytes, None)

    async def _renew(self, tokens: Sequence[UUID]) -> dict[UUID, int | BabelgateError]:
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
        if self._timer is None and not self._renewing and self._held:
            when = min(held.renew_at for held in self._held.values())
            self._timer = asyncio.get_running_loop().call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._renewing.start(self._renew_due()).add_done_callback(lambda _: self._schedule())

    async def _renew_due(self) -> None:
        """Renew the locks that are due now or soon, in requests of many."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        soonest = [handle for handle, held in self._held.items() if held.early_at <= now]
        for start in range(0, len(soonest), MAX_TOKENS):
            several = [
                self._held[handle].received.token for handle in soonest[start:][:MAX_TOKENS] if handle in self._held
            ]
            if not several:
                continue
            for token, end in (await self._renew(several)).items():
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
