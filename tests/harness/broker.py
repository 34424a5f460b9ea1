"""A real broker as the contract suites need it: what each harness provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from app.brokers import registry
from app.brokers.binding import Binding, QueueStats
from app.clock import now_ms


class Broker(ABC):
    """One running broker. ``name`` and ``url`` are what a configuration would say of it.

    ``queue_options``: the options of an ordinary route. ``header_options``: those of a route whose messages carry
    native headers, None where there is no such thing. ``impatient``: broker options that shorten the patience with a
    broker that does not answer. ``embedded``: it lives in the gateways' own processes, so that a restart is theirs.
    ``merges_equal_bodies``: of several messages that are equal to the byte it leases or delays one. ``untold``: the
    counts of a queue that it cannot tell, and ``expiries`` where it cannot tell why a message comes again.
    ``purges_delayed``: a purge reaches the delayed messages of a queue.
    """

    name: ClassVar[str]
    embedded: ClassVar[bool] = False
    merges_equal_bodies: ClassVar[bool] = False
    untold: ClassVar[frozenset[str]] = frozenset()
    purges_delayed: ClassVar[bool] = True
    queue_options: Mapping[str, Any] = {}
    header_options: Mapping[str, Any] | None = None
    impatient: Mapping[str, Any] = {}

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the broker."""

    def connect(self, options: Mapping[str, Any] | None = None) -> Binding:
        """A binding of its own, as another process would have it; not yet open."""
        return registry.connect(self.name, self.url, options or {}, now_ms)

    def tells(self, stats: QueueStats, **counts: int) -> bool:
        """Whether ``stats`` says so, and nothing of what the broker cannot tell."""
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

    @abstractmethod
    async def dead(self, queue: str) -> Sequence[bytes]:
        """The dead-letter records as the broker stores them, oldest first."""
