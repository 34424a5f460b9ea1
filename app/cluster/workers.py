"""The workers of one ``serve`` know each other by a directory that is theirs alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from app.observe.logs import get_logger

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
        os.close(held)


def _made(parent: Path) -> tuple[Path, int]:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Another gateway with this state directory must not take a directory for a dead one's before it is held.
    everyone = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(everyone, fcntl.LOCK_EX)
        for left in parent.iterdir():
            if left.is_dir() and _is_free(left):
                shutil.rmtree(left, ignore_errors=True)
        directory = parent / os.urandom(8).hex()
        directory.mkdir(mode=0o700)
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
    finally:
        os.close(everyone)
    return directory, held


def _is_free(directory: Path) -> bool:
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        # Its gateway has just ended, and taken it away.
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
