"""A binding's connections: one for commands, shared; one more for each wait that is going on."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError

from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.redis.connection import Line, connect
from app.brokers.redis.errors import translate
from app.errors import BrokerUnavailable, ConfigError, OutcomeUnknown

CONNECT_SECONDS = 4.0
"""How long connecting may take, or ``timeout_seconds`` where that is less."""

_GRACE_SECONDS = 0.1
"""How much longer a reply is waited for: it may be this process that stood still, and the reply lies there unread."""

SLICE_SECONDS = 1.0
"""The longest single wait for an element."""

OLDEST = (6, 2)
"""LPOP with a count, LMOVE and BLMOVE came with 6.2: https://redis.io/docs/latest/commands/blmove/"""

INDEX = b"babelgate:timed"
"""The index of all queues in a database where something falls due."""


class Script:
    """One of the scripts in ``lua/``, with what all of them share in front."""

    def __init__(self, name: str) -> None:
        folder = resources.files("app.brokers.redis") / "lua"
        files = ("common", "list", "laravel", name)
        self.source = "".join((folder / f"{file}.lua").read_text("utf-8") for file in files).encode("utf-8")
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode("ascii")


@cache
def script(name: str) -> Script:
    """The script of that name; read once."""
    return Script(name)


class Server:
    """One Redis database. Connects by itself, never repeats a command that may have run.

    A command, connecting included, takes at most ``timeout_seconds``, 0.1 s more for a process that stood still, and
    0.5 s to hang up. ``now`` is the time that scripts use, in seconds as text; empty stands for the server's own clock.
    """

    def __init__(
        self, broker: str, connector: Callable[[], AbstractConnection], timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._broker = broker
        self._connector = connector
        self._timeout_seconds = timeout_seconds
        self._shared: Line | None = None
        self._connecting: asyncio.Task[Line] | None = None
        self._idle: list[Line] = []
        self._waiting: set[Line] = set()
        self.now = b""
        self.index = INDEX

    async def call(self, *command: Any) -> Any:
        """The reply. Raises BrokerUnavailable or OutcomeUnknown, and for an error reply its translation."""
        reply = await self._reply(None, *command)
        if isinstance(reply, Exception):
            raise translate(reply, self._broker) from reply
        return reply

    async def read(self, *command: Any) -> Any:
        """Like :meth:`call`, for a command that writes nothing: a lost reply is BrokerUnavailable."""
        try:
            return await self.call(*command)
        except OutcomeUnknown as error:
            raise BrokerUnavailable(broker=self._broker, reason=error.reason) from error

    async def run(self, name: str, queue: bytes, *arguments: Any) -> Any:
        """The reply of a script on a queue's ready list. Only one that the server did not know is sent again."""
        return await self._run(script(name), b"2", queue, self.index, self.now, *arguments)

    async def upkeep(self, *arguments: Any) -> int:
        """The script that looks after the index."""
        reply: int = await self._run(script("upkeep"), b"1", self.index, self.now, *arguments)
        return reply

    async def wait(self, queue: bytes, seconds: float) -> bool:
        """Whether the list ``queue`` holds something, as soon as it does or after ``seconds``, at most a slice.

        Moves nothing. Waits on a connection of its own, for which there is no cap: a waited queue costs one.
        """
        seconds = min(max(seconds, 0.001), SLICE_SECONDS)
        line = next((idle for idle in iter(self._take, None) if idle.alive), None) or await self._dial(
            2 * SLICE_SECONDS
        )
        self._waiting.add(line)
        try:
            # From the head to the head: an element is found where it was, and no other waiter is woken in vain.
            reply = await line.send(b"BLMOVE", queue, queue, b"LEFT", b"LEFT", b"%.3f" % seconds)
        except OutcomeUnknown as error:
            raise BrokerUnavailable(broker=self._broker, reason=error.reason) from error
        except asyncio.CancelledError:
            # Its reply is still to come: nobody else can use the line before.
            await line.close()
            raise
        finally:
            self._waiting.discard(line)
            if line.alive:
                self._idle.append(line)
        if isinstance(reply, Exception):
            raise translate(reply, self._broker) from reply
        return reply is not None

    async def open(self) -> None:
        """Connect, unless connected. Raises BrokerUnavailable, and ConfigError for a server that cannot be used."""
        if self._shared is None or not self._shared.alive:
            await self._connected()

    async def close(self) -> None:
        """Close all connections; idempotent. A later call connects again."""
        lines = [*self._idle, *self._waiting]
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._shared is not None:
            lines.append(self._shared)
        self._shared = None
        self._idle.clear()
        await asyncio.gather(*(line.close() for line in lines))

    async def _run(self, wanted: Script, *arguments: Any) -> Any:
        until = self._until()
        reply = await self._reply(None, b"EVALSHA", wanted.sha, *arguments)
        if isinstance(reply, NoScriptError):
            reply = await self._reply(until, b"EVAL", wanted.source, *arguments)
        if isinstance(reply, Exception):
            raise translate(reply, self._broker) from reply
        return reply

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_seconds

    async def _reply(self, until: float | None, *command: Any) -> Any:
        """The reply, an error reply included, by the loop's time ``until``; None: it has all the time of a call."""
        line = self._shared
        if line is None or not line.alive:
            until = self._until() if until is None else until
            line = await self._connected()
        reply = line.send(*command)
        if until is None:
            # The line itself bounds this.
            return await reply
        if not await _came(reply, until):
            reason = f"no reply within {self._timeout_seconds:g} s"
            raise OutcomeUnknown(broker=self._broker, reason=reason)
        return reply.result()

    async def _connected(self) -> Line:
        """The shared line; all that ask at the same time wait for the same attempt."""
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._forget_attempt)
        return await asyncio.shield(self._connecting)

    def _forget_attempt(self, attempt: asyncio.Task[Line]) -> None:
        self._connecting = None
        if not attempt.cancelled():
            attempt.exception()

    @property
    def _connect_seconds(self) -> float:
        return min(CONNECT_SECONDS, self._timeout_seconds)

    def _take(self) -> Line | None:
        return self._idle.pop() if self._idle else None

    async def _dial(self, reply_seconds: float) -> Line:
        return await connect(self._broker, self._connector(), self._connect_seconds, reply_seconds)

    async def _connect(self) -> Line:
        until = asyncio.get_running_loop().time() + self._connect_seconds
        line = await self._dial(self._timeout_seconds)
        try:
            info = line.send(b"INFO", b"server")
            if not await _came(info, until):
                reason = f"no answer to the first command within {self._connect_seconds:g} s"
                raise BrokerUnavailable(broker=self._broker, reason=reason)
            self._check(info.result())
        except OutcomeUnknown as error:
            raise BrokerUnavailable(broker=self._broker, reason=error.reason) from error
        except BaseException:
            await line.close()
            raise
        self._shared = line
        return line

    def _check(self, info: Any) -> None:
        """Refuse a server that lacks what is needed; one that does not let us look is taken at its word."""
        if isinstance(info, Exception):
            error = translate(info, self._broker)
            if isinstance(error, BrokerUnavailable):
                raise error
            return
        facts = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
        if facts.get("redis_mode") == "cluster":
            reason = "the server runs in cluster mode, which is not supported: a message's keys must lie on one server"
            raise ConfigError(key=f"brokers.{self._broker}", reason=reason)
        version = facts.get("redis_version", "")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if numbers and numbers < OLDEST:
            reason = f"the server is Redis {version}; {OLDEST[0]}.{OLDEST[1]} or newer is needed"
            raise ConfigError(key=f"brokers.{self._broker}", reason=reason)


async def _came(reply: asyncio.Future[Any], until: float) -> bool:
    """Whether ``reply`` is done by the loop's time ``until``, and a grace; else it is cancelled."""
    try:
        await asyncio.wait((reply,), timeout=max(until - asyncio.get_running_loop().time(), 0))
        if not reply.done():
            await asyncio.wait((reply,), timeout=_GRACE_SECONDS)
    finally:
        reply.cancel()
    return not reply.cancelled()
