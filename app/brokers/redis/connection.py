"""Pipelines the commands of concurrent callers over one connection: replies come back in the order of the commands.

redis-py connects, authenticates, speaks TLS and RESP; hiredis packs the commands. The client of redis-py is not used:
it repeats commands whose reply was lost, and uses one connection and one write for each concurrent call.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    InvalidResponse,
    RedisError,
    ResponseError,
)

from app.brokers.bounded import GRACE_SECONDS
from app.brokers.redis.errors import is_read_only, translate
from app.errors import BrokerUnavailable, OutcomeUnknown

_CLOSE_SECONDS = 0.5

Late = Callable[[Any], object]
"""Called with a reply, or an error reply, for which nobody waits any more."""

# Error replies, although redis-py derives some of them from its ConnectionError: the connection stays usable.
_REPLIES = (ResponseError, BusyLoadingError, AuthenticationError, AuthorizationError)


class PipelinedConnection:
    """An established connection. A broken one stays broken; :class:`app.brokers.redis.server.Server` opens another.

    A command without a reply fails after ``reply_seconds``; the connection is broken when no reply at all came for that
    long. It accepts no more commands once the server has become a replica: after a failover the same address leads to
    the new primary.
    """

    def __init__(self, broker: str, connection: AbstractConnection, reply_seconds: float) -> None:
        self._broker = broker
        self._reply_seconds = reply_seconds
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._unwritten = 0
        self._awaited: deque[tuple[asyncio.Future[Any], float, Late | None]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._progress = 0.0
        self._suspect = False
        self.alive = True
        self._reader = self._loop.create_task(self._read())

    def send(self, *command: Any, late: Late | None = None) -> asyncio.Future[Any]:
        """A future of the reply; an error reply is a result, not an exception.

        Fails with BrokerUnavailable when the command was never written, with OutcomeUnknown when it may have been.
        Cancelling the future leaves the connection in order. ``late`` gets a reply that comes after either.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.alive:
            future.set_exception(BrokerUnavailable(broker=self._broker, reason="the connection is closed"))
            return future
        self._unsent.append(hiredis.pack_command(command))
        now = self._loop.time()
        if not self._awaited:
            self._progress = now
        self._unwritten += 1
        self._awaited.append((future, now, late))
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
        if self._watch is None:
            self._watch = self._loop.call_later(self._reply_seconds, self._look)
        return future

    async def close(self) -> None:
        """Close the connection; commands without a reply fail."""
        self._break("the connection was closed")
        await asyncio.gather(*(task for task in (self._reader, self._writer) if task), return_exceptions=True)

    async def _write(self) -> None:
        try:
            while self._unsent:
                # One write for all commands of the same turn of the event loop.
                packed, self._unsent = self._unsent, []
                self._unwritten = 0
                await self._connection.send_packed_command(packed, check_health=False)
        except (RedisError, OSError, RuntimeError) as error:
            # RuntimeError: uvloop does not write to a connection that was lost in this turn of the loop.
            self._break(str(error))
        finally:
            self._writer = None

    async def _read(self) -> None:
        read, awaited = self._connection.read_response, self._awaited
        try:
            while True:
                try:
                    reply = await read(timeout=math.inf, disconnect_on_error=False)
                except _REPLIES as error:
                    reply = error
                    if is_read_only(error):
                        self.alive = False
                if not awaited:
                    raise InvalidResponse("a reply without a command")
                future, _, late = awaited.popleft()
                self._progress = self._loop.time()
                if not future.done():
                    future.set_result(reply)
                elif late is not None:
                    late(reply)
                if not self.alive and not awaited:
                    self._break("the server is a replica")
                    return
        except (RedisError, OSError) as error:
            self._break(str(error))
        finally:
            await _disconnect(self._connection)

    def _look(self) -> None:
        """Fail commands without a reply for ``reply_seconds``; break a connection without any reply for that long."""
        self._watch = None
        now, reason = self._loop.time(), f"no reply within {self._reply_seconds:g} s"
        oldest = next((sent for future, sent, _ in self._awaited if not future.done()), None)
        if oldest is None and not self._awaited:
            return
        waited = now - (self._progress if oldest is None else oldest)
        late = waited >= self._reply_seconds
        if late and self._suspect:
            if now - self._progress >= self._reply_seconds:
                self._break(reason)
                return
            for future, sent, _ in self._awaited:
                if now - sent < self._reply_seconds:
                    break
                if not future.done():
                    future.set_exception(OutcomeUnknown(broker=self._broker, reason=reason))
        # The first time, this process may have stood still, with the reply unread in the socket.
        self._suspect = late
        self._watch = self._loop.call_later(max(self._reply_seconds - waited, GRACE_SECONDS), self._look)

    def _break(self, reason: str) -> None:
        self.alive = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        written = len(self._awaited) - self._unwritten
        for position, (future, *_) in enumerate(self._awaited):
            if not future.done():
                kind = OutcomeUnknown if position < written else BrokerUnavailable
                future.set_exception(kind(broker=self._broker, reason=reason))
        self._awaited.clear()
        self._unsent.clear()
        for task in (self._reader, self._writer):
            if task is not None and task is not asyncio.current_task(self._loop):
                task.cancel()


async def connect(
    broker: str, connection: AbstractConnection, seconds: float, reply_seconds: float
) -> PipelinedConnection:
    """Establish ``connection``. Raises BrokerUnavailable within ``seconds`` and half a second to disconnect."""
    try:
        async with asyncio.timeout(seconds):
            await connection.connect_check_health(check_health=False)
    except TimeoutError:
        await _disconnect(connection)
        raise BrokerUnavailable(broker=broker, reason=f"no connection within {seconds:g} s") from None
    except asyncio.CancelledError:
        await _disconnect(connection)
        raise
    except (RedisError, OSError, ValueError) as error:
        await _disconnect(connection)
        raise translate(error, broker) from error
    return PipelinedConnection(broker, connection, reply_seconds)


async def _disconnect(connection: AbstractConnection) -> None:
    """Disconnect and wait for it: under TLS the socket stays open until the server has answered the close notify."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await connection.disconnect()
