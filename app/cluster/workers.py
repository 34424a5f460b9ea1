"""The workers of one ``serve`` know each other by a directory that is theirs alone."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from app.observe.logs import get_logger
from app.runtime.files import FileLock

log = get_logger("babelgate.server")


@contextlib.contextmanager
def workers_directory(state_dir: Path) -> Iterator[Path | None]:
    """A new directory below ``state_dir``, held by this process and removed at the end; None where there can be none.

    What killed gateways left there is removed first.
    """
    try:
        directory, held = _made(state_dir / "workers")
    except OSError as error:
        log.warning("workers cannot tell each other their numbers: /metrics is of one of them", error=error)
        yield None
        return
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        held.close()


def _made(parent: Path) -> tuple[Path, FileLock]:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Another gateway with this state directory must not take a directory for a dead one's before it is held.
    with FileLock(parent) as everyone:
        everyone.acquire()
        for left in parent.iterdir():
            if left.is_dir() and _is_free(left):
                shutil.rmtree(left, ignore_errors=True)
        directory = parent / os.urandom(8).hex()
        directory.mkdir(mode=0o700)
        held = FileLock(directory)
        held.acquire()
    return directory, held


def _is_free(directory: Path) -> bool:
    try:
        with FileLock(directory) as lock:
            return lock.try_acquire()
    except FileNotFoundError:
        # Its gateway has ended in the meantime and has removed the directory.
        return False
