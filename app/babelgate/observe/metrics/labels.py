"""Chooses the queues that have a label of their own: the first ones that any worker of a gateway has seen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from babelgate.observe.logs import get_logger

MAX_QUEUES = 1000
"""Queues with their own label; all others share ``_other``, because a time series is never freed."""

log = get_logger(__name__)


class QueueLabels:
    """The queues of one process, or with ``file`` of all workers that use the file.

    The file has one name per line; the first MAX_QUEUES different ones are chosen. Each worker appends a name that it
    does not find, in one write, and reads what the others have appended. So all workers make the same choice without a
    lock, and a worker does this once for each chosen queue.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._chosen: dict[str, None] = {}
        self._offset = 0
        self._is_writable = True

    @property
    def chosen(self) -> Iterable[str]:
        """The chosen queues that are known here."""
        return self._chosen

    @property
    def is_full(self) -> bool:
        """Whether no further queue gets a label."""
        return len(self._chosen) >= MAX_QUEUES or not self._is_writable

    def __contains__(self, queue: str) -> bool:
        return queue in self._chosen

    def choose(self, queue: str) -> bool:
        """Choose ``queue`` if there is room; return whether it is chosen. Does I/O only while there is room."""
        if queue in self._chosen:
            return True
        if self.is_full:
            return False
        if self._file is None:
            self._chosen[queue] = None
            return True
        self.refresh()
        if queue not in self._chosen and not self.is_full:
            self._append(self._file, queue)
            self.refresh()
        return queue in self._chosen

    def refresh(self) -> None:
        """Read the names that other workers have appended."""
        if self._file is None or len(self._chosen) >= MAX_QUEUES:
            return
        try:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("labels of the metrics not read", error=error)
            return
        # A line that is being written has no end yet.
        complete = added[: added.rfind(b"\n") + 1]
        self._offset += len(complete)
        for name in complete.decode().splitlines():
            if len(self._chosen) < MAX_QUEUES:
                self._chosen[name] = None

    def _append(self, file: Path, queue: str) -> None:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, f"{queue}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            # A queue without a label is no reason to try, and to log, with each of its messages.
            self._is_writable = False
            log.warning("labels of the metrics not written: further queues get none here", error=error)
