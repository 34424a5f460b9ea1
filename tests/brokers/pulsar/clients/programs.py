"""Programs around Pulsar's official clients for Go and Java, which publish and consume a JSON object a line.

``python -m tests.brokers.pulsar.clients.programs`` builds them once; the tests only run them. Java's client comes with
the server.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.brokers.pulsar.server import HOME as SERVER
from tests.harness.ci import missing
from tests.harness.java import BROKERS, SMALL, java
from tests.harness.world import LIMIT_SECONDS

LANGUAGES = ("go", "java")
COMPRESSIONS = {"go": ("NONE", "LZ4", "ZLIB", "ZSTD"), "java": ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")}
"""The client for Go has no Snappy."""

_SOURCES = Path(__file__).parent
_HOME = BROKERS / "pulsar-clients"
_BUILT = _HOME / "built"
_MEMORY = (*SMALL, "-Xmx256m")


class Foreign(NamedTuple):
    """A message as the client for another language has it."""

    payload: bytes
    properties: Mapping[str, str] = {}
    key: str = ""


def build() -> None:
    """Build the programs, unless they are here. Without Go or Java nothing is built: the tests find it missing."""
    if _is_built() or not (shutil.which("go") and shutil.which("javac")):
        return
    shutil.rmtree(_HOME, ignore_errors=True)
    (_HOME / "java").mkdir(parents=True)
    environ = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", _HOME / "go", "."], cwd=_SOURCES / "go", env=environ, check=True)
    java_source = _SOURCES / "java" / "Client.java"
    subprocess.run(["javac", "-cp", f"{SERVER}/lib/*", "-d", _HOME / "java", java_source], check=True)
    _BUILT.write_text(_digest())


def _is_built() -> bool:
    return _BUILT.is_file() and _BUILT.read_text() == _digest()


def _digest() -> str:
    found = hashlib.sha256()
    for path in sorted(_SOURCES.rglob("*.*")):
        if path.parent != _SOURCES and path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def _command(language: str) -> Sequence[str | Path]:
    if not _is_built():
        missing("a program around a client of Pulsar", "run `python -m tests.brokers.pulsar.clients.programs`")
    if language == "go":
        return [_HOME / "go"]
    return [java(), *_MEMORY, "-cp", f"{_HOME / 'java'}:{SERVER}/lib/*", "Client"]


async def produce(language: str, url: str, topic: str, compression: str, messages: Sequence[Foreign]) -> None:
    """Publish messages in batches of ten."""
    lines = [
        json.dumps({"payload": base64.b64encode(each.payload).decode(), "properties": each.properties, "key": each.key})
        for each in messages
    ]
    process = await asyncio.create_subprocess_exec(
        *_command(language), "produce", url, topic, compression, stdin=asyncio.subprocess.PIPE
    )
    await process.communicate("".join(f"{line}\n" for line in lines).encode())
    assert process.returncode == 0


class Consumer:
    """A consumer in a process of its own, which acknowledges what it gets. ``messages``: what it got so far."""

    def __init__(self) -> None:
        self.messages: list[Foreign] = []
        self._changed = asyncio.Event()

    async def take(self, count: int) -> list[Foreign]:
        """Wait until it got ``count`` messages; all that it got. Fails after LIMIT_SECONDS."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(self.messages) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.messages

    async def read(self, output: asyncio.StreamReader) -> None:
        """Read what the process prints, until it ends."""
        async for line in output:
            made = json.loads(line)
            self.messages.append(Foreign(base64.b64decode(made["payload"]), made["properties"] or {}, made["key"]))
            self._changed.set()


@asynccontextmanager
async def consuming(language: str, url: str, topic: str) -> AsyncIterator[Consumer]:
    """A consumer of the SDKs' subscription of ``topic``."""
    process = await asyncio.create_subprocess_exec(
        *_command(language),
        *("consume", url, topic),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    consumer = Consumer()
    reading = asyncio.create_task(consumer.read(process.stdout))
    try:
        yield consumer
        process.stdin.write(b"\n")
        await process.stdin.drain()
        await reading
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        reading.cancel()


if __name__ == "__main__":
    build()
