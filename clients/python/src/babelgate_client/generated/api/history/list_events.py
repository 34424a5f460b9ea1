from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.event_page import EventPage
from ...models.list_events_event_type_0 import check_list_events_event_type_0
from ...models.list_events_event_type_0 import ListEventsEventType0
from ...models.problem import Problem
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    *,
    job: None | str | Unset = UNSET,
    queue: None | str | Unset = UNSET,
    event: ListEventsEventType0 | None | Unset = UNSET,
    since: int | None | Unset = UNSET,
    until: int | None | Unset = UNSET,
    meta: None | str | Unset = UNSET,
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

    json_queue: None | str | Unset
    if isinstance(queue, Unset):
        json_queue = UNSET
    else:
        json_queue = queue
    params["queue"] = json_queue

    json_event: None | str | Unset
    if isinstance(event, Unset):
        json_event = UNSET
    elif isinstance(event, str):
        json_event = event
    else:
        json_event = event
    params["event"] = json_event

    json_since: int | None | Unset
    if isinstance(since, Unset):
        json_since = UNSET
    else:
        json_since = since
    params["since"] = json_since

    json_until: int | None | Unset
    if isinstance(until, Unset):
        json_until = UNSET
    else:
        json_until = until
    params["until"] = json_until

    json_meta: None | str | Unset
    if isinstance(meta, Unset):
        json_meta = UNSET
    else:
        json_meta = meta
    params["meta"] = json_meta

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
        "url": "/messages",
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> EventPage | Problem | None:
    if response.status_code == 200:
        response_200 = EventPage.from_dict(response.json())



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

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[EventPage | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    queue: None | str | Unset = UNSET,
    event: ListEventsEventType0 | None | Unset = UNSET,
    since: int | None | Unset = UNSET,
    until: int | None | Unset = UNSET,
    meta: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[EventPage | Problem]:
    """ List events of messages

     Return a page of the events that meet all given conditions, newest first. A page may have fewer
    events than
    `limit`, or none, and still have a next page: one call reads a bounded part of the journal, and
    leaves out the
    events of queues on which the caller has neither `listen` nor `manage`.

    With `event=accepted` each message comes once.

    Args:
        job (None | str | Unset):
        queue (None | str | Unset):
        event (ListEventsEventType0 | None | Unset):
        since (int | None | Unset):
        until (int | None | Unset):
        meta (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[EventPage | Problem]
     """


    kwargs = _get_kwargs(
        job=job,
queue=queue,
event=event,
since=since,
until=until,
meta=meta,
limit=limit,
cursor=cursor,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    queue: None | str | Unset = UNSET,
    event: ListEventsEventType0 | None | Unset = UNSET,
    since: int | None | Unset = UNSET,
    until: int | None | Unset = UNSET,
    meta: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> EventPage | Problem | None:
    """ List events of messages

     Return a page of the events that meet all given conditions, newest first. A page may have fewer
    events than
    `limit`, or none, and still have a next page: one call reads a bounded part of the journal, and
    leaves out the
    events of queues on which the caller has neither `listen` nor `manage`.

    With `event=accepted` each message comes once.

    Args:
        job (None | str | Unset):
        queue (None | str | Unset):
        event (ListEventsEventType0 | None | Unset):
        since (int | None | Unset):
        until (int | None | Unset):
        meta (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        EventPage | Problem
     """


    return sync_detailed(
        client=client,
job=job,
queue=queue,
event=event,
since=since,
until=until,
meta=meta,
limit=limit,
cursor=cursor,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    queue: None | str | Unset = UNSET,
    event: ListEventsEventType0 | None | Unset = UNSET,
    since: int | None | Unset = UNSET,
    until: int | None | Unset = UNSET,
    meta: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[EventPage | Problem]:
    """ List events of messages

     Return a page of the events that meet all given conditions, newest first. A page may have fewer
    events than
    `limit`, or none, and still have a next page: one call reads a bounded part of the journal, and
    leaves out the
    events of queues on which the caller has neither `listen` nor `manage`.

    With `event=accepted` each message comes once.

    Args:
        job (None | str | Unset):
        queue (None | str | Unset):
        event (ListEventsEventType0 | None | Unset):
        since (int | None | Unset):
        until (int | None | Unset):
        meta (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[EventPage | Problem]
     """


    kwargs = _get_kwargs(
        job=job,
queue=queue,
event=event,
since=since,
until=until,
meta=meta,
limit=limit,
cursor=cursor,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    job: None | str | Unset = UNSET,
    queue: None | str | Unset = UNSET,
    event: ListEventsEventType0 | None | Unset = UNSET,
    since: int | None | Unset = UNSET,
    until: int | None | Unset = UNSET,
    meta: None | str | Unset = UNSET,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> EventPage | Problem | None:
    """ List events of messages

     Return a page of the events that meet all given conditions, newest first. A page may have fewer
    events than
    `limit`, or none, and still have a next page: one call reads a bounded part of the journal, and
    leaves out the
    events of queues on which the caller has neither `listen` nor `manage`.

    With `event=accepted` each message comes once.

    Args:
        job (None | str | Unset):
        queue (None | str | Unset):
        event (ListEventsEventType0 | None | Unset):
        since (int | None | Unset):
        until (int | None | Unset):
        meta (None | str | Unset):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        EventPage | Problem
     """


    return (await asyncio_detailed(
        client=client,
job=job,
queue=queue,
event=event,
since=since,
until=until,
meta=meta,
limit=limit,
cursor=cursor,

    )).parsed
