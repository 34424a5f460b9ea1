from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.dead_letter_page import DeadLetterPage
from ...models.list_dead_letters_reason_type_0 import check_list_dead_letters_reason_type_0
from ...models.list_dead_letters_reason_type_0 import ListDeadLettersReasonType0
from ...models.problem import Problem
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    job: None | str | Unset = UNSET,
    reason: ListDeadLettersReasonType0 | None | Unset = UNSET,
    before: int | None | Unset = UNSET,
    after: int | None | Unset = UNSET,
    trace_id: None | str | Unset = UNSET,
    error: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

    json_job: None | str | Unset
    if isinstance(job, Unset):
        json_job = UNSET
    else:
        json_job = job
    params["job"] = json_job

    json_reason: None | str | Unset
    if isinstance(reason, Unset):
        json_reason = UNSET
    elif isinstance(reason, str):
        json_reason = reason
    else:
        json_reason = reason
    params["reason"] = json_reason

    json_before: int | None | Unset
    if isinstance(before, Unset):
        json_before = UNSET
    else:
        json_before = before
    params["before"] = json_before

    json_after: int | None | Unset
    if isinstance(after, Unset):
        json_after = UNSET
    else:
        json_after = after
    params["after"] = json_after

    json_trace_id: None | str | Unset
    if isinstance(trace_id, Unset):
        json_trace_id = UNSET
    else:
        json_trace_id = trace_id
    params["trace_id"] = json_trace_id

    json_error: None | str | Unset
    if isinstance(error, Unset):
        json_error = UNSET
    else:
        json_error = error
    params["error"] = json_error

    params["limit"] = limit

    json_cursor: None | str | Unset
    if isinstance(cursor, Unset):
        json_cursor = UNSET
    else:
        json_cursor = cursor
    params["cursor"] = json_cursor


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/queues/{queue}/dead-letters".format(queue=quote(str(queue), safe=""),),
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> DeadLetterPage | Problem | None:
    if response.status_code == 200:
        response_200 = DeadLetterPage.from_dict(response.json())



        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())



        return response_400

    if response.status_code == 401:
        response_401 = Problem.from_dict(response.json())



        return response_401

    if response.status_code == 403:
        response_403 = Problem.from_dict(response.json())



        return response_403

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())



        return response_404

    if response.status_code == 408:
        response_408 = Problem.from_dict(response.json())



        return response_408

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())



        return response_422

    if response.status_code == 429:
        response_429 = Problem.from_dict(response.json())



        return response_429

    if response.status_code == 431:
        response_431 = Problem.from_dict(response.json())



        return response_431

    if response.status_code == 500:
        response_500 = Problem.from_dict(response.json())



        return response_500

    if response.status_code == 502:
        response_502 = Problem.from_dict(response.json())



        return response_502

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())



        return response_503

    if response.status_code == 504:
        response_504 = Problem.from_dict(response.json())



        return response_504

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[DeadLetterPage | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    reason: ListDeadLettersReasonType0 | None | Unset = UNSET,
    before: int | None | Unset = UNSET,
    after: int | None | Unset = UNSET,
    trace_id: None | str | Unset = UNSET,
    error: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[DeadLetterPage | Problem]:
    """ List dead letters

     Return a page of the dead letters that meet all given conditions, oldest first. A page may be empty
    and still
    have a next page; large dead letters reduce the number returned below `limit`. Members that the
    route redacts
    are `"[redacted]"`.

    Args:
        queue (str):
        job (None | str | Unset):
        reason (ListDeadLettersReasonType0 | None | Unset):
        before (int | None | Unset):
        after (int | None | Unset):
        trace_id (None | str | Unset):
        error (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[DeadLetterPage | Problem]
     """


    kwargs = _get_kwargs(
        queue=queue,
job=job,
reason=reason,
before=before,
after=after,
trace_id=trace_id,
error=error,
limit=limit,
cursor=cursor,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    reason: ListDeadLettersReasonType0 | None | Unset = UNSET,
    before: int | None | Unset = UNSET,
    after: int | None | Unset = UNSET,
    trace_id: None | str | Unset = UNSET,
    error: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> DeadLetterPage | Problem | None:
    """ List dead letters

     Return a page of the dead letters that meet all given conditions, oldest first. A page may be empty
    and still
    have a next page; large dead letters reduce the number returned below `limit`. Members that the
    route redacts
    are `"[redacted]"`.

    Args:
        queue (str):
        job (None | str | Unset):
        reason (ListDeadLettersReasonType0 | None | Unset):
        before (int | None | Unset):
        after (int | None | Unset):
        trace_id (None | str | Unset):
        error (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        DeadLetterPage | Problem
     """


    return sync_detailed(
        queue=queue,
client=client,
job=job,
reason=reason,
before=before,
after=after,
trace_id=trace_id,
error=error,
limit=limit,
cursor=cursor,

    ).parsed

async def asyncio_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    reason: ListDeadLettersReasonType0 | None | Unset = UNSET,
    before: int | None | Unset = UNSET,
    after: int | None | Unset = UNSET,
    trace_id: None | str | Unset = UNSET,
    error: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[DeadLetterPage | Problem]:
    """ List dead letters

     Return a page of the dead letters that meet all given conditions, oldest first. A page may be empty
    and still
    have a next page; large dead letters reduce the number returned below `limit`. Members that the
    route redacts
    are `"[redacted]"`.

    Args:
        queue (str):
        job (None | str | Unset):
        reason (ListDeadLettersReasonType0 | None | Unset):
        before (int | None | Unset):
        after (int | None | Unset):
        trace_id (None | str | Unset):
        error (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[DeadLetterPage | Problem]
     """


    kwargs = _get_kwargs(
        queue=queue,
job=job,
reason=reason,
before=before,
after=after,
trace_id=trace_id,
error=error,
limit=limit,
cursor=cursor,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    reason: ListDeadLettersReasonType0 | None | Unset = UNSET,
    before: int | None | Unset = UNSET,
    after: int | None | Unset = UNSET,
    trace_id: None | str | Unset = UNSET,
    error: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> DeadLetterPage | Problem | None:
    """ List dead letters

     Return a page of the dead letters that meet all given conditions, oldest first. A page may be empty
    and still
    have a next page; large dead letters reduce the number returned below `limit`. Members that the
    route redacts
    are `"[redacted]"`.

    Args:
        queue (str):
        job (None | str | Unset):
        reason (ListDeadLettersReasonType0 | None | Unset):
        before (int | None | Unset):
        after (int | None | Unset):
        trace_id (None | str | Unset):
        error (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        DeadLetterPage | Problem
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
job=job,
reason=reason,
before=before,
after=after,
trace_id=trace_id,
error=error,
limit=limit,
cursor=cursor,

    )).parsed
