"""A real broker as the tests use it: what the harness of each broker provides."""

from __future__ import annotations

import asyncio
import copy
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
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from babelgate.brokers import registry
from babelgate.brokers.binding import Binding, QueueStats
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
    - ``merges_equal_bodies``: it leases or delays only one of several messages that are equal to the byte.
    - ``untold``: the counts of a queue that it cannot report; also ``expiries`` where it cannot report why a message
      is delivered again.
    - ``tells_expiries_elsewhere``: it reports an expired lease to any process that receives the message again.
    - ``counted_in_body``: the ends of a lease (``nack``, ``expire``) after which the body's own ``attempts`` is the
      count of the message; after the others the body stays as it is.
    - ``timed_members``: the members of a stored body that state the time of its publishing.
    - ``lists_queues``: whether it lists the queues that another process has used.
    - ``purges_delayed``: a purge removes the delayed messages of a queue too.
    - ``counts_give_backs``: it counts each receive, also of a message that is given back.
    - ``settles_late``: it lets a lease be settled after its deadline, until the message is delivered again.
    - ``spare_seconds``: how much longer than its lease it keeps a message from being delivered again.
    - ``repeats_acks``: a second ack is done again, also by a process that knows nothing of the first.
    - ``repeats_late_acks``: so it is after the deadline of the delivery, too, where the lease was extended elsewhere.
    - ``takes_old_receipts``: it settles by the receipt of an earlier delivery, too.
    - ``purges_leased``: a purge removes leased messages too.
    - ``counts_leased``: the depth that it reports has the leased messages in it.
    - ``blurs_delayed``: it counts a delayed message as a ready one until a consumer waits for messages.
    - ``binds_deliveries``: a lease ends with the connection of its process, although any process acks.
    - ``outlives_restarts``: the leases of a process outlive a restart of the broker.
    - ``repeats_writes``: its client repeats a write without an answer; the broker stores a repeated publish once.
    - ``peeks_leased``: a peek shows leased messages, too.
    - ``hides_delayed_retries``: a nacked message with a delay counts as leased until it is due.
    - ``may_count_stops``: when its server stops, it may count the messages that are leased as failed.
    - ``crowd``: the most waiting clients, or dead letters, that it serves in the time of a test.
    - ``far_delay``: the delay, in seconds, of a message that is looked at while it is delayed.
    - ``queue_options``: the options of an ordinary route.
    - ``header_options``: the options of a route whose messages carry native headers; None if there is none.
    - ``impatient``: broker options that shorten its time-outs.
    """

    kind: ClassVar[str]
    sample: ClassVar[str]
    name: ClassVar[str]
    embedded: ClassVar[bool] = False
    merges_equal_bodies: ClassVar[bool] = False
    untold: ClassVar[frozenset[str]] = frozenset()
    tells_expiries_elsewhere: ClassVar[bool] = True
    counted_in_body: ClassVar[frozenset[str]] = frozenset({"nack", "expire"})
    timed_members: ClassVar[Sequence[str]] = ()
    lists_queues: ClassVar[bool] = True
    purges_delayed: ClassVar[bool] = True
    counts_give_backs: ClassVar[bool] = False
    settles_late: ClassVar[bool] = False
    spare_seconds: ClassVar[float] = 0
    repeats_acks: ClassVar[bool] = True
    repeats_late_acks: ClassVar[bool] = True
    takes_old_receipts: ClassVar[bool] = False
    purges_leased: ClassVar[bool] = False
    counts_leased: ClassVar[bool] = False
    blurs_delayed: ClassVar[bool] = False
    binds_deliveries: ClassVar[bool] = False
    outlives_restarts: ClassVar[bool] = False
    repeats_writes: ClassVar[bool] = False
    peeks_leased: ClassVar[bool] = False
    hides_delayed_retries: ClassVar[bool] = False
    may_count_stops: ClassVar[bool] = False
    crowd: ClassVar[int] = 1000
    far_delay: ClassVar[float] = 3600.5
    queue_options: Mapping[str, Any] = {}
    header_options: Mapping[str, Any] | None = None
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

    def tells(self, stats: QueueStats, **counts: int) -> bool:
        """Whether ``stats`` says so, and nothing of what the broker cannot tell."""
        if self.counts_leased and "depth" in counts:
            counts["depth"] += counts.get("in_flight", 0)
        if self.blurs_delayed and {"depth", "delayed"} <= counts.keys():
            together = counts.pop("depth") + counts.pop("delayed")
            if (stats.depth or 0) + (stats.delayed or 0) != together:
                return False
        expected = {name: None if name in self.untold else count for name, count in counts.items()}
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
