"""Keeps the records of redrive jobs in files, which all processes of one host share."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.errors import RedriveRunning, StateUnavailable, TooManyRedrives, UnknownRedrive
from app.gateway.model import EVERY_LETTER, DeadLetterFilter, RedriveFailure
from app.runtime.files import FileLock

MAX_RUNNING = 4
"""Redrive jobs that run at once on one host. Each reads dead letters and publishes as fast as it may."""

MAX_KEPT = 100
"""Records of jobs that do not run. Starting another job forgets the oldest ones beyond this number."""

JobState = Literal["running", "cancelled", "interrupted", "completed", "failed"]

_ID = re.compile(r"[0-9a-f]{20}")
_RECORD, _LOCK, _CANCEL = "job.json", "lock", "cancel"


class JobError(Struct, frozen=True):
    """The error that ended a job."""

    code: str
    detail: str


class RedriveJob(Struct, frozen=True, kw_only=True):
    """A redrive that runs in the background. Times are Unix ms.

    ``ids``: the letters that are still to be sent; None: those of ``filter``. The counts are those of
    :class:`app.gateway.model.RedriveResult`; after a resume they begin with what was redriven before. ``error``: set in
    the state ``failed``.
    """

    id: str
    queue: str
    state: JobState
    to_queue: str
    filter: DeadLetterFilter = EVERY_LETTER
    ids: list[str] | None = None
    limit: int | None = None
    force: bool = False
    per_second: float | None = None
    scanned: int = 0
    matched: int = 0
    redriven: int = 0
    failed: int = 0
    complete: bool = False
    errors: list[RedriveFailure] = []
    errors_omitted: int = 0
    error: JobError | None = None
    started_at: int
    updated_at: int


class RedriveFiles:
    """A directory with one folder per job: its record, and the file that its runner locks.

    A record that says ``running``, and that no process has locked, belongs to a process that has died: the job is read
    as ``interrupted``. Every method blocks for a few file operations, and raises StateUnavailable.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def create(self, job: RedriveJob) -> FileLock:
        """Store a new job; the lock of its runner, which closes it at the end.

        Raises RedriveRunning if a job of the same queue is running, TooManyRedrives if too many are.
        """
        with _translated():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._exclusive():
            self._check_running(job.queue)
            kept = [each for each in self._all() if each.state != "running"]
            for old in kept[: max(len(kept) + 1 - MAX_KEPT, 0)]:
                shutil.rmtree(self._directory / old.id, ignore_errors=True)
            folder = self._directory / job.id
            folder.mkdir(mode=0o700)
            lock = FileLock(folder / _LOCK, create_mode=0o600)
            lock.try_acquire()
            self._write(job)
            return lock

    def claim(self, queue: str, id: str) -> tuple[RedriveJob, FileLock]:
        """A job that does not run, to go on with it, and the lock for its runner.

        Raises UnknownRedrive, RedriveRunning, TooManyRedrives.
        """
        with self._existing(queue, id):
            job = self._read(queue, id)
            if job.state != "completed":
                self._check_running(queue)
            lock = FileLock(self._directory / id / _LOCK, create_mode=0o600)
            if not lock.try_acquire():
                lock.close()
                raise RedriveRunning(queue=queue, id=id)
            (self._directory / id / _CANCEL).unlink(missing_ok=True)
            return job, lock

    def cancel(self, queue: str, id: str) -> RedriveJob:
        """Ask the runner of a job to stop; a job without a runner is cancelled at once. A finished one stays as it is.

        Raises UnknownRedrive.
        """
        with self._existing(queue, id):
            job = self._read(queue, id)
            if job.state == "running":
                (self._directory / id / _CANCEL).touch(mode=0o600)
            elif job.state == "interrupted":
                job = replace(job, state="cancelled")
                self._write(job)
            return job

    def is_cancelled(self, id: str) -> bool:
        """Whether somebody has asked for the end of a job."""
        return (self._directory / id / _CANCEL).exists()

    def read(self, queue: str, id: str) -> RedriveJob:
        """The job. Raises UnknownRedrive."""
        with self._existing(queue, id):
            return self._read(queue, id)

    def of_queue(self, queue: str) -> list[RedriveJob]:
        """The jobs of ``queue``, newest first."""
        if not self._directory.exists():
            return []
        with self._exclusive():
            return [job for job in reversed(self._all()) if job.queue == queue]

    def check_idle(self, queue: str) -> None:
        """Raise RedriveRunning if a job of ``queue`` is running."""
        for job in self.of_queue(queue):
            if job.state == "running":
                raise RedriveRunning(queue=queue, id=job.id)

    def write(self, job: RedriveJob) -> None:
        """Replace the record of a job whose lock the caller holds."""
        with _translated():
            self._write(job)

    def _check_running(self, queue: str) -> None:
        running = [each for each in self._all() if each.state == "running"]
        for each in running:
            if each.queue == queue:
                raise RedriveRunning(queue=queue, id=each.id)
        if len(running) >= MAX_RUNNING:
            raise TooManyRedrives(limit=MAX_RUNNING)

    def _all(self) -> list[RedriveJob]:
        """All jobs, oldest first: an id begins with the time of its start."""
        found = []
        for folder in sorted(self._directory.iterdir()):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
                found.append(self._current(folder))
        return found

    def _read(self, queue: str, id: str) -> RedriveJob:
        try:
            job = self._current(self._directory / id) if _ID.fullmatch(id) else None
        except (FileNotFoundError, msgspec.MsgspecError):
            job = None
        if job is None or job.queue != queue:
            raise UnknownRedrive(queue=queue, id=id)
        return job

    def _current(self, folder: Path) -> RedriveJob:
        job = msgspec.json.decode((folder / _RECORD).read_bytes(), type=RedriveJob)
        if job.state != "running":
            return job
        with FileLock(folder / _LOCK) as lock:
            if not lock.try_acquire():
                return job
        # Its last record may have been written after the first look at it.
        job = msgspec.json.decode((folder / _RECORD).read_bytes(), type=RedriveJob)
        return replace(job, state="interrupted") if job.state == "running" else job

    def _write(self, job: RedriveJob) -> None:
        """Write to a temporary file first, so that no reader and no crash leaves an incomplete record."""
        record = self._directory / job.id / _RECORD
        draft = record.with_suffix(".part")
        with open(draft, "wb") as file:
            file.write(msgspec.json.encode(job))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, record)

    @contextmanager
    def _existing(self, queue: str, id: str) -> Iterator[None]:
        """As :meth:`_exclusive`. Without a directory, which the first job creates, there is no such job."""
        if not self._directory.exists():
            raise UnknownRedrive(queue=queue, id=id)
        with self._exclusive():
            yield

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Exclude the other processes: a look at a job locks it for a moment, which must not fail its runner."""
        with _translated(), FileLock(self._directory) as lock:
            lock.acquire()
            yield


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateUnavailable(reason=error.strerror or str(error)) from error
