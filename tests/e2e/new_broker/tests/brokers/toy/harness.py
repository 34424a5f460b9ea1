"""The toy broker: a file."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.brokers.binding import Binding, DeadStore, Outgoing
from tests.harness.broker import Broker, Variant


class ToyBroker(Broker):
    """A file in ``directory``."""

    kind = "toy"
    sample = "toy:///sample"
    name = "toys"
    embedded = True
    header_options: Mapping[str, Any] | None = {}
    impatient: Mapping[str, Any] = {"timeout_seconds": 0.5}

    def __init__(self, directory: Path, queue_options: Mapping[str, Any] | None = None) -> None:
        self.path = directory / "toys"

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> contextlib.AbstractContextManager[Path]:
        return contextlib.nullcontext(directory)

    @property
    def url(self) -> str:
        return f"toy://{self.path}"

    async def restart(self) -> None:
        """Nothing of its own to restart."""

    async def kill(self) -> None:
        """Nothing of its own to kill."""

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Another program holds the lock."""
        with self.path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def hung(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The same as an outage."""
        return self.outage()

    async def inject(self, queue: str, *bodies: bytes) -> None:
        binding: Binding = self.connect()
        await binding.publish(binding.native_queue(queue, {}), [Outgoing(body) for body in bodies])

    async def dead(self, queue: str) -> Sequence[bytes]:
        binding = self.connect()
        assert isinstance(binding, DeadStore)
        records, _ = await binding.read_dead(binding.native_queue(queue, {}), None, 1000)
        return [record.body for record in records]


VARIANTS = (Variant("toy", ToyBroker, column="Toy"),)
