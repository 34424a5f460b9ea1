"""Runs redrives in the background, as jobs that can be polled, cancelled and resumed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec.structs import replace

from babelgate.clock import Clock
from babelgate.errors import BabelgateError, Draining, InvalidParameter, shortened
from babelgate.gateway.redrive import Redrive, RedriveOrder
from babelgate.gateway.redrive_files import JobError, JobState, RedriveFiles, RedriveJob
from babelgate.gateway.routing import Route
from babelgate.gateway.spans import redriving
from babelgate.observe.audit.notes import note
from babelgate.observe.events import Observe
from babelgate.observe.logs import get_logger
from babelgate.observe.tracing.trace import Trace
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.files import FileLock

_CLOSE_SECONDS = 2.0
"""How long a stopping process waits for the pages that its jobs are sending. A page takes milliseconds, unless the
broker hangs."""

PAGES_AT_ONCE = 4
"""Pages that one process reads and sends at once. Each takes up to 16 MiB of memory (PAGE_BYTES)."""

PAGES_OF_ONE_CALLER = 3
"""Of these, the most for the jobs of one caller: one is left for others while a broker hangs."""

log = get_logger(__name__)


class _PageSlots:
    """Limits the pages in progress. A job that rests between its pages takes no slot."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(PAGES_AT_ONCE)
        self._of_callers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def one(self, caller: str) -> AsyncIterator[None]:
        """Wait for a slot for ``caller``, first come, first served, and keep it."""
        async with self._of_callers.setdefault(caller, asyncio.Semaphore(PAGES_OF_ONE_CALLER)), self._all:
            yield


