"""Runs commands and scripts on one Redis database: one shared connection, and one more for each pending wait."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError

from babelgate.brokers.bounded import finished
from babelgate.brokers.connect import CONNECT_SECONDS, Closable, SharedConnect, disconnecting
from babelgate.brokers.errors import nothing_written
from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.redis.connection import Late, PipelinedConnection, connect
from babelgate.brokers.redis.denials import denial_of
from babelgate.brokers.redis.errors import translate
from babelgate.errors import BrokerError, BrokerRejected, BrokerUnavailable, ConfigError, OutcomeUnknown
from babelgate.jsontext import digits

SLICE_SECONDS = 1.0
"""The longest single wait for an element."""

OLDEST = (6, 2)
"""LPOP with a count, LMOVE and BLMOVE came with 6.2: https://redis.io/docs/latest/commands/blmove/"""

INDEX = b"babelgate:timed"
"""The index of all queues of a database that have something due."""

_CLOSE_SECONDS = 0.5

_NO_AOF = (
    "The append-only file is off (appendonly no): a message is as durable as the last snapshot, "
    "and an accepted message can be lost."
)
_EVERYSEC = (
    "The append-only file is flushed once a second (appendfsync {policy}): a power failure may lose the last second. "
    "appendfsync always closes that gap."
)
_AOF_FAILS = "The last write to the append-only file failed: see the server's log."
_EVICTS = "maxmemory-policy {policy} may evict queues when memory runs out: noeviction refuses writes instead."


class Script:
    """One of the scripts in ``lua/``, after the parts that it shares with others."""

    def __init__(self, name: str) -> None:
        folder = resources.files("babelgate.brokers.redis") / "lua"
        layouts = ("list",) if name.startswith("list_") else ("list", "laravel")
        files = ("common", *layouts, name)
        self.source = "".join((folder / f"{file}.lua").read_text("utf-8") for file in files).encode("utf-8")
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode("ascii")


@cache
def script(name: str) -> Script:
    """The script of that name; read once."""
    made = Script(name)
    _sources[made.sha] = _sources[made.source] = made.source
    return made


_sources: dict[bytes, bytes] = {}
"""The texts of the scripts that were read, by what EVALSHA and EVAL are called with."""


