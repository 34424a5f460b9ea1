"""Creates the directory that the workers of one ``serve`` share."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from babelgate.observe.logs import get_logger
from babelgate.runtime.files import FileLock

log = get_logger(__name__)


@contextlib.contextmanager
def workers_directory(state_dir: Path) -> Iterator[Path | None]:
    """A new directory below ``state_dir``, locked by this process and removed at the end; None if it cannot be created.

    Directories left by killed gateways are removed first.
    """
    try:
        directory, lock = _create(state_dir / "workers")
    except OSError as error:
        log.warning(
            "workers cannot share their figures: /metrics and /rates show those of one worker only", error=error
        )
        yield None
        return
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock.close()


def _create(parent: Path) -> tuple[Path, FileLock]:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The lock on the parent keeps another gateway from removing the new directory before it is locked.
    with FileLock(parent) as parent_lock:
        parent_lock.acquire()
        for left in parent.iterdir():
            if left.is_dir() and _is_free(left):
                shutil.rmtree(left, ignore_errors=True)
        directory = parent / os.urandom(8).hex()
        directory.mkdir(mode=0o700)
        lock = FileLock(directory)
        lock.acquire()
    return directory, lock


def _is_free(directory: Path) -> bool:
    try:
        with FileLock(directory) as lock:
            return lock.try_acquire()
    except FileNotFoundError:
        # Its gateway has ended in the meantime and has removed the directory.
        return False
