"""What the store of idempotency keys has yet to be told, tried again until it has heard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.brokers.idempotency_store import KeySettlement, KeyStore, Terms
from app.errors import BabelgateError
from app.observe.logs import get_logger
from app.runtime.backoff import Backoff

MAX_OWED = 10_000
"""Past so many a reservation is left as it is, and once its time is over its key is answered as cut off."""

_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0

log = get_logger("babelgate.idempotency")


class SettlementRetries:
    """Of one store. A message that was published is, whatever becomes of its key: nobody waits for a debt."""

    def __init__(self, broker: str, store: KeyStore, terms: Terms) -> None:
        self._broker = broker
        self._store = store
        self._terms = terms
        self._owed: list[KeySettlement] = []
        self._task: asyncio.Task[None] | None = None

    async def settle(self, settlings: Sequence[KeySettlement]) -> None:
        """Tell the store now; what it does not hear is owed."""
        try:
            if settlings:
                await self._store.settle(settlings, self._terms)
        except BabelgateError as error:
            log.warning("idempotency keys not settled", broker=self._broker, count=len(settlings), error=error)
            self.owe(settlings)

    def owe(self, settlings: Sequence[KeySettlement]) -> None:
        """Tell the store later."""
        left = max(MAX_OWED - len(self._owed), 0)
        if len(settlings) > left:
            log.error("idempotency keys left reserved", broker=self._broker, count=len(settlings) - left)
        self._owed += settlings[:left]
        if self._owed and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._repay())

    async def close(self) -> None:
        """One more try, of at most two seconds; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._owed:
            attempt = asyncio.ensure_future(self._store.settle(self._owed, self._terms))
            await asyncio.wait((attempt,), timeout=_CLOSE_SECONDS)
            if attempt.done() and attempt.exception() is None:
                self._owed = []
            else:
                log.error("idempotency keys left reserved", broker=self._broker, count=len(self._owed))
                attempt.cancel()

    async def _repay(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
        try:
            while self._owed:
                await asyncio.sleep(backoff.failed())
                trying = self._owed[:]
                try:
                    await self._store.settle(trying, self._terms)
                except BabelgateError:
                    continue
                del self._owed[: len(trying)]
        finally:
            self._task = None