class Server(Closable):
    """One Redis database. Connects when needed, and never repeats a command that may have been executed.

    A command, connecting included, takes at most ``timeout_seconds``, 0.1 s of grace and 0.5 s to disconnect; a script
    that the server does not know takes two.
    ``now`` is the time that scripts use, in seconds as text; empty stands for the server's own clock.
    """

    def __init__(
        self, broker: str, connector: Callable[[], AbstractConnection], timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.broker = broker
        self._connector = connector
        self._timeout_seconds = timeout_seconds
        self._shared: PipelinedConnection | None = None
        # Without a pause: a refused connection costs little, and a restarted server is found by the next command.
        self._connecting = SharedConnect(broker, self._connect)
        self._idle: list[PipelinedConnection] = []
        self._waiting: set[PipelinedConnection] = set()
        self.now = b""
        self.index = INDEX
        self.version: str | None = None
        """Of the server at the last connection, such as ``Redis 7.0.15``; None when INFO is forbidden."""

    async def call(self, *command: Any, late: Late | None = None) -> Any:
        """The reply. Raises BrokerUnavailable or OutcomeUnknown, and for an error reply its translation. ``late``: see
        :meth:`run`."""
        connection = self._shared
        if connection is not None and connection.alive:
            # The connection bounds this itself.
            reply = await connection.send(*command, late=late)
        else:
            reply = await self._first(command, late)
        return self._checked(reply, command) if isinstance(reply, Exception) else reply

    async def read(self, *command: Any) -> Any:
        """Like :meth:`call`, for a command that writes nothing: a lost reply is BrokerUnavailable."""
        try:
            return await self.call(*command)
        except OutcomeUnknown as error:
            raise nothing_written(error) from error

    async def run(self, name: str, queue: bytes, *arguments: Any, late: Late | None = None) -> Any:
        """The reply of a script on a queue's ready list. A script is repeated only when the server did not know it.

        ``late`` gets a reply that comes after this call has failed or was cancelled, and must undo what it brings. So
        a call with it has no effect when it has no reply in time: BrokerUnavailable.
        """
        return await self._run(script(name), b"2", queue, self.index, self.now, *arguments, late=late)

    async def make_due_ready(self, *arguments: Any) -> int:
        """Run the script that makes due messages ready in all queues of the index."""
        reply: int = await self._run(script("due_items"), b"1", self.index, self.now, *arguments)
        return reply

    async def wait(self, queue: bytes, seconds: float) -> bool:
        """Wait until the list ``queue`` has an element; False after ``seconds``, at most SLICE_SECONDS.

        Moves nothing. Each waited queue uses a connection of its own; their number is not bounded.
        """
        seconds = min(max(seconds, 0.001), SLICE_SECONDS)
        move = (b"BLMOVE", queue, queue, b"LEFT", b"LEFT", b"%.3f" % seconds)
        connection = self._idle_connection() or await self._dial_to_wait()
        self._waiting.add(connection)
        try:
            # From the head to the head: the element stays where it was, and no other waiter is woken.
            reply = await connection.send(*move)
        except OutcomeUnknown as error:
            raise nothing_written(error) from error
        except asyncio.CancelledError:
            # Its reply is still to come: no other command can use the connection before.
            await connection.close()
            raise
        finally:
            self._waiting.discard(connection)
            if connection.alive:
                self._idle.append(connection)
        return self._checked(reply, move) is not None

    async def open(self) -> None:
        """Connect, unless connected. Raises BrokerUnavailable, and ConfigError for a server that cannot be used."""
        self.closed = False
        if self._shared is None or not self._shared.alive:
            await self._connecting.connected()

    async def close(self) -> None:
        """Close all connections; idempotent. Later calls fail until :meth:`open`."""
        self.closed = True
        connections = [*self._idle, *self._waiting]
        try:
            await self._connecting.cancel(_CLOSE_SECONDS)
        finally:
            if self._shared is not None:
                connections.append(self._shared)
            self._shared = None
            self._idle.clear()
            if closing := [connection.close_soon() for connection in connections]:
                await asyncio.wait(closing)

    async def warnings(self) -> list[str]:
        """Sentences on durability and eviction, as far as the access list permits. Raises BrokerUnavailable."""
        facts = {**await self._info(b"persistence"), **await self._info(b"memory")}
        found = []
        if facts.get("aof_enabled") == "0":
            found.append(_NO_AOF)
        elif facts.get("aof_enabled") == "1":
            policy = await self._setting(b"appendfsync")
            if policy is not None and policy != "always":
                found.append(_EVERYSEC.format(policy=policy))
            if facts.get("aof_last_write_status") == "err":
                found.append(_AOF_FAILS)
        policy = facts.get("maxmemory_policy", "noeviction")
        # The queues' keys have no time to live, so the volatile policies leave them alone.
        if policy.startswith("allkeys") and facts.get("maxmemory") != "0":
            found.append(_EVICTS.format(policy=policy))
        return found

    async def _info(self, section: bytes) -> Mapping[str, str]:
        text = await self._allowed(b"INFO", section)
        return {} if text is None else _facts(text)

    async def _setting(self, name: bytes) -> str | None:
        pairs = await self._allowed(b"CONFIG", b"GET", name)
        return pairs[1].decode("utf-8", "replace") if pairs else None

    async def _allowed(self, *command: bytes) -> Any:
        """The reply, or None where an access list forbids the command."""
        try:
            return await self.read(*command)
        except BrokerRejected:
            return None

    async def _run(self, wanted: Script, *arguments: Any, late: Late | None = None) -> Any:
        try:
            return await self.call(b"EVALSHA", wanted.sha, *arguments, late=late)
        except BrokerError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.call(b"EVAL", wanted.source, *arguments, late=late)

    def _checked(self, reply: Any, command: Sequence[Any]) -> Any:
        if isinstance(reply, Exception):
            reason = denial_of(reply, command, _sources.get(command[1]) if len(command) > 1 else None)
            raise (translate(reply, self.broker) if reason is None else BrokerRejected(self.broker, reason)) from reply
        return reply

    async def _first(self, command: Sequence[Any], late: Late | None) -> Any:
        """Connect, and return the reply, which may be an error reply; all within ``timeout_seconds``."""
        self.check_open()
        until = asyncio.get_running_loop().time() + self._timeout_seconds
        try:
            async with asyncio.timeout_at(until):
                connection = await self._connecting.connected()
        except TimeoutError:
            reason = f"no connection within {self._timeout_seconds:g} s"
            raise BrokerUnavailable(broker=self.broker, reason=reason) from None
        reply = connection.send(*command, late=late)
        if not await _came(reply, until):
            kind = OutcomeUnknown if late is None else BrokerUnavailable
            raise kind(broker=self.broker, reason=f"no reply within {self._timeout_seconds:g} s")
        return reply.result()

    def _idle_connection(self) -> PipelinedConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                return connection
        return None

    async def _dial(self, reply_seconds: float) -> PipelinedConnection:
        return await connect(self.broker, self._connector(), CONNECT_SECONDS, reply_seconds)

    async def _dial_to_wait(self) -> PipelinedConnection:
        self.check_open()
        connection = await self._dial(2 * SLICE_SECONDS)
        if self.closed:
            # The close did not know of it.
            await connection.close()
            raise disconnecting(self.broker)
        return connection

    async def _connect(self) -> PipelinedConnection:
        until = asyncio.get_running_loop().time() + CONNECT_SECONDS
        connection = await self._dial(self._timeout_seconds)
        try:
            info = connection.send(b"INFO", b"server")
            if not await _came(info, until):
                reason = f"no answer to the first command within {CONNECT_SECONDS:g} s"
                raise BrokerUnavailable(broker=self.broker, reason=reason)
            self._check(info.result())
        except OutcomeUnknown as error:
            raise nothing_written(error) from error
        except BaseException:
            await connection.close()
            raise
        self._shared = connection
        return connection

    def _check(self, info: Any) -> None:
        """Refuse a cluster and a server older than OLDEST. One that forbids INFO is used without this check."""
        if isinstance(info, Exception):
            error = translate(info, self.broker)
            if isinstance(error, BrokerUnavailable):
                raise error
            return
        facts = _facts(info)
        # Valkey has names of its own, and beside them the version of Redis that it is compatible with.
        if "cluster" in (facts.get("redis_mode"), facts.get("server_mode")):
            reason = "the server runs in cluster mode, which is not supported: a message's keys must lie on one server"
            raise ConfigError(key=f"brokers.{self.broker}", reason=reason)
        version, valkey = facts.get("redis_version", ""), facts.get("valkey_version")
        if valkey:
            self.version = f"Valkey {valkey}"
        else:
            self.version = f"Redis {version}" if version else None
        numbers = tuple(number for part in version.split(".")[:2] if (number := digits(part)) is not None)
        if numbers and numbers < OLDEST:
            reason = f"the server is Redis {version}; {OLDEST[0]}.{OLDEST[1]} or newer is needed"
            raise ConfigError(key=f"brokers.{self.broker}", reason=reason)


def _facts(info: bytes) -> dict[str, str]:
    """The reply of INFO by name."""
    return dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)


async def _came(reply: asyncio.Future[Any], until: float) -> bool:
    """Whether ``reply`` is done by the loop's time ``until`` and a grace; otherwise it is cancelled."""
    try:
        return await finished(reply, until - asyncio.get_running_loop().time())
    finally:
        reply.cancel()
