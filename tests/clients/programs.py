"""The conformance programs of the clients, run as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.languages import LANGUAGES, Language

PATIENCE_SECONDS = 240
"""How long a test waits for a fact. An idle machine needs a few seconds."""

BY_NAME = {language.name: language for language in LANGUAGES}
each_language = pytest.mark.parametrize("language", LANGUAGES, ids=BY_NAME)


class Consumer:
    """The conformance program of a language that consumes ``queue``; its output goes to a file."""

    def __init__(
        self,
        language: Language,
        url: str,
        queue: str,
        folder: Path,
        lease_seconds: float,
        concurrency: int = 4,
        *,
        stream: bool = False,
    ) -> None:
        self._log = folder / f"{queue}.out"
        self._errors = folder / f"{queue}.err"
        with self._log.open("wb") as out, self._errors.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *language.run,
                    "consume",
                    queue,
                    str(lease_seconds),
                    str(concurrency),
                    *(["stream"] if stream else []),
                ],
                cwd=language.folder,
                env=os.environ | {"BABELGATE_URL": url},
                stdout=out,
                stderr=err,
            )

    def events(self) -> list[dict[str, Any]]:
        """What it printed; a line that is not whole yet is left out."""
        lines = self._log.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line]

    def handled(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["event"] == "handled"]

    def stop(self) -> None:
        """SIGTERM; it must end in order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.errors()
        assert self.events()[-1]["event"] == "stopped"

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")


def run(language: Language, url: str, *arguments: str) -> list[dict[str, Any]]:
    """What the conformance program prints."""
    done = subprocess.run(
        [*language.run, *arguments],
        cwd=language.folder,
        env=os.environ | {"BABELGATE_URL": url},
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line]


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
