"""A real broker as the tests use it: what the harness of each broker provides."""

from __future__ import annotations

import asyncio
import copy
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from babelgate.brokers import registry
from babelgate.brokers.binding import Binding, QueueStats
from babelgate.brokers.capabilities import BrokerCapabilities, Report
from babelgate.brokers.idempotency_store import KeepsKeys
from babelgate.brokers.projection import NativeWrite
from babelgate.clock import Clock, now_ms
from tests.harness.proxy import Proxy, proxy

OpenBinding = TypeVar("OpenBinding", bound=Binding)


class Broker(ABC):
    """One running broker.

    ``kind`` is its package below ``babelgate.brokers``, ``sample`` a URL that is never connected to, ``name`` the
    broker's name in a configuration.

    - ``embedded``: it runs in the gateways' own processes, so restarting it means restarting them.
    - ``queue_options``: the options of an ordinary route.
    - ``impatient``: broker options that shorten its time-outs.
    - ``costs_durability``: its server takes several times the CPU where what it confirmed survives a kill.

    What a user meets of a broker is in its capabilities. Only tests need to know the rest:

    - ``merges_equal_bodies``: it leases or delays only one of several messages that are equal to the byte.
    - ``repeats_writes``: its client repeats a write without an answer; the broker stores a repeated publish once.
    - ``spare_seconds``: how long after its lease a message of a killed process may come again.
    - ``unrenewed_seconds``: how long a lease lasts at least that the process cannot prolong at the broker.
    - ``crowd``: the most waiting clients, or dead letters, that its server serves in the time of a test.
    - ``far_delay``: the delay, in seconds, of a message that is looked at while it is delayed, or, where no client sees
      it before, once it is due.
    """

    kind: ClassVar[str]
    sample: ClassVar[str]
    name: ClassVar[str]
    embedded: ClassVar[bool] = False
    merges_equal_bodies: ClassVar[bool] = False
    repeats_writes: ClassVar[bool] = False
    costs_durability: ClassVar[bool] = False
    spare_seconds: ClassVar[float] = 0
    unrenewed_seconds: ClassVar[float] = math.inf
    crowd: ClassVar[int] = 1000
    far_delay: ClassVar[float] = 3600.5
    queue_options: Mapping[str, Any] = {}
    impatient: Mapping[str, Any] = {}

    @abstractmethod
    def __init__(self, server: Any, queue_options: Mapping[str, Any]) -> None:
        """``server`` is what :meth:`serve` yields."""

    @staticmethod
    @abstractmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Any]:
        """Start a server that keeps its data in ``directory``; skip the test if the broker is not installed.

        ``durable``: what it confirmed survives a kill, even if that makes it slower.
        """

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the broker."""

    def route(self, broker: str = "main") -> Mapping[str, Any]:
        """An ordinary route in a configuration that calls it ``broker``."""
        return {"broker": broker, **self.queue_options}

    def connect(self, options: Mapping[str, Any] | None = None, clock: Clock = now_ms) -> Binding:
        """A binding of its own, as another process would have it; not yet open."""
        return registry.connect(self.name, self.url, options or {}, clock)

    @property
    def header_options(self) -> Mapping[str, Any] | None:
        """The options of a route whose messages carry native headers; None if there is none."""
        return self.queue_options

    @property
    def priority_options(self) -> Mapping[str, Any]:
        """The options of a route whose messages have priorities, if the broker has any."""
        return self.queue_options

    @cached_property
    def capabilities(self) -> BrokerCapabilities:
        """Those of an ordinary route."""
        binding = self.connect()
        return binding.capabilities(binding.native_queue("sample", self.queue_options))

    @property
    def reports(self) -> frozenset[Report]:
        return self.capabilities.reports

    @property
    def binds_leases(self) -> bool:
        """Whether a lease ends with the connection of its process, or with that of the broker."""
        return self.capabilities.lease_bound_to == "connection"

    @property
    def shares_deadlines(self) -> bool:
        """Whether its processes compare the deadlines of leases by the wall clock of their machine."""
        return self.embedded and self.capabilities.lease_bound_to is None

    def tells(self, stats: QueueStats, **counts: int) -> bool:
        """Whether ``stats`` says so, and nothing of what the broker cannot report."""
        for kind, count in self.capabilities.counted_as.items():
            if {kind, count} <= counts.keys():
                # Messages of this kind may be in either count.
                together = counts[kind] + counts.pop(count)
                if (getattr(stats, kind) or 0) + (getattr(stats, count) or 0) != together:
                    return False
                if kind in self.reports:
                    del counts[kind]
        reported = {"depth", "dead", *self.reports}
        expected = {name: count if name in reported else None for name, count in counts.items()}
        return expected == {name: getattr(stats, name) for name in counts}

    @abstractmethod
    async def restart(self) -> None:
        """Stop in good order and start again on the same data."""

    @abstractmethod
    async def kill(self) -> None:
        """Stop as a power cut would, and start again on the same data."""

    @abstractmethod
    def outage(self) -> AbstractAsyncContextManager[None]:
        """While it lasts the broker takes no writes."""

    @abstractmethod
    def hung(self) -> AbstractAsyncContextManager[None]:
        """While it lasts the broker takes connections and bytes, and does not answer."""

    @abstractmethod
    async def inject(self, queue: str, *bodies: bytes) -> None:
        """Put ``bodies`` on the queue as a foreign program would, unchecked."""

    def carries(self, body: bytes) -> bool:
        """Whether any client could put ``body`` on a queue."""
        return True

    @abstractmethod
    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        """All that another client library finds of the queue's only message, ``delayed`` or not, in the form of a
        projection. What a client cannot see of a stored message is as a projection must show it."""

    @abstractmethod
    async def dead(self, queue: str) -> Sequence[bytes]:
        """The dead-letter records as the broker stores them, oldest first."""


class EmbeddedBroker(Broker):
    """A broker that keeps its data in a file of ``directory``; it has no server."""

    embedded = True

    def __init__(self, directory: Path, queue_options: Mapping[str, Any] | None = None) -> None:
        self.directory = directory
        self.queue_options = queue_options or {}

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Path]:
        return nullcontext(directory)

    async def restart(self) -> None:
        """There is no server to restart."""

    async def kill(self) -> None:
        """There is no server to kill."""

    def hung(self) -> AbstractAsyncContextManager[None]:
        """The same as an outage."""
        return self.outage()


@asynccontextmanager
async def opened(binding: OpenBinding) -> AsyncIterator[OpenBinding]:
    """``binding``, open until the end of the block, as one process has it."""
    try:
        await binding.open()
        yield binding
    finally:
        await binding.close()


class Server(Protocol):
    """A broker's process on this machine."""

    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int: ...
    def url(self) -> str: ...
    def start(self) -> None: ...
    def ensure(self) -> None:
        """Start or resume it, whatever the test before left of it."""

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class ServerBroker(Broker):
    """A broker with a server process; all clients share its state."""

    def __init__(self, server: Server, queue_options: Mapping[str, Any] | None = None) -> None:
        self.server = server
        self.queue_options = queue_options or {}
        self._port = server.port

    @property
    def url(self) -> str:
        return self.server.url().replace(f":{self.server.port}/", f":{self._port}/")

    def between(self) -> AbstractAsyncContextManager[Proxy]:
        """A running proxy in front of the server, for :meth:`behind`."""
        return proxy("127.0.0.1", self.server.port)

    def behind(self, proxy: Proxy) -> Self:
        """The same broker, reached through ``proxy``."""
        proxied = copy.copy(self)
        proxied._port = proxy.port
        return proxied

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.stop)
        await asyncio.to_thread(self.server.start)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """The server is stopped."""
        await asyncio.to_thread(self.server.stop)
        try:
            yield
        finally:
            await asyncio.to_thread(self.server.start)

    @asynccontextmanager
    async def hung(self) -> AsyncIterator[None]:
        """SIGSTOP, then SIGCONT."""
        self.server.pause()
        try:
            yield
        finally:
            self.server.resume()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use a broker: a parameter of tests.

    ``name`` is its id in tests: the broker's kind, with a suffix for every variant but the first. ``column`` is its
    title in the table of capabilities, None to leave it out. ``lost_replies`` and ``replicas`` let a variant take part
    in these slow tests; one that reads and writes as another variant does need not.
    """

    name: str
    broker: type[Broker]
    queue_options: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    lost_replies: bool = True
    replicas: bool = True

    def on(self, server: Any) -> Broker:
        """The broker on ``server``, which its class serves."""
        return self.broker(server, self.queue_options)

    @contextmanager
    def start(self, directory: Path) -> Iterator[Broker]:
        """A running broker of the caller's own, which it may stop and start."""
        with self.broker.serve(directory) as server:
            yield self.on(server)

    def binding(self) -> Binding:
        """A binding that is never opened, to look at its abilities."""
        return registry.connect("sample", self.broker.sample, {}, now_ms)

    @property
    def keeps_keys(self) -> bool:
        """Whether it can be the idempotency store."""
        return isinstance(self.binding(), KeepsKeys)