class RedriveJobs:
    """The jobs of one process. Their records are in files, so that every process of the host can answer for them."""

    def __init__(
        self, directory: Path | None, clock: Clock, observe: Observe, lock_of: Callable[[str], asyncio.Lock]
    ) -> None:
        """``directory``: of the records; None: there are no jobs. ``lock_of``: the lock of a queue's redrives."""
        self._directory_files = None if directory is None else RedriveFiles(directory)
        self._clock, self._observe, self._lock_of = clock, observe, lock_of
        self._tasks: BackgroundTasks[None] = BackgroundTasks()
        self._slots = _PageSlots()
        self._stopping = False

    @property
    def _files(self) -> RedriveFiles:
        if self._directory_files is None:
            reason = "this gateway has no state directory, which keeps the jobs"
            raise InvalidParameter(name="background", reason=reason, pointer="/background")
        return self._directory_files

    def drain(self) -> None:
        """Stop the jobs at their next page: they are interrupted, and can be resumed."""
        self._stopping = True

    async def close(self) -> None:
        """Stop all jobs; at most a few seconds."""
        self.drain()
        await self._tasks.wait(_CLOSE_SECONDS)
        await self._tasks.cancel()

    async def start(
        self, caller: str, source: Route, target: Route, order: RedriveOrder, trace: Trace | None
    ) -> RedriveJob:
        """Begin a job for ``caller``, the caller's name. Raises RedriveRunning, TooManyRedrives, StateUnavailable,
        Draining."""
        if self._stopping:
            raise Draining
        now = self._clock()
        job = RedriveJob(
            id=f"{now:012x}{secrets.token_hex(4)}",
            queue=source.queue,
            caller=caller,
            state="running",
            to_queue=target.queue,
            filter=order.matching,
            ids=None if order.ids is None else sorted(order.ids),
            limit=order.limit,
            force=order.force,
            per_second=order.per_second,
            started_at=now,
            updated_at=now,
        )
        note(redrive=job.id)
        lock = await asyncio.to_thread(self._files.create, job)
        self._tasks.start(self._run(job, lock, source, target, trace))
        return job

    async def resume(
        self, caller: str, queue: str, id: str, routes: Callable[[RedriveJob], tuple[Route, Route]], trace: Trace | None
    ) -> RedriveJob:
        """Go on with a job that was cancelled, interrupted or failed, as one of ``caller``; a completed one stays as it
        is.

        ``routes``: checks the caller's rights, and returns source and target. Raises UnknownRedrive, and the errors of
        :meth:`start`.
        """
        if self._stopping:
            raise Draining
        source, target = routes(await self.read(queue, id))
        job, lock = await asyncio.to_thread(self._files.claim, queue, id, caller)
        if job.state == "completed":
            lock.close()
            return job
        job = replace(
            job,
            state="running",
            scanned=job.redriven,
            matched=job.redriven,
            failed=0,
            complete=False,
            errors=[],
            errors_omitted=0,
            error=None,
            updated_at=self._clock(),
        )
        try:
            await asyncio.to_thread(self._files.write, job)
        except BaseException:
            lock.close()
            raise
        self._tasks.start(self._run(job, lock, source, target, trace))
        return job

    async def cancel(self, queue: str, id: str) -> RedriveJob:
        """Stop a job at its next page, whichever process of the host runs it. Raises UnknownRedrive."""
        return await asyncio.to_thread(self._files.cancel, queue, id)

    async def read(self, queue: str, id: str) -> RedriveJob:
        """The job. Raises UnknownRedrive."""
        return await asyncio.to_thread(self._files.read, queue, id)

    async def of_queue(self, queue: str) -> list[RedriveJob]:
        """The jobs of ``queue`` that are known on this host, newest first."""
        return [] if self._directory_files is None else await asyncio.to_thread(self._directory_files.of_queue, queue)

    async def check_idle(self, queue: str) -> None:
        """Raise RedriveRunning if a job of ``queue`` is running on this host."""
        if self._directory_files is not None:
            await asyncio.to_thread(self._directory_files.check_idle, queue)

    async def _run(self, job: RedriveJob, lock: FileLock, source: Route, target: Route, trace: Trace | None) -> None:
        """Send page after page. The record is written after each, and at the end."""
        limit = None if job.limit is None else job.limit - job.redriven
        ids = None if job.ids is None else frozenset(job.ids)
        order = RedriveOrder(job.filter, ids, limit, job.force, job.per_second)
        redrive = Redrive(source, target, order, self._clock, self._observe, job.started_at)
        state: JobState = "interrupted"
        error: JobError | None = None
        try:
            with redriving(trace, source):
                while not redrive.ended and not await self._must_stop(job.id):
                    async with self._lock_of(job.queue), self._slots.one(job.caller):
                        await redrive.page()
                    await asyncio.to_thread(self._files.write, self._progress(job, redrive, "running"))
                    while not redrive.ended and not await self._must_stop(job.id) and await redrive.rest():
                        pass
            if redrive.stopped is not None:
                state, error = "failed", _job_error(redrive.stopped)
            elif redrive.ended:
                state = "completed"
            elif not self._stopping:
                state = "cancelled"
        except BabelgateError as raised:
            state, error = "failed", _job_error(raised)
        except Exception:
            log.exception("redrive job failed", queue=job.queue, job=job.id)
            state, error = "failed", JobError("internal_error", "An unexpected error occurred. The log has details.")
        finally:
            # Not in a thread: a cancelled task writes its end, too.
            try:
                self._files.write(replace(self._progress(job, redrive, state), error=error))
            except BabelgateError as raised:
                log.warning("end of a redrive job not recorded", queue=job.queue, job=job.id, error=raised)
            lock.close()

    async def _must_stop(self, id: str) -> bool:
        return self._stopping or await asyncio.to_thread(self._files.is_cancelled, id)

    def _progress(self, job: RedriveJob, redrive: Redrive, state: JobState) -> RedriveJob:
        """``job``, as it was when this run began, with what the run has done."""
        result = redrive.result
        return replace(
            job,
            state=state,
            ids=None if redrive.left is None else sorted(redrive.left),
            scanned=job.redriven + result.scanned,
            matched=job.redriven + result.matched,
            redriven=job.redriven + result.redriven,
            failed=result.failed,
            complete=result.complete,
            errors=list(result.errors),
            errors_omitted=result.errors_omitted,
            updated_at=self._clock(),
        )


def _job_error(error: BabelgateError) -> JobError:
    return JobError(error.problem_code, shortened(error.detail))
