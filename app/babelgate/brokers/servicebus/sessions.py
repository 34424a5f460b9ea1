"""Receives from queues with sessions: a session belongs to the process that accepted it, with all its messages.

https://learn.microsoft.com/azure/service-bus-messaging/message-sessions
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageLockLostError, OperationTimeoutError

from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.bounded import GRACE_SECONDS, finished, within
from babelgate.brokers.connect import CONNECT_SECONDS, Closable
from babelgate.brokers.errors import translating
from babelgate.brokers.servicebus.client import ServiceBusConnections
from babelgate.brokers.servicebus.errors import translate
from babelgate.brokers.servicebus.locks import MAX_RECEIVED, Disposition, LockTime, delivery_of
from babelgate.brokers.servicebus.sdk_internals import LockedMessage, ReceiveLink, is_attached, settle_by_tokens
from babelgate.clock import Clock
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks

_ACCEPT_SECONDS = 30.0
"""How long one request for the next session waits at the service."""

_POLL_ACCEPT_SECONDS = 0.1
_LOOK_SECONDS = 0.2
"""While a receive waits for another session, the sessions that are held are looked at as often."""

_throttled = LogThrottle(get_logger(__name__))


class _Session:
    """An accepted session, and the deliveries of it that are not settled."""

    def __init__(self, receiver: Any, socket: asyncio.StreamWriter | None, clock: Clock) -> None:
        self.receiver = receiver
        self.time = LockTime(clock)
        self.ends_at = 0.0
        """The loop's time when its lock is over at the latest."""
        self.socket = socket
        self.link = ReceiveLink(receiver)
        self.lock = asyncio.Lock()
        self.outstanding: dict[str, LockedMessage] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.is_new = True


