"""Endpoints for redrive jobs: list, poll, cancel, resume."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from babelgate.gateway.gateway import Gateway
from babelgate.gateway.redrive_files import RedriveJob
from babelgate.http import letter_views
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, QueueName, TraceOf
from babelgate.http.letter_examples import JOB_ID
from babelgate.http.problems import MethodNotAllowed

JobId = Annotated[str, Path(description="`id` of a job.", examples=[JOB_ID], max_length=1024)]


def routes(gateway: Gateway) -> APIRouter:
    """The routes that call ``gateway``."""
    router = APIRouter(prefix="/queues/{queue}", tags=["dead letters"], dependencies=NO_PARAMETERS)
    letters = gateway.letters

    @router.get("/redrives", operation_id="list_redrives", summary="List redrive jobs")
    async def list_redrives(caller: CallerOf, queue: QueueName) -> letter_views.RedriveJobListView:
        """Return the redrive jobs of the queue that were started on this host, newest first. A host keeps 200 jobs that
        have ended, and then forgets those of the caller who has the most."""
        return letter_views.RedriveJobListView(redrives=[_view(job) for job in await letters.jobs_of(caller, queue)])

    @router.get("/redrives/{id}", operation_id="get_redrive", summary="Get a redrive job")
    async def get_redrive(caller: CallerOf, queue: QueueName, id: JobId) -> letter_views.RedriveJobView:
        """Return the state of a job. Every process of the host that started it can answer; another host answers 404."""
        return _view(await letters.job(caller, queue, id))

    @router.post("/redrives/{id}:cancel", operation_id="cancel_redrive", summary="Cancel a redrive job")
    async def cancel_redrive(caller: CallerOf, queue: QueueName, id: JobId) -> letter_views.RedriveJobView:
        """Ask a job to stop. It stops within a second, or after the page that it is sending: poll until its `state` is
        no longer `running`. A job that has ended stays as it is. Requires the right `manage`."""
        return _view(await letters.cancel_job(caller, queue, id))

    @router.post("/redrives/{id}:resume", operation_id="resume_redrive", summary="Resume a redrive job")
    async def resume_redrive(
        caller: CallerOf, queue: QueueName, id: JobId, trace: TraceOf
    ) -> letter_views.RedriveJobView:
        """Go on with what is left of a job that was cancelled or interrupted, or has failed. A completed job stays.

        Requires the right `manage`, and `send` on the job's `to_queue`.
        """
        return _view(await letters.resume_job(caller, queue, id, trace))

    @router.api_route("/redrives/{id}", methods=["POST", "PUT", "PATCH", "DELETE", "OPTIONS"], include_in_schema=False)
    async def refuse_method(id: str) -> None:
        """Name all methods of the path; the framework would name only the first."""
        raise MethodNotAllowed(allow="GET, HEAD")

    return router


def _view(job: RedriveJob) -> letter_views.RedriveJobView:
    return letter_views.RedriveJobView.model_validate(job)
