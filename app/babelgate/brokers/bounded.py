"""Bounds the time of calls to a broker: see :class:`babelgate.brokers.binding.Binding`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from babelgate.brokers.errors import Translate
from babelgate.errors import BabelgateError, BrokerError, BrokerUnavailable, OutcomeUnknown
from babelgate.runtime.background import error_seen

PING_SECONDS = 2.0
WARNINGS_SECONDS = 2.0
OPEN_SECONDS = 5.0
GRACE_SECONDS = 0.1
"""How much longer an answer is waited for: this process may have stood still, with the answer unread in a socket."""

Result = TypeVar("Result")


async def finished(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for ``future`` for ``seconds`` and GRACE_SECONDS; return whether it is done. Cancels nothing."""
    await asyncio.wait((future,), timeout=max(seconds, 0))
    if not future.done():
        await asyncio.wait((future,), timeout=GRACE_SECONDS)
    return future.done()


async def within(
    seconds: float,
    broker: str,
    call: Awaitable[Result],
    late: Callable[[str, str], BrokerError] = BrokerUnavailable,
) -> Result:
    """The result of ``call``, or its error. Raises ``late`` when it has none within ``seconds``.

    The bound includes the grace. A call without an answer is cancelled, and so it is when the caller is cancelled;
    neither waits until the cancelled call has ended.
    """
    task = asyncio.ensure_future(call)
    task.add_done_callback(error_seen)
    try:
        if await finished(task, seconds - GRACE_SECONDS):
            return task.result()
    finally:
        task.cancel()
    raise late(broker, f"no answer within {seconds:g} s")


class answering:
    """Bound a block to ``seconds``, and raise the errors of a client in it as those of this project.

    After that it raises BrokerUnavailable, or OutcomeUnknown where something may have been ``written``, with
    ``reason``. The bound, which is what the block gets, can be rescheduled. A class takes fewer steps than a generator:
    each reserve has such a block.
    """

    def __init__(
        self, seconds: float, translate: Translate, broker: str, *, written: bool = False, reason: str | None = None
    ) -> None:
        self._bound = asyncio.timeout(seconds)
        self._translate = translate
        self._broker = broker
        self._written = written
        self._reason = reason or f"no answer within {seconds:g} s"

    async def __aenter__(self) -> asyncio.Timeout:
        return await self._bound.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._bound.__aexit__(kind, error, traceback)
            if isinstance(error, TimeoutError):
                raise error
        except TimeoutError:
            late = OutcomeUnknown if self._written else BrokerUnavailable
            raise late(self._broker, self._reason) from None
        if isinstance(error, Exception) and not isinstance(error, BabelgateError):
            raise self._translate(error, self._broker, written=self._written) from error


async def signalled(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, for at most ``seconds``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
