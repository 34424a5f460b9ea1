"""What endless runs share: options, stop signals, the file that shows they are alive, pauses after a failure."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from babelgate.pipeline.errors import Hopeless
from babelgate.pipeline.spark.console import say
from babelgate.pipeline.spark.launch import has_ended, reason_of

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0
_PAUSE_SHARE = 0.5
"""The shortest pause, as a part of the time that the round before it took.

A round that takes as long as the interval would otherwise be followed by the next one at once, also with nothing new:
it would use a core all the time, and single runs, ``maintain`` and ``erase`` would find its lock free only by chance.
"""


@dataclass(frozen=True)
class Continuous:
    """The options of an endless run. ``interval_seconds``: from the beginning of a round to that of the next.
    ``alive``: a file that is touched after each round."""

    interval_seconds: float
    alive: Path | None = None


class Service:
    """An endless run of ``job``, between its beginning and a stop signal."""

    def __init__(
        self, job: str, options: Continuous, stop: threading.Event, now: Callable[[], float] = time.monotonic
    ) -> None:
        """``now``: seconds, by a clock that only goes on."""
        self.interval_seconds = options.interval_seconds
        self._job = job
        self._options = options
        self._stop = stop
        self._now = now
        self._pause = _FIRST_PAUSE_SECONDS
        self._has_warned = False

    @property
    def is_stopping(self) -> bool:
        """Whether SIGTERM or SIGINT has come."""
        return self._stop.is_set()

    def repeat(self, attempt: Callable[[], object], check: Callable[[], object] = lambda: None) -> None:
        """Call ``attempt`` until a stop signal, with a pause after each. One that fails is repeated after a pause.

        The pause after a round is the rest of the interval; at least half as long as the round, at most the interval.
        ``check``: called after a failure; raises if another attempt would fail, too. Raises what ``check`` does,
        Hopeless, the error of a Java process that has ended, and errors that need their stack trace.
        """
        while not self.is_stopping:
            began = self._now()
            try:
                attempt()
            except Hopeless:
                raise
            except Exception as error:
                if has_ended(error):
                    raise
                check()
                reason = reason_of(error)
                if reason is None:
                    raise
                self.wait_after(reason)
            else:
                self.round_done()
                self._stop.wait(self._pause_after(self._now() - began))

    def _pause_after(self, round_seconds: float) -> float:
        rest = self.interval_seconds - round_seconds
        return min(max(rest, _PAUSE_SHARE * round_seconds), self.interval_seconds)

    def round_done(self) -> None:
        """Touch the file of ``alive``, and forget former failures."""
        self._pause = _FIRST_PAUSE_SECONDS
        self._touch()

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
                # Whoever watches the file decides whether this process is started again.
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
