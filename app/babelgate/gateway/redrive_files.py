"""Keeps the records of redrive jobs in files, which all processes of one host share."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from babelgate.errors import RedriveRunning, StateUnavailable, TooManyRedrives, UnknownRedrive
from babelgate.gateway.model import EVERY_LETTER, DeadLetterFilter, RedriveFailure
from babelgate.jsontext import decoded
from babelgate.runtime.files import FileLock

MAX_RUNNING = 64
"""Redrive jobs that run at once on one host. A job that rests between two pages costs two calls to its broker a second.
How many read and send at once is limited in :mod:`babelgate.gateway.redrive_jobs`."""

MAX_KEPT = 200
"""Records of jobs that do not run. A record takes at most 250 KB: 1,000 ids of letters, and 20
errors of limited length."""

JobState = Literal["running", "cancelled", "interrupted", "completed", "failed"]

_ID = re.compile(r"[0-9a-f]{20}")
_RECORD, _LOCK, _CANCEL = "job.json", "lock", "cancel"


class JobError(Struct, frozen=True):
    """The error that ended a job."""

    code: str
    detail: str


class RedriveJob(Struct, frozen=True, kw_only=True):
    """A redrive that runs in the background. Times are Unix ms.

    ``caller``: the name of the caller who began or resumed it; empty in records of older versions.
    ``ids``: the letters that are still to be sent; None: those of ``filter``. The counts are those of
    :class:`babelgate.gateway.model.RedriveResult`; after a resume they begin with the counts of before. ``error``:
    set in the state ``failed``.
    """

    id: str
    queue: str
    caller: str = ""
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


_records = msgspec.json.Decoder(RedriveJob)


class RedriveFiles:
    """A directory with one folder per job: its record, and the file that its runner locks.

    A record that says ``running``, and that no process has locked, belongs to a process that has died: the job is read
    as ``interrupted``. Every method blocks for a few file operations, and raises StateUnavailable.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def create(self, job: RedriveJob) -> FileLock:
        """Store a new job; the lock of its runner, which closes it at the end.

        Raises RedriveRunning if a job of the same queue is running, TooManyRedrives if its caller, or the host, runs as
        many as it may. Beyond MAX_KEPT, the records that :func:`_least_missed` selects are removed.
        """
        with _translated():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._exclusive():
            jobs = self._all()
            _check_running(jobs, job.queue, job.caller)
            kept = [each for each in jobs if each.state != "running"]
            while len(kept) >= MAX_KEPT:
                old = _least_missed(kept, job)
                kept.remove(old)
                shutil.rmtree(self._directory / old.id, ignore_errors=True)
            folder = self._directory / job.id
            folder.mkdir(mode=0o700)
            lock = FileLock(folder / _LOCK, create_mode=0o600)
            lock.try_acquire()
            self._write(job)
            return lock

    def claim(self, queue: str, id: str, caller: str) -> tuple[RedriveJob, FileLock]:
        """A job that does not run, for ``caller`` to continue it, and the lock for its runner.

        Raises UnknownRedrive, RedriveRunning, TooManyRedrives.
        """
        with self._existing(queue, id):
            job = self._read(queue, id)
            if job.state != "completed":
                _check_running(self._all(), queue, caller)
            lock = FileLock(self._directory / id / _LOCK, create_mode=0o600)
            if not lock.try_acquire():
                lock.close()
                raise RedriveRunning(queue=queue, id=id)
            (self._directory / id / _CANCEL).unlink(missing_ok=True)
            return job if job.state == "completed" else replace(job, caller=caller), lock

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

    def _all(self) -> list[RedriveJob]:
        """All jobs, oldest first: an id begins with the time of its start. A record that cannot be read stands for a
        failed job of no queue, because it takes space, too."""
        found = []
        for folder in sorted(self._directory.iterdir()):
            if not _ID.fullmatch(folder.name):
                continue
            try:
                found.append(self._current(folder))
            except (FileNotFoundError, msgspec.MsgspecError):
                found.append(
                    RedriveJob(id=folder.name, queue="", state="failed", to_queue="", started_at=0, updated_at=0)
                )
            except NotADirectoryError:
                continue
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
        job = decoded(_records, (folder / _RECORD).read_bytes())
        if job.state != "running":
            return job
        with FileLock(folder / _LOCK) as lock:
            if not lock.try_acquire():
                return job
        # Its last record may have been written after the first look at it.
        job = decoded(_records, (folder / _RECORD).read_bytes())
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


def _check_running(jobs: Sequence[RedriveJob], queue: str, caller: str) -> None:
    """Raise RedriveRunning or TooManyRedrives if ``caller`` may not run a job of ``queue`` beside ``jobs``.

    A caller may run half of what the others leave, at least one, so that the next caller finds something left.
    """
    running = [each for each in jobs if each.state == "running"]
    for each in running:
        if each.queue == queue:
            raise RedriveRunning(queue=queue, id=each.id)
    if len(running) >= MAX_RUNNING:
        raise TooManyRedrives(whose="This host", limit=MAX_RUNNING)
    own = sum(each.caller == caller for each in running)
    share = max((MAX_RUNNING - len(running) + own) // 2, 1)
    if own >= share:
        raise TooManyRedrives(whose=f"The caller {caller!r}", limit=share)


def _least_missed(kept: Sequence[RedriveJob], new: RedriveJob) -> RedriveJob:
    """The record to remove for ``new``: of the caller with the most, of its queue with the most, the oldest completed
    one, or else the oldest. Of equals, those of the caller of ``new`` go first. So no caller loses a record to another
    one that has more."""
    callers = Counter(each.caller for each in (*kept, new))
    queues = Counter((each.caller, each.queue) for each in (*kept, new))

    def rank(job: RedriveJob) -> tuple[int, bool, int, bool, str]:
        of_caller, of_queue = callers[job.caller], queues[job.caller, job.queue]
        return -of_caller, job.caller != new.caller, -of_queue, job.state != "completed", job.id

    return min(kept, key=rank)
