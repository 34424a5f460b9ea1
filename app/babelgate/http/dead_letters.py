"""Endpoints for dead letters: list, get, redrive, delete, purge."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from babelgate.errors import InvalidParameter
from babelgate.gateway.model import DeadLetter, DeadLetterFilter, LetterEdit, RemovalResult
from babelgate.gateway.redrive import RedriveOrder
from babelgate.http import letter_views, views
from babelgate.http.dependencies import (
    NO_PARAMETERS,
    READS_BODY,
    CallerOf,
    ExchangeOf,
    LettersOf,
    QueueName,
    TraceOf,
    inlined,
    json_answer,
    listed,
)
from babelgate.http.problems import MethodNotAllowed, detail_of, status_of
from babelgate.http.publish_parameters import given
from babelgate.http.schemas import RedriveDeadLetterRequest, from_body

_EVERYTHING = letter_views.RedriveRequest()
LetterId = Annotated[
    str, Path(description="`letter_id` of a listed dead letter.", examples=[letter_views.LETTER_ID], max_length=1024)
]
Search = Annotated[letter_views.SearchQuery, Query()]


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. The scope of a call has its gateway."""
    router = APIRouter(prefix="/queues/{queue}")

    @router.get("/dead-letters", response_model=letter_views.DeadLetterPageView)
    async def list_dead_letters(
        letters: LettersOf,
        caller: CallerOf,
        queue: QueueName,
        parameters: Annotated[letter_views.DeadLetterQuery, Query()],
    ) -> Response:
        where = DeadLetterFilter(**parameters.model_dump(exclude={"limit", "cursor"}))
        found, cursor = await letters.page(caller, queue, where, parameters.limit, parameters.cursor)
        tail = f'],"next_cursor":{json.dumps(cursor)}}}'
        return await listed('{"dead_letters":[', found, _encoded, tail, lambda view: len(view.record))

    @router.post(
        "/dead-letters:redrive",
        dependencies=NO_PARAMETERS,
        response_model=letter_views.RedriveResultView,
        responses={202: {"model": letter_views.RedriveJobView}},
    )
    async def redrive_dead_letters(
        letters: LettersOf,
        exchange: ExchangeOf,
        queue: QueueName,
        parameters: letter_views.RedriveRequest = _EVERYTHING,
    ) -> Response:
        order, caller, trace = _order(parameters), exchange.caller, exchange.trace
        if parameters.background:
            job = await letters.start_job(caller, queue, order, parameters.to_queue, trace)
            answer = letter_views.RedriveJobView.model_validate(job).model_dump_json()
            headers = {"location": f"redrives/{job.id}"}
            return Response(answer, 202, headers, media_type="application/json")
        redriving = letters.redrive(caller, queue, order, parameters.to_queue, trace)
        # A dry run only reads, so it ends with its client.
        result = await (exchange.unless_gone(redriving) if order.dry_run else redriving)
        return Response(
            letter_views.RedriveResultView.model_validate(result).model_dump_json(), media_type="application/json"
        )

    @router.post(
        "/dead-letters:delete",
        dependencies=NO_PARAMETERS,
        response_model=letter_views.RemovalView,
        responses={207: {"model": letter_views.RemovalView}},
    )
    async def delete_dead_letters(
        letters: LettersOf, caller: CallerOf, queue: QueueName, parameters: letter_views.DeleteDeadLettersRequest
    ) -> Response:
        results = await letters.remove(caller, queue, parameters.ids)
        failed = sum(result.error is not None for result in results)
        made = letter_views.RemovalView(
            removed=len(results) - failed, failed=failed, results=[_result(result) for result in results]
        )
        text = made.model_dump_json(exclude_none=True)
        return Response(text, 207 if failed else 200, media_type="application/json")

    @router.post("/dead-letters:purge", dependencies=NO_PARAMETERS)
    async def purge_dead_letters(
        letters: LettersOf, caller: CallerOf, queue: QueueName, parameters: views.PurgeRequest = views.PURGE
    ) -> views.PurgeResultView:
        return views.purged(await letters.purge(caller, queue, dry_run=parameters.dry_run), parameters)

    @router.post(
        "/dead-letters/{letter_id}:redrive", response_model=letter_views.RedrivenLetterView, openapi_extra=READS_BODY
    )
    async def redrive_dead_letter(
        letters: LettersOf,
        caller: CallerOf,
        queue: QueueName,
        letter_id: LetterId,
        trace: TraceOf,
        search: Search,
        request: Request,
    ) -> letter_views.RedrivenLetterView:
        body = await request.body()
        wanted = from_body(body, RedriveDeadLetterRequest) if body else RedriveDeadLetterRequest()
        edit = None
        if wanted.edit is not None:
            data, draft = given(wanted.edit.data), given(wanted.edit.body)
            edit = LetterEdit(None if data is None else bytes(data), None if draft is None else bytes(draft))
        sent = await letters.redrive_one(
            caller, queue, letter_id, wanted.to_queue, edit, wanted.force, trace, search.cursor
        )
        return letter_views.RedrivenLetterView.model_validate(sent)

    @router.get("/dead-letters/{letter_id}", response_model=letter_views.DeadLetterView)
    async def get_dead_letter(
        letters: LettersOf, caller: CallerOf, queue: QueueName, letter_id: LetterId, search: Search
    ) -> Response:
        found = await letters.get(caller, queue, letter_id, search.cursor)
        return json_answer(msgspec.Raw(_encoded(found)))

    @router.delete("/dead-letters/{letter_id}")
    async def delete_dead_letter(
        letters: LettersOf, caller: CallerOf, queue: QueueName, letter_id: LetterId, search: Search
    ) -> views.PurgedView:
        await letters.remove_one(caller, queue, letter_id, search.cursor)
        return views.PurgedView(removed=1)

    @router.api_route("/dead-letters/{letter_id}", methods=["POST", "PUT", "PATCH", "OPTIONS"], include_in_schema=False)
    async def refuse_method(letter_id: str) -> None:
        """Name all methods of the path; the framework would name only the first."""
        raise MethodNotAllowed(allow="GET, HEAD, DELETE")

    return router


def _order(parameters: letter_views.RedriveRequest) -> RedriveOrder:
    if parameters.ids is not None and "filter" in parameters.model_fields_set:
        raise InvalidParameter(name="ids", reason="ids and filter cannot be used together", pointer="/ids")
    if parameters.background and parameters.dry_run:
        raise InvalidParameter(
            name="dry_run", reason="a job has no dry run: leave out one of the two", pointer="/dry_run"
        )
    return RedriveOrder(
        DeadLetterFilter(**dict(parameters.filter)),
        None if parameters.ids is None else frozenset(parameters.ids),
        parameters.limit,
        parameters.force,
        parameters.per_second,
        parameters.dry_run,
    )


def _result(result: RemovalResult) -> letter_views.RemovalResultView:
    error = result.error
    if error is None:
        return letter_views.RemovalResultView(letter_id=result.letter_id, status=200)
    return letter_views.RemovalResultView(
        letter_id=result.letter_id,
        status=status_of(error),
        code=error.problem_code,
        detail=detail_of(error),
        retryable=error.retryable,
    )


def _encoded(view: DeadLetter) -> bytes:
    letter = {
        "letter_id": view.letter_id,
        "id": view.id,
        "job": view.job,
        "trace_id": view.trace_id,
        "reason": view.reason,
        "error": view.error,
        "failed_at": view.failed_at,
        "attempts": view.attempts,
        "headers": dict(view.headers),
        **inlined("record", view.record),
    }
    return msgspec.json.encode(letter)
