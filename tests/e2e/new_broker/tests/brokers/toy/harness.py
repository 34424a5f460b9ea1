"""The toy broker: a file."""

from __future__ import annotations

import contextlib
import fcntl
import pickle
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from babelgate.brokers.binding import Binding, DeadStore, Outgoing
from babelgate.brokers.projection import NativeHeader, NativeWrite
from tests.harness.broker import EmbeddedBroker, Variant


class ToyBroker(EmbeddedBroker):
    """The file ``toys``."""

    kind = "toy"
    sample = "toy:///sample"
    name = "toys"
    impatient: Mapping[str, Any] = {"timeout_seconds": 0.5}

    @property
    def url(self) -> str:
        return f"toy://{self.directory}/toys"

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Another program holds the lock."""
        with (self.directory / "toys.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    async def inject(self, queue: str, *bodies: bytes) -> None:
        binding: Binding = self.connect()
        await binding.publish(binding.native_queue(queue, {}), [Outgoing(body) for body in bodies])

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        """From the pickled file."""
        path = self.directory / "toys"
        messages = pickle.loads(path.read_bytes())[queue].messages if path.exists() else []
        given = {"delay_seconds": 3600.5} if delayed else {}
        return [
            NativeWrite(
                "publish",
                {"queue": queue},
                given,
                {name: NativeHeader("text", value) for name, value in message.headers.items()},
                message.body,
            )
            for message in messages
        ]

    async def dead(self, queue: str) -> Sequence[bytes]:
        binding = self.connect()
        assert isinstance(binding, DeadStore)
        records, _ = await binding.read_dead(binding.native_queue(queue, {}), None, 1000)
        return [record.body for record in records]


VARIANTS = (Variant("toy", ToyBroker, column="Toy"),)