class QueueSessions(Closable):
    """The sessions of one queue that this process has accepted.

    A session is given back when nothing of it is outstanding and it has no more messages. Its lock is renewed until
    then; when it is lost, all its deliveries are.
    """

    def __init__(self, connections: ServiceBusConnections, entity: str, clock: Clock) -> None:
        self.broker = connections.broker
        self._connections = connections
        self._entity = entity
        self._clock = clock
        self._sessions: list[_Session] = []
        self._accepting: asyncio.Task[_Session | None] | None = None
        self._tasks: BackgroundTasks[Any] = BackgroundTasks()
        self._waiting = 0

    @property
    def busy(self) -> bool:
        """Whether this process has sessions of the queue, or asks for one."""
        return bool(self._sessions or self._waiting or self._tasks)

    async def reserve(self, limit: int, wait_seconds: float) -> Sequence[Delivery]:
        """At most ``limit`` messages of one session: of one that is held, or of the next one that is free."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_seconds
        limit = min(limit, MAX_RECEIVED)
        self._waiting += 1
        try:
            while True:
                last = clock() + self._connections.timeout_seconds - GRACE_SECONDS
                for session in list(self._sessions):
                    if deliveries := await self._receive(session, limit, last):
                        return deliveries
                left = until - clock()
                if wait_seconds > 0 and left <= 0:
                    return ()
                if not await self._accepted(left) and wait_seconds <= 0:
                    return ()
        finally:
            self._waiting -= 1

    def holds(self, handle: str) -> bool:
        """Whether the delivery of ``handle`` is of a session that this process has."""
        return self._session_of(handle) is not None

    async def settle(self, handles: Sequence[str], disposition: Disposition, details: Any = None) -> list[Outcome]:
        """End the leases of deliveries; LeaseLost for one whose session is not here any more."""

        async def settle(session: _Session, received: LockedMessage) -> None:
            await settle_by_tokens(session.receiver, disposition, [received.token], details)

        return [await self._end(handle, settle) for handle in handles]

    async def give_back(self, handles: Sequence[str]) -> list[Outcome]:
        """Make deliveries available at once, uncounted."""

        async def give_back(session: _Session, received: LockedMessage) -> None:
            await session.link.give_back(received, self._connections.timeout_seconds)

        return [await self._end(handle, give_back) for handle in handles]

    async def prove(self, handles: Sequence[str]) -> list[Outcome]:
        """Renew the locks of the sessions: None for each delivery of one that the service has renewed."""
        connections = self._connections
        sessions = [self._session_of(handle) for handle in handles]
        proofs: dict[_Session, Outcome] = {}
        for session in {each for each in sessions if each is not None}:
            try:
                async with asyncio.timeout(connections.timeout_seconds), session.lock:
                    await self._renewed(session)
            except TimeoutError:
                proofs[session] = BrokerUnavailable(connections.broker, "no answer in time")
            except Exception as error:
                found = translate(error, connections.broker, written=False).without_frames()
                if isinstance(found, LeaseLost):
                    self._lose(session)
                proofs[session] = found
        return [LeaseLost() if session is None else proofs.get(session) for session in sessions]

    async def purge(self) -> int:
        """Remove the ready messages of the sessions that no process has; the number removed."""
        count = 0
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        while (opened := await self._opened(_POLL_ACCEPT_SECONDS, mode)) is not None:
            try:
                with translating(translate, self._connections.broker, written=True):
                    link = ReceiveLink(opened[0])
                    until = asyncio.get_running_loop().time() + self._connections.timeout_seconds
                    while several := await link.receive(MAX_RECEIVED, 0, until):
                        count += len(several)
            finally:
                self._connections.close_later(*opened)
        return count

    def close(self) -> None:
        """Give back all sessions, and with them the deliveries that are not settled."""
        self.closed = True
        if self._accepting is not None:
            self._accepting.cancel()
        for session in list(self._sessions):
            self._lose(session)

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._tasks.wait()

    async def _receive(self, session: _Session, limit: int, until: float) -> Sequence[Delivery]:
        """The next messages of a session that is held; a session without any is given back."""
        if session.closed or session.lock.locked():
            return ()
        try:
            async with session.lock:
                if not await is_attached(session.receiver):
                    self._lose(session)
                    return ()
                several = await session.link.receive(limit, 0, until)
        except BaseException as error:
            self._lose(session)
            if isinstance(error, TimeoutError):
                raise BrokerUnavailable(self._connections.broker, "no answer in time") from None
            if not isinstance(error, Exception):
                raise
            found = translate(error, self._connections.broker, written=False)
            if isinstance(found, LeaseLost):
                return ()
            raise found from error
        if several and session.is_new:
            # Its first message was there when the session was accepted.
            session.is_new = False
            session.time.learn(min(each.message.enqueued_at for each in several), _locked_until(session))
            self._renew_later(session)
        session.outstanding |= {each.token.hex: each for each in several}
        if not session.outstanding:
            self._lose(session)
        return [delivery_of(each) for each in several]

    async def _accepted(self, wait_seconds: float) -> bool:
        """Whether another session was accepted. Without a wait: by a request of its own, so that a false is an answer
        of the service; else the request that waits at the service goes on after this call."""
        if wait_seconds <= 0:
            return await self._accept(_POLL_ACCEPT_SECONDS) is not None
        if self._accepting is None:
            self._accepting = self._tasks.start(self._accept(_ACCEPT_SECONDS))
            self._accepting.add_done_callback(self._ended)
        task = self._accepting
        await finished(task, min(wait_seconds, _LOOK_SECONDS))
        return task.done() and not task.cancelled() and task.result() is not None

    def _ended(self, task: asyncio.Task[_Session | None]) -> None:
        self._accepting = None
        session = None if task.cancelled() or task.exception() is not None else task.result()
        if session is not None and (self.closed or not self._waiting):
            self._lose(session)

    async def _accept(self, wait_seconds: float) -> _Session | None:
        """The next free session with messages; None when the service has none within ``wait_seconds``."""
        opened = await self._opened(wait_seconds, ServiceBusReceiveMode.PEEK_LOCK)
        if opened is None:
            return None
        session = _Session(*opened, self._clock)
        session.ends_at = asyncio.get_running_loop().time() + session.time.longest
        self._sessions.append(session)
        self._renew_later(session)
        return session

    async def _opened(
        self, wait_seconds: float, mode: ServiceBusReceiveMode
    ) -> tuple[Any, asyncio.StreamWriter | None] | None:
        """A receiver of the next free session and its socket; None when there is none. Raises BrokerUnavailable after
        :meth:`close`."""
        connections = self._connections
        self.check_open()
        receiver = connections.namespace().get_queue_receiver(
            self._entity, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=wait_seconds, receive_mode=mode
        )
        try:
            socket = await connections.open(receiver, wait_seconds + CONNECT_SECONDS)
        except BrokerUnavailable as error:
            # The service's own answer that no session came in time.
            if isinstance(error.__cause__, OperationTimeoutError):
                return None
            raise
        if self.closed:
            connections.close_later(receiver, socket)
        self.check_open()
        return receiver, socket

    async def _end(self, handle: str, end: Callable[[_Session, LockedMessage], Awaitable[None]]) -> Outcome:
        """The outcome of ``end`` for a delivery. After an error the state of the session is unknown, and it is given
        back, unless the service says that the lock of this message alone is over."""
        session = self._session_of(handle)
        if session is None:
            return LeaseLost()
        connections, received = self._connections, session.outstanding[handle]
        begun = False

        async def ended() -> None:
            nonlocal begun
            async with session.lock:
                begun = True
                await end(session, received)

        try:
            await within(connections.timeout_seconds, connections.broker, ended(), OutcomeUnknown)
        except Exception as error:
            outcome: Outcome = translate(error, connections.broker, written=begun).without_frames()
            if not isinstance(error, MessageLockLostError):
                self._lose(session)
        else:
            outcome = None
        session.outstanding.pop(handle, None)
        return outcome

    def _session_of(self, handle: str) -> _Session | None:
        return next((each for each in self._sessions if handle in each.outstanding), None)

    def _renew_later(self, session: _Session) -> None:
        pause = session.time.pause(_locked_until(session))
        if session.timer is not None:
            session.timer.cancel()
        session.timer = asyncio.get_running_loop().call_later(pause, lambda: self._tasks.start(self._renew(session)))

    async def _renewed(self, session: _Session) -> None:
        """Prolong the lock. Raises the client library's errors."""
        await session.receiver.session.renew_lock(timeout=self._connections.timeout_seconds)
        session.ends_at = asyncio.get_running_loop().time() + session.time.longest

    async def _renew(self, session: _Session) -> None:
        """Prolong the lock. One that was not prolonged is tried again while it lasts."""
        connections = self._connections
        try:
            async with session.lock:
                if session.closed:
                    return
                await self._renewed(session)
        except Exception as error:
            found = translate(error, connections.broker, written=True).without_frames()
            queue, broker = self._entity, connections.broker
            _throttled.warning("the lock of a session was not renewed", queue=queue, broker=broker, error=found)
            if session.closed or isinstance(found, LeaseLost) or asyncio.get_running_loop().time() > session.ends_at:
                self._lose(session)
                return
        self._renew_later(session)

    def _lose(self, session: _Session) -> None:
        """Forget a session and close its link, which gives it back."""
        session.closed = True
        if session.timer is not None:
            session.timer.cancel()
        session.outstanding.clear()
        if session in self._sessions:
            self._sessions.remove(session)
            self._connections.close_later(session.receiver, session.socket)


def _locked_until(session: _Session) -> int:
    """The end of its lock in Unix ms of the service's clock; 0 where it states none."""
    locked_until = session.receiver.session.locked_until_utc
    return 0 if locked_until is None else round(locked_until.timestamp() * 1000)
