"""The toy broker: a directory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from babelgate.brokers.binding import Binding, DeadStore, Outgoing
from babelgate.brokers.projection import NativeHeader, NativeWrite
from tests.harness.broker import EmbeddedBroker, Variant


class ToyBroker(EmbeddedBroker):
    """The directory ``toys``."""

    kind = "toy"
    sample = "toy:///sample"
    name = "toys"
    impatient: Mapping[str, Any] = {"timeout_seconds": 0.5}

    @property
    def url(self) -> str:
        return f"toy://{self.directory}/toys"

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """A file stands where the directory was."""
        toys, away = self.directory / "toys", self.directory / "away"
        toys.rename(away)
        toys.touch()
        yield
        toys.unlink()
        away.rename(toys)

    async def inject(self, queue: str, *bodies: bytes) -> None:
        binding: Binding = self.connect()
        await binding.publish(binding.native_queue(queue, {}), [Outgoing(body) for body in bodies])

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        """From the files."""
        files = sorted((self.directory / "toys" / queue).glob("*.message"))
        messages = [each.read_bytes().partition(b"\n") for each in files]
        given = {"delay_seconds": 3600.5} if delayed else {}
        return [
            NativeWrite(
                "publish",
                {"queue": queue},
                given,
                {name: NativeHeader("text", value) for name, value in json.loads(headers).items()},
                body,
            )
            for headers, _, body in messages
        ]

    async def dead(self, queue: str) -> Sequence[bytes]:
        binding = self.connect()
        assert isinstance(binding, DeadStore)
        records, _ = await binding.read_dead(binding.native_queue(queue, {}), None, 1000)
        return [record.body for record in records]


VARIANTS = (Variant("toy", ToyBroker, column="Toy"),)
