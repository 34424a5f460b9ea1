"""Pipelines the commands of concurrent callers over one connection: replies come back in the order of the commands.

redis-py connects, authenticates and speaks TLS; from then on the connection's transport is ours, and hiredis packs the
commands and parses the replies. The client of redis-py is not used: it repeats commands whose reply was lost, and uses
one connection and one write for each concurrent call.
"""

from __future__ import annotations

import asyncio
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
from redis.exceptions import ConnectionError as RedisConnectionError

from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.brokers.redis.errors import is_read_only, translate
from babelgate.errors import BrokerUnavailable, OutcomeUnknown

_CLOSE_SECONDS = 0.5

_UNDO_SECONDS = 0.5
"""How long a silent connection is kept for late replies."""

Late = Callable[[Any], object]
"""Called with a reply, or an error reply, whose caller has ended."""

# Error replies, although redis-py derives some of them from its ConnectionError: the connection stays usable.
_REPLIES = (ResponseError, BusyLoadingError, AuthenticationError, AuthorizationError)


_INCOMPLETE = object()
"""What the parser returns while a reply is not complete."""


class PipelinedConnection(asyncio.Protocol):
    """An established connection. A broken one stays broken; :class:`babelgate.brokers.redis.server.Server` opens
    another.

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
        self._paused = False
        self._awaited: deque[tuple[asyncio.Future[Any], float, Late | None]] = deque()
        self._closing: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._progress = 0.0
        self._suspect = False
        self.alive = True
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_INCOMPLETE
        )
        assert connection._writer is not None
        transport = connection._writer.transport
        self._transport = transport
        self._streams = transport.get_protocol()
        """redis-py's protocol. It waits for the end of the connection when it disconnects."""
        transport.set_protocol(self)

    def send(self, *command: Any, late: Late | None = None) -> asyncio.Future[Any]:
        """A future of the reply; an error reply is a result, not an exception.

        Fails with BrokerUnavailable when the command was never written, with OutcomeUnknown when it may have been.
        Cancelling the future leaves the connection in order. ``late`` gets a reply that comes after either, and must
        undo what it brings: a command with it that has no reply in time fails with BrokerUnavailable.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.alive:
            future.set_exception(BrokerUnavailable(broker=self._broker, reason="the connection is closed"))
            return future
        packed = hiredis.pack_command(command)
        if not self._unsent:
            # One write for all commands of the same turn of the event loop.
            self._loop.call_soon(self._write)
        self._unsent.append(packed)
        now = self._loop.time()
        if not self._awaited:
            self._progress = now
        self._awaited.append((future, now, late))
        if self._watch is None:
            self._watch = self._loop.call_later(self._reply_seconds, self._look)
        return future

    def close_soon(self) -> asyncio.Task[None]:
        """Begin to close the connection, and return the task that ends it; commands without a reply fail."""
        self._break("the connection was closed")
        assert self._closing is not None
        return self._closing

    async def close(self) -> None:
        """Close the connection; commands without a reply fail."""
        await asyncio.wait((self.close_soon(),))

    def data_received(self, data: bytes) -> None:
        """Give each reply to the oldest command."""
        awaited, gets = self._awaited, self._replies.gets
        try:
            self._replies.feed(data)
            while (reply := gets()) is not _INCOMPLETE:
                if isinstance(reply, RedisError):
                    if isinstance(reply, RedisConnectionError) and not isinstance(reply, _REPLIES):
                        raise reply
                    if is_read_only(reply):
                        self.alive = False
                if not awaited:
                    raise InvalidResponse("a reply without a command")
                future, _, late = awaited.popleft()
                if not future.done():
                    future.set_result(reply)
                elif late is not None:
                    late(reply)
                self._progress = self._loop.time()
            if not self.alive and not awaited:
                self._break("the server is a replica")
        except RedisError as error:
            self._break(str(error))

    def pause_writing(self) -> None:
        """Commands wait: the server reads too slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write the commands that have waited."""
        self._paused = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        """Commands without a reply fail."""
        self._streams.connection_lost(exc)
        self._break(str(exc) if exc else "the server closed the connection")

    def _write(self) -> None:
        if self._paused or not self._unsent:
            return
        if self._transport.is_closing():
            self._break("the connection is lost")
            return
        unsent, self._unsent = self._unsent, []
        # writelines() of Python before 3.12.9 and 3.13.2 does not pause writing (CVE-2024-12254).
        self._transport.write(b"".join(unsent))

    def _look(self) -> None:
        """Fail commands without a reply for ``reply_seconds``; break a connection without any reply for that long.

        Where a late reply could be undone, it has a moment to come.
        """
        self._watch = None
        if not self._awaited:
            return
        now, bound = self._loop.time(), self._reply_seconds
        silent = now - self._progress
        waited = max((now - sent for future, sent, _ in self._awaited if not future.done()), default=silent)
        if waited >= bound and self._suspect:
            reason, undoable = f"no reply within {bound:g} s", False
            for future, sent, late in self._awaited:
                if now - sent < bound:
                    break
                undoable |= late is not None
                if not future.done():
                    kind = OutcomeUnknown if late is None else BrokerUnavailable
                    future.set_exception(kind(broker=self._broker, reason=reason))
            if silent >= (bound + _UNDO_SECONDS if undoable else bound):
                self._break(reason)
                return
        # The first time, this process may have stood still, with the reply unread in the socket.
        self._suspect = waited >= bound
        self._watch = self._loop.call_later(max(bound - waited, GRACE_SECONDS), self._look)

    def _break(self, reason: str) -> None:
        self.alive = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        written = len(self._awaited) - len(self._unsent)
        for position, (future, *_) in enumerate(self._awaited):
            if not future.done():
                kind = OutcomeUnknown if position < written else BrokerUnavailable
                future.set_exception(kind(broker=self._broker, reason=reason))
        self._awaited.clear()
        self._unsent.clear()
        if self._closing is None:
            self._closing = self._loop.create_task(_disconnect(self._connection))


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
    writer = connection._writer
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await connection.disconnect()
    except TimeoutError:
        pass
    finally:
        # What is closed stays as it is. A caller that is cancelled leaves no socket behind.
        if writer is not None:
            writer.transport.abort()
