"""An exclusive lock between processes, for jobs that write to the same place."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.files import Files

if TYPE_CHECKING:
    from babelgate.pipeline.storage.arrow_files import ArrowFiles

LEASE_SECONDS = 60.0
"""Seconds after which a lock on a remote file system expires if its owner was killed."""
_BEAT_SECONDS = 10.0
_SETTLE_SECONDS = 2.0


class LockedOut(JobFailed):
    """Another process owns the lock."""


@contextmanager
def exclusive_lock(files: Files | ArrowFiles, url: str, job: str) -> Iterator[None]:
    """Own the lock ``url`` during the block. Raises JobFailed if another ``job`` owns it, or took it over meanwhile.

    On a local file system this is an operating-system lock, which ends with the process. Elsewhere it is a file that
    the owner renews every 10 s; taking it blocks for 2 s. On stores that may return an old version of a file, two
    jobs that start within the same second may both get the lock.
    """
    with _file_lock(url, job) if files.is_local else _lease_lock(files, url, job):
        yield


@contextmanager
def _file_lock(url: str, job: str) -> Iterator[None]:
    path = Path(url.removeprefix("file:"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LockedOut(f"Another {job} is at work there ({file.read().strip() or 'it has just begun'}).") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


@contextmanager
def waiting_lock(path: str) -> Iterator[None]:
    """Own the lock file ``path`` of a local file system during the block; wait while another process owns it."""
    with Path(path).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _lease_lock(files: Files | ArrowFiles, url: str, job: str) -> Iterator[None]:
    mine = uuid.uuid4().hex
    owner = _read_owner(files, url)
    if owner is not None:
        raise LockedOut(f"Another {job} is at work there ({owner[1]}). If it was killed, wait {LEASE_SECONDS:.0f} s.")
    over = threading.Event()

    def renew() -> None:
        content = {"id": mine, "by": f"process {os.getpid()} on {socket.gethostname()}", "at": time.time()}
        files.write(url, json.dumps(content).encode())

    def is_mine() -> bool:
        owner = _read_owner(files, url)
        return owner is None or owner[0] == mine

    def renew_regularly() -> None:
        while not over.wait(_BEAT_SECONDS):
            # A store that fails now may answer next time. A lock of another owner is never overwritten.
            with suppress(Exception):
                if not is_mine():
                    return
                renew()

    renew()
    time.sleep(_SETTLE_SECONDS)
    owner = _read_owner(files, url)
    if owner is None or owner[0] != mine:
        raise LockedOut(f"Another {job} began there at the same time.")
    renewer = threading.Thread(target=renew_regularly, daemon=True)
    renewer.start()
    try:
        yield
    finally:
        over.set()
        renewer.join()
        kept = is_mine()
        if kept:
            files.remove(url)
    if not kept:
        raise JobFailed(f"Another {job} took over: for {LEASE_SECONDS:.0f} s nothing had been heard of this one.")


def _read_owner(files: Files | ArrowFiles, url: str) -> tuple[str, str] | None:
    content = files.read(url)
    if content is None:
        return None
    try:
        lock = json.loads(content)
    except ValueError:
        # The lock of a local lake, which was copied to this place with the lake.
        return None
    return None if time.time() - lock["at"] > LEASE_SECONDS else (lock["id"], lock["by"])
