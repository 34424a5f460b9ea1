"""Endpoints for redrive jobs: list, poll, cancel, resume."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Path

from babelgate.gateway.redrive_files import RedriveJob
from babelgate.http import letter_views
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, LettersOf, QueueName, TraceOf
from babelgate.http.problems import MethodNotAllowed

JobId = Annotated[str, Path(description="`id` of a job.", examples=["019a3c5e7f10a1b2c3d4"], max_length=1024)]


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. The scope of a call has its gateway."""
    router = APIRouter(prefix="/queues/{queue}", dependencies=NO_PARAMETERS)

    @router.get("/redrives")
    async def list_redrives(letters: LettersOf, caller: CallerOf, queue: QueueName) -> letter_views.RedriveJobListView:
        return letter_views.RedriveJobListView(redrives=[_view(job) for job in await letters.jobs_of(caller, queue)])

    @router.get("/redrives/{id}")
    async def get_redrive(
        letters: LettersOf, caller: CallerOf, queue: QueueName, id: JobId
    ) -> letter_views.RedriveJobView:
        return _view(await letters.job(caller, queue, id))

    @router.post("/redrives/{id}:cancel")
    async def cancel_redrive(
        letters: LettersOf, caller: CallerOf, queue: QueueName, id: JobId
    ) -> letter_views.RedriveJobView:
        return _view(await letters.cancel_job(caller, queue, id))

    @router.post("/redrives/{id}:resume")
    async def resume_redrive(
        letters: LettersOf, caller: CallerOf, queue: QueueName, id: JobId, trace: TraceOf
    ) -> letter_views.RedriveJobView:
        return _view(await letters.resume_job(caller, queue, id, trace))

    @router.api_route("/redrives/{id}", methods=["POST", "PUT", "PATCH", "DELETE", "OPTIONS"], include_in_schema=False)
    async def refuse_method(id: str) -> None:
        """Name all methods of the path; the framework would name only the first."""
        raise MethodNotAllowed(allow="GET, HEAD")

    return router


def _view(job: RedriveJob) -> letter_views.RedriveJobView:
    return letter_views.RedriveJobView.model_validate(job)
