"""Brokers written in Java: their jars out of Maven's cache, and a process on a port of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.ci import missing
from tests.harness.local import free_port, suspend

_READY_SECONDS = 300.0

SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of the virtual machine for a server that starts fast and needs few processors."""


def archive_of(home: Path) -> Path:
    """The archive of the classes that a server loads from the jars in ``home``."""
    return home / "classes.jsa"


def archived(home: Path) -> Sequence[str]:
    """Options of a start that takes half of the CPU time, once :func:`archive_classes` was called.

    Java ignores an archive of another Java.
    https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html#application-class-data-sharing
    """
    if not archive_of(home).exists():
        return ()
    return (f"-XX:SharedArchiveFile={archive_of(home)}", "-Xlog:disable", "-Xlog:all=error:stderr")


def archive_classes(home: Path, server: Callable[[Path], JavaServer]) -> None:
    """Write the archive of a server when it has started once; nothing where that was done before, and without Java or
    the server. Takes 20 s.

    A busy machine may give it too little time: then starts take as long as before, and standard error says so.
    """
    if home.exists() and shutil.which("java") and not archive_of(home).exists():
        with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "classes.jsa"
            running = server(Path(folder))
            running.options = (f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
            try:
                running.start()
                running.terminate()
                made.replace(archive_of(home))
            except (RuntimeError, FileNotFoundError) as error:
                print(f"{running.title}: no archive of its classes, because {error}", file=sys.stderr)


def java() -> str:
    """The program. Without it the test is skipped, or fails where nothing may be missing."""
    found = shutil.which("java")
    if found is None:
        missing("Java", "install the system's package openjdk-17-jre-headless")
    return found


class ServerProcess(ABC):
    """A server's process, and the port that clients use."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __getstate__(self) -> Mapping[str, Any]:
        """The server for another process, which uses it and does not end it."""
        return vars(self) | {"_process": None}

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def start(self) -> None:
        """Begin the service, unless it runs; returns when it answers."""

    def ensure(self) -> None:
        """Begin or resume the service."""
        if self._process is not None:
            self.resume()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers stop."""
        suspend(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class JavaServer(ServerProcess):
    """A server that keeps its data in ``directory``, so that it can be stopped or killed and started again."""

    title: str
    """Its name, for errors."""
    options: Sequence[str] | None = None
    """Options of Java for the server's own class path, instead of those of its archive."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments; called at each start, and may write files to ``directory`` before."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves clients; takes at most a few seconds."""

    def start(self) -> None:
        if self._process is None:
            # Without Java there is nothing to fetch either.
            java()
            log = self.directory / "server.log"
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    self.command(), cwd=self.directory, stdout=output, stderr=subprocess.STDOUT
                )
            deadline = time.monotonic() + _READY_SECONDS
            while not self.answers():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self.title} did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")
                time.sleep(0.02)

    def stop(self) -> None:
        """End the service."""
        self.terminate()

    def terminate(self) -> None:
        """SIGTERM, and SIGKILL when that takes a minute."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, sent: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(sent)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
