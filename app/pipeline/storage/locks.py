"""One at a time: a lock on a place that jobs share."""

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

from app.pipeline.errors import JobFailed
from app.pipeline.storage.files import Files

LEASE_SECONDS = 60.0
"""How long a lock on a remote file system outlives a holder that was killed."""
_BEAT_SECONDS = 10.0
_SETTLE_SECONDS = 2.0


@contextmanager
def exclusive_lock(files: Files, url: str, job: str) -> Iterator[None]:
    """Hold the lock ``url``. Raises JobFailed where another ``job`` holds it.

    On a local file system the operating system keeps it, and lets go of it when the process ends. Elsewhere it is a
    file that its holder renews: two that start within the same second may both believe to hold it, on stores whose
    clients see an old file for a while. Blocks for 2 s there.
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
            raise JobFailed(f"Another {job} is at work there ({file.read().strip() or 'it has just begun'}).") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


@contextmanager
def _lease_lock(files: Files, url: str, job: str) -> Iterator[None]:
    mine = uuid.uuid4().hex
    holder = _read_owner(files, url)
    if holder is not None:
        raise JobFailed(f"Another {job} is at work there ({holder[1]}). If it was killed, wait {LEASE_SECONDS:.0f} s.")
    over = threading.Event()

    def renew() -> None:
        told = {"id": mine, "by": f"process {os.getpid()} on {socket.gethostname()}", "at": time.time()}
        files.write(url, json.dumps(told).encode())

    def is_mine() -> bool:
        holder = _read_owner(files, url)
        return holder is None or holder[0] == mine

    def keep() -> None:
        while not over.wait(_BEAT_SECONDS):
            # A store that does not answer may do so the next time; another holder's lock is never written over.
            with suppress(Exception):
                if not is_mine():
                    return
                renew()

    renew()
    time.sleep(_SETTLE_SECONDS)
    holder = _read_owner(files, url)
    if holder is None or holder[0] != mine:
        raise JobFailed(f"Another {job} began there at the same time.")
    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        kept = is_mine()
        if kept:
            files.remove(url)
    if not kept:
        raise JobFailed(f"Another {job} took over: for {LEASE_SECONDS:.0f} s nothing had been heard of this one.")


def _read_owner(files: Files, url: str) -> tuple[str, str] | None:
    content = files.read(url)
    if content is None:
        return None
    told = json.loads(content)
    return None if time.time() - told["at"] > LEASE_SECONDS else (told["id"], told["by"])
