"""The leases of the messages that a pusher has in flight: extended until they are settled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from babelgate.errors import BabelgateError, LeaseLost
from babelgate.gateway.authorization import Caller
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Extend, Message, Settlement
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

EXTEND_SHARE = 1 / 3
"""Leases are extended after this share of them, so that two more extends are tried before they end."""

log = get_logger(__name__)
_throttled = LogThrottle(log)


class Leases:
    """The leases of one queue that one pusher has; needs a running event loop."""

    def __init__(self, gateway: Gateway, caller: Caller, queue: str) -> None:
        self._gateway = gateway
        self._caller = caller
        self._queue = queue
        self._since: dict[str, float] = {}
        """The ack tokens, and the loop time of their last lease."""
        self._no_extend = asyncio.Event()
        """Set while no extend is in flight."""
        self._no_extend.set()

    def __len__(self) -> int:
        return len(self._since)

    @property
    def seconds(self) -> float:
        """The duration of a lease of the queue."""
        return self._gateway.router.route(self._queue).policy.lease_seconds

    def took(self, messages: Iterable[Message]) -> None:
        """Extend the leases of ``messages``, which were just received, from now on."""
        now = asyncio.get_running_loop().time()
        self._since.update((message.ack_token, now) for message in messages)

    def has(self, message: Message) -> bool:
        """Whether the lease lasts, as far as is known. Another process may have received a message without one."""
        since = self._since.get(message.ack_token)
        return since is not None and asyncio.get_running_loop().time() - since < self.seconds

    def forget(self, messages: Iterable[Message]) -> None:
        """Extend the leases of ``messages`` no more; idempotent."""
        for message in messages:
            self._since.pop(message.ack_token, None)

    async def let_go(self, tokens: Iterable[str]) -> None:
        """Extend these leases no more, and wait for an extend in flight: one that reaches the broker after the return
        of a message would lease it again. Waits for as long as the broker may take."""
        for token in tokens:
            self._since.pop(token, None)
        await self._no_extend.wait()

    async def keep(self) -> None:
        """Extend leases, all that are due in one call, until the call is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            lease = self.seconds
            # Twice as often, so that none is much older when it is extended.
            await asyncio.sleep(lease * EXTEND_SHARE / 2)
            now = loop.time()
            due = [token for token, since in self._since.items() if now - since >= lease * EXTEND_SHARE]
            if due:
                self._no_extend.clear()
                try:
                    await self._extend(due, lease, now)
                finally:
                    self._no_extend.set()

    async def _extend(self, due: Sequence[str], lease: float, now: float) -> None:
        extends = Settlement(extends=[Extend(due, lease)])
        try:
            results = await self._gateway.settle(self._caller, self._queue, extends)
        except BabelgateError as error:
            _throttled.warning("leases of pushes not extended", queue=self._queue, count=len(due), error=error)
            return
        except Exception:
            log.exception("leases of pushes not extended", queue=self._queue)
            return
        for token, result in zip(due, results, strict=True):
            if result.error is None and token in self._since:
                self._since[token] = now
            elif isinstance(result.error, LeaseLost):
                # The message is delivered again. Its post goes on: nothing can take it back.
                self._since.pop(token, None)
