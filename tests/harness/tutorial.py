"""The tutorial in docs/tutorial: its blocks, and what a reader does with the programs of one language."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import httpx

T = TypeVar("T")
FOLDER = Path(__file__).resolve().parents[2] / "docs/tutorial"
GATEWAY_URL = "http://127.0.0.1:8080"
NAMES = ("publish", "receive", "worker", "strict", "letters")
"""The programs of each language, in the order of the pages."""
RABBIT_URL = "amqp://guest:guest@127.0.0.1:5672/"
ADA = "ada@example.com"
PATIENCE_SECONDS = 240
"""How long a fact may take on a busy machine."""


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of one language on a page, such as ``1-first-message``, with those in tabs."""
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    return [str(found) for found in re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)]


def programs(kind: str, url: str) -> dict[str, str]:
    """The programs of one language by name. Only the address of the gateway is another one."""
    pages = ("1-first-message", "2-crash", "3-dead-letter")
    texts = [text for page in pages for text in blocks(page, kind)]
    assert len(texts) == len(NAMES) and all(GATEWAY_URL in text for text in texts)
    return {name: text.replace(GATEWAY_URL, url) for name, text in zip(NAMES, texts, strict=True)}


class Reader:
    """Somebody who follows the pages with the programs of one language, started by ``commands`` in ``folder``."""

    def __init__(
        self, commands: Mapping[str, Sequence[str | Path]], folder: Path, environ: Mapping[str, str], url: str
    ) -> None:
        self._commands = commands
        self._folder = folder
        self._environ = environ
        self._url = url
        self._started: list[subprocess.Popen[bytes]] = []

    def first_message(self) -> None:
        """Page 1, and page 4 again."""
        assert self._run("publish", ADA).startswith("stored as ")
        assert self._run("receive") == f"sending to {ADA}\n"

    def crash(self) -> None:
        """Page 2: the consumer is killed while it works, and another one does the work."""
        first, output = self._start("worker")
        (pid,) = _until(lambda: re.findall(r"^worker (\d+) is ready$", output.read_text(), re.M), output)
        self._run("publish", ADA)
        _until(lambda: f"sending to {ADA}\n" in output.read_text(), output)
        subprocess.run(["kill", "-9", pid], check=True)
        first.wait(PATIENCE_SECONDS)
        second, output = self._start("worker")
        _until(lambda: f"sent to {ADA}\n" in output.read_text(), output)
        self._stop(second, output)
        assert self._depth() == 0

    def dead_letter(self) -> None:
        """Page 3: a message is rejected, found and sent back."""
        consumer, output = self._start("strict")
        self._run("publish", "ada")
        with httpx.Client(base_url=self._url, timeout=60) as client:
            _until(lambda: client.get("/queues/emails/dead-letters").json()["dead_letters"], output)
        printed = self._run("letters")
        assert printed == "failed: ada is no address\n", printed
        assert self._run("letters", ADA) == f"failed: ada is no address\nsent back for {ADA}\n"
        _until(lambda: f"sending to {ADA}\n" in output.read_text(), output)
        self._stop(consumer, output)
        assert self._run("letters") == ""
        assert self._depth() == 0

    def close(self) -> None:
        """End what still runs."""
        for process in self._started:
            process.kill()
            process.wait()

    def _run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [*self._commands[name], *arguments],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, (name, done.stdout + done.stderr)
        return done.stdout

    def _start(self, name: str) -> tuple[subprocess.Popen[bytes], Path]:
        output = self._folder / f"{name}{len(self._started)}.out"
        # Ctrl-C ends it, whatever the process that runs the tests makes of the signal.
        command = ["env", "--default-signal=INT", *self._commands[name]]
        with output.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._environ, stdout=out, stderr=subprocess.STDOUT
            )
        self._started.append(process)
        return process, output

    def _stop(self, process: subprocess.Popen[bytes], output: Path) -> None:
        """As Ctrl-C does; what it works on is finished."""
        process.send_signal(signal.SIGINT)
        # A JVM that a signal has ended says so.
        assert process.wait(PATIENCE_SECONDS) in (0, 130), output.read_text()

    def _depth(self) -> int:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            stats: dict[str, int] = client.get("/queues/emails").json()["stats"]
        return stats["depth"] + stats["in_flight"] + stats["delayed"]


def _until(fact: Callable[[], T], output: Path) -> T:
    """Wait for a fact that is true, and return it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := fact()):
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.1)
    return found
