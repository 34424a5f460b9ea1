"""Shares one attempt to connect among concurrent callers, pauses after a failed one, and replaces dead connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.runtime.backoff import Backoff

CONNECT_SECONDS = 4.0
"""How long connecting may take: with TLS and a login it takes many round trips. A call that waits for it ends after its
own time-out, and the attempt continues for the next call."""

_FIRST_PAUSE_SECONDS = 0.2
_LAST_PAUSE_SECONDS = 5.0

_LATE_LOOKS = 20
_LATE_SECONDS = 0.05
"""How often, and how far apart, an open connection is looked at after a new one was answered."""

Connection = TypeVar("Connection")
Result = TypeVar("Result")


async def shared_result(work: asyncio.Future[Result], broker: str) -> Result:
    """The result of ``work``, for which several callers wait; raises its error. A cancelled caller leaves it to them.

    Raises BrokerUnavailable where ``work`` was cancelled, because the binding of ``broker`` is closed.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if work.cancelled() and not (caller and caller.cancelling()):
            raise disconnecting(broker) from None
        raise


def disconnecting(broker: str) -> BrokerUnavailable:
    """The error of a call of a binding that is closed."""
    return BrokerUnavailable(broker, "the gateway disconnects")


class Closable:
    """A part of the binding of ``broker``, which is ``closed`` from a close until the binding is opened again."""

    broker: str
    closed = False

    def check_open(self) -> None:
        """Raise BrokerUnavailable while this is closed."""
        if self.closed:
            raise disconnecting(self.broker)


class ConnectPause:
    """The pause after a failed attempt to connect to a broker; several connections to one broker may share it."""

    def __init__(self) -> None:
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
        self._until = 0.0
        self._cause = ""

    @property
    def cause(self) -> str | None:
        """Why the last attempt failed, while the pause lasts; None when another attempt may begin."""
        return self._cause if asyncio.get_running_loop().time() < self._until else None

    def succeeded(self) -> None:
        """End the pause; the next one is the shortest again."""
        self._backoff.succeeded()
        self._until = 0.0

    def failed(self, error: BaseException) -> None:
        """Begin a pause, longer than the one before."""
        self._until = asyncio.get_running_loop().time() + self._backoff.failed()
        self._cause = str(getattr(error, "reason", error))


class SharedConnect(Generic[Connection]):
    """Connects to ``broker`` with ``connect``: at most one attempt at a time, which concurrent callers share.

    ``connect`` bounds its own time and translates its errors. With a ``pause`` a failed attempt is not repeated before
    the pause is over.
    """

    def __init__(
        self,
        broker: str,
        connect: Callable[[], Coroutine[Any, Any, Connection]],
        pause: ConnectPause | None = None,
    ) -> None:
        self._broker = broker
        self._connect = connect
        self._pause = pause
        self._attempt: asyncio.Task[Connection] | None = None

    @property
    def busy(self) -> bool:
        """Whether an attempt is under way."""
        return self._attempt is not None

    async def connected(self) -> Connection:
        """The connection of the attempt that is under way, or of a new one; raises its error.

        Raises BrokerUnavailable at once during the pause, and when :meth:`cancel` ends the attempt. A cancelled caller
        leaves the attempt to the others.
        """
        if self._attempt is None:
            if self._pause is not None and (cause := self._pause.cause) is not None:
                raise BrokerUnavailable(broker=self._broker, reason=cause)
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
            self._attempt.add_done_callback(self._ended)
        return await shared_result(self._attempt, self._broker)

    async def cancel(self, timeout_seconds: float) -> None:
        """Cancel the attempt that is under way; wait at most ``timeout_seconds`` until it has ended."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait((self._attempt,), timeout=timeout_seconds)

    def _ended(self, attempt: asyncio.Task[Connection]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        error = attempt.exception()
        if self._pause is None:
            return
        if error is None:
            self._pause.succeeded()
        else:
            self._pause.failed(error)


async def replaced(
    heard: Callable[[], int],
    connect: Callable[[], Awaitable[Connection]],
    replace: Callable[[Connection], None],
    discard: Callable[[Connection], None],
) -> None:
    """Connect again, because an open connection gave no answer.

    When the broker accepts a new connection and nothing has arrived on the old one meanwhile, nor in the second after,
    the peer of the old one has vanished: ``replace`` it. Otherwise ``discard`` the new one, because the end of a
    connection may end its leases. ``heard`` counts what arrives on the old connection. ``connect`` bounds its own time.
    Raises no BabelgateError.
    """
    before = heard()
    try:
        made = await connect()
    except BabelgateError:
        return
    end = discard
    try:
        # A broker that goes on after a pause may answer the new connection first.
        for _ in range(_LATE_LOOKS):
            if heard() != before:
                return
            await asyncio.sleep(_LATE_SECONDS)
        end = replace
    finally:
        end(made)
