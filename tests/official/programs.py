"""Programs around the official clients of brokers, which publish and consume a JSON object a line.

A program is one file: ``go/<broker>/main.go``, a class of ``java``, ``node/<broker>.js`` or ``python/<broker>.py``.
What all programs of a language have in common is in its ``official`` file. ``python -m tests.official.programs`` builds
them once into ``.brokers``; the tests only run them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness.archives import ARTEMIS, BROKERS, KAFKA, PULSAR, fetch_jars
from tests.harness.ci import missing
from tests.harness.java import SMALL, java
from tests.harness.world import LIMIT_SECONDS

_SOURCES = Path(__file__).parent
_ROOT = _SOURCES.parents[1]
_HOME = BROKERS / "official"
_JARS = _HOME / "jars"
_CLASSES = {
    "artemis": ("Artemis", f"{ARTEMIS}/*"),
    "kafka": ("Kafka", f"{KAFKA}/*"),
    "pulsar": ("Pulsar", f"{PULSAR}/lib/*"),
    "rabbitmq": ("RabbitMq", ""),
    "servicebus": ("ServiceBus", ""),
}
"""The class around each broker's client for Java, and the jars of a client that comes with the server."""

_GO = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}


class Foreign(NamedTuple):
    """A message as the client for another language has it.

    ``headers``: a client reads a value that is no text as a text that begins with the type. ``properties``: native ones
    by the names of the broker's projection. ``odd``: it is published with headers of all the types that the client has.
    """

    payload: bytes
    headers: Mapping[str, Any] = {}
    properties: Mapping[str, str | None] = {}
    odd: bool = False


def build() -> None:
    """Build the programs of each language, unless they are here. Those of a missing language are left out: the tests
    find them missing."""
    _HOME.mkdir(parents=True, exist_ok=True)
    if shutil.which("go") and not _is_built("go"):
        command = ["go", "build", "-o", f"{_HOME / 'go'}/", *(f"./{kind}" for kind in (*_CLASSES, "cloudevents"))]
        _run(command, _SOURCES / "go", _GO)
        _keep("go")
    if shutil.which("mvn") and shutil.which("javac") and not _is_built("java"):
        fetch_jars(_SOURCES / "java" / "pom.xml", _JARS)
        path = ":".join([f"{_JARS}/*", *(jars for _, jars in _CLASSES.values() if jars)])
        sources = sorted(map(str, (_SOURCES / "java").glob("*.java")))
        _run(["javac", "-cp", path, "-d", str(_HOME / "java"), *sources], _HOME)
        _keep("java")
    if shutil.which("npm") and not _is_built("node"):
        shutil.rmtree(_HOME / "node", ignore_errors=True)
        shutil.copytree(_SOURCES / "node", _HOME / "node")
        _run(["npm", "ci", "--silent", "--ignore-scripts"], _HOME / "node")
        _keep("node")


def built(language: str) -> Path:
    """The folder of the programs of a language, which must have been built."""
    if not _is_built(language):
        missing(f"a program around a client for {language}", "run `python -m tests.official.programs`")
    return _HOME / language


def _run(command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, env=environ, check=True)


def _is_built(language: str) -> bool:
    built = _HOME / f"{language}.built"
    return built.is_file() and built.read_text() == _digest(language)


def _keep(language: str) -> None:
    (_HOME / f"{language}.built").write_text(_digest(language))


def _digest(language: str) -> str:
    found = hashlib.sha256()
    for path in sorted((_SOURCES / language).rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


@asynccontextmanager
async def _running(command: Sequence[str | Path]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that succeeds, and that does not outlive a test."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, stdin=pipe, stdout=pipe, limit=2**24)
    try:
        yield process
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Consumer:
    """A consumer in a process of its own. ``messages``: what it got so far."""

    def __init__(self) -> None:
        self.messages: list[Foreign] = []
        self._changed = asyncio.Event()
        self._has_ended = False

    async def take(self, count: int) -> list[Foreign]:
        """Wait until it got ``count`` messages; all that it got. Fails when it ended before, or after LIMIT_SECONDS."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(self.messages) < count:
                assert not self._has_ended, f"{len(self.messages)} of {count} messages came"
                self._changed.clear()
                await self._changed.wait()
        return self.messages

    async def read(self, output: asyncio.StreamReader) -> None:
        """Read what the process prints, until it ends."""
        async for line in output:
            made = json.loads(line)
            self.messages.append(Foreign(base64.b64decode(made["payload"]), made["headers"], made["properties"]))
            self._changed.set()
        self._has_ended = True
        self._changed.set()


class Official(NamedTuple):
    """The official client of a broker (its kind) for a language, and the URL that it uses."""

    kind: str
    language: str
    url: str

    def _command(self, verb: str, queue: str, *more: str) -> Sequence[str | Path]:
        if self.language != "python":
            built(self.language)
        match self.language:
            case "go":
                program: Sequence[str | Path] = [_HOME / "go" / self.kind]
            case "java":
                name, jars = _CLASSES[self.kind]
                path = ":".join(filter(None, [str(_HOME / "java"), jars, f"{_JARS}/*"]))
                program = [java(), *SMALL, "-Xmx256m", "-cp", path, name]
            case "node":
                program = ["node", _HOME / "node" / f"{self.kind}.js"]
            case _:
                program = [sys.executable, "-m", f"tests.official.python.{self.kind}"]
        return [*program, verb, self.url, queue, *more]

    async def produce(self, queue: str, *messages: Foreign, more: Sequence[str] = ()) -> None:
        """Publish messages. ``more``: arguments of the program."""
        lines = [json.dumps(each._asdict() | {"payload": base64.b64encode(each.payload).decode()}) for each in messages]
        async with _running(self._command("produce", queue, *more)) as process:
            await process.communicate("".join(f"{line}\n" for line in lines).encode())

    @asynccontextmanager
    async def consuming(self, queue: str, verb: str = "consume") -> AsyncIterator[Consumer]:
        """A consumer that acknowledges what it gets. ``return``: it gives back one message as failed, and ends.
        ``reject``: it rejects one for ever, and ends."""
        consumer = Consumer()
        async with _running(self._command(verb, queue)) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            reading = asyncio.create_task(consumer.read(process.stdout))
            try:
                yield consumer
                if verb == "consume":
                    process.stdin.write(b"\n")
                    await process.stdin.drain()
                await reading
            finally:
                reading.cancel()

    async def take(self, queue: str, count: int) -> list[Foreign]:
        """What a consumer gets that ends after ``count`` messages."""
        async with self.consuming(queue) as consumer:
            return await consumer.take(count)

    async def settle(self, queue: str, verb: str) -> Foreign:
        """The message that it has returned or rejected."""
        async with self.consuming(queue, verb) as consumer:
            (message,) = await consumer.take(1)
        return message


if __name__ == "__main__":
    build()
