"""The processes that serve beside this one, by name: workers of this gateway, and other gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from babelgate.gateway.authorization import OPERATORS, Caller

FRESH_SECONDS = 10.0
"""How long an answer is reused, however many pages show it."""


class Identity(Struct, frozen=True, omit_defaults=True):
    """A process that serves.

    ``incarnation``: random at each start. ``node``: its name in logs and journals, mostly that of its host.
    ``gateway``: the same for all workers of one gateway. ``started_at``: Unix ms. A process of an older version tells
    its incarnation only.
    """

    incarnation: str
    node: str = ""
    gateway: str = ""
    pid: int = 0
    version: str = ""
    started_at: int = 0


class ServingProcesses(Struct, frozen=True):
    """The processes that serve, by gateway and node, with the one that was asked; ``silent``: the addresses, or the
    names of the sockets, of peers that gave no answer within a second. ``own``: the incarnation of the one that was
    asked. ``has_port`` False: it has no private port, so that it finds no peer."""

    processes: Sequence[Identity]
    silent: Sequence[str]
    own: str
    has_port: bool


class RollCall(Protocol):
    """Asks all peers who they are."""

    async def ask(self) -> tuple[Sequence[Identity], Sequence[str]]:
        """The peers, and the names of those that gave no answer; takes 3 s at most. Never raises."""


class Replicas:
    """``own``: this process; ``peers`` None: it has no private port."""

    def __init__(self, own: Identity, peers: RollCall | None = None) -> None:
        self.own = own
        self._peers = peers
        self._found: ServingProcesses | None = None
        self._asked_at = 0.0
        self._asking: asyncio.Task[ServingProcesses] | None = None

    async def serving(self, caller: Caller) -> ServingProcesses:
        """Who serves, at most FRESH_SECONDS old; takes 3 s at most. Raises Forbidden without the right to manage
        or observe some queue."""
        caller.require_anywhere(*OPERATORS)
        loop = asyncio.get_running_loop()
        if self._found is not None and loop.time() - self._asked_at < FRESH_SECONDS:
            return self._found
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> ServingProcesses:
        others, silent = ((), ()) if self._peers is None else await self._peers.ask()
        # Several addresses may lead to one process, and to this one.
        found = {each.incarnation: each for each in (*others, self.own)}
        processes = sorted(found.values(), key=lambda each: (each.node, each.gateway, each.pid, each.incarnation))
        self._found = ServingProcesses(processes, sorted(silent), self.own.incarnation, self._peers is not None)
        self._asked_at = asyncio.get_running_loop().time()
        return self._found
