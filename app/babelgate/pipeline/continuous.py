"""What endless runs share: options, stop signals, the file that shows they are alive, pauses after a failure."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from babelgate.pipeline.spark.console import say

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0


@dataclass(frozen=True)
class Continuous:
    """The options of an endless run. ``alive``: a file that is touched after each round."""

    interval_seconds: float
    alive: Path | None = None


class Service:
    """An endless run of ``job``, between its beginning and a stop signal."""

    def __init__(self, job: str, options: Continuous, stop: threading.Event) -> None:
        self._job = job
        self._options = options
        self._stop = stop
        self._pause = _FIRST_PAUSE_SECONDS
        self._has_warned = False

    @property
    def is_stopping(self) -> bool:
        """Whether SIGTERM or SIGINT has come."""
        return self._stop.is_set()

    def round_done(self) -> None:
        """Touch the file of ``alive``, and forget former failures."""
        self._pause = _FIRST_PAUSE_SECONDS
        self._touch()

    def wait(self) -> None:
        """Wait for the next round, or until a stop signal."""
        self._stop.wait(self._options.interval_seconds)

    def wait_after(self, reason: str) -> None:
        """Say why a round failed, and wait: 1 s, each time twice as long, at most 15 s, or until a stop signal.

        The file of ``alive`` is touched, too: a restart would not help.
        """
        say(f"{self._job}: {reason.rstrip('.')}. Trying again in {self._pause:.0f} s.")
        self._touch()
        self._stop.wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def _touch(self) -> None:
        if self._options.alive is not None:
            try:
                self._options.alive.touch()
                self._has_warned = False
            except OSError as error:
                # Whoever watches the file decides whether this process is started anew.
                if not self._has_warned:
                    say(f"warning: {self._job}: --alive was not touched: {error}")
                self._has_warned = True


@contextmanager
def serving(job: str, options: Continuous) -> Iterator[Service]:
    """An endless run, which SIGTERM and SIGINT stop during the block."""
    with stop_signals() as stop:
        yield Service(job, options, stop)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set during the block. Outside the main thread nothing sets it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
