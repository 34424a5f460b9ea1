from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.trace_history import TraceHistory
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    trace_id: str,
    *,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

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
        "url": "/traces/{trace_id}".format(trace_id=quote(str(trace_id), safe=""),),
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | TraceHistory | None:
    if response.status_code == 200:
        response_200 = TraceHistory.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | TraceHistory]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    trace_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[Problem | TraceHistory]:
    """ Find the messages of a trace

     Return what happened to all messages with this `trace_id`, across queues and brokers, as for one
    message. A page
    has the events of all of them in the order of time, grouped by message.

    The record of a settle has no `trace_id` where the ids and the job of the message take more than 1
    KB. It is
    found by the id of the message.

    Args:
        trace_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TraceHistory]
     """


    kwargs = _get_kwargs(
        trace_id=trace_id,
limit=limit,
cursor=cursor,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    trace_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Problem | TraceHistory | None:
    """ Find the messages of a trace

     Return what happened to all messages with this `trace_id`, across queues and brokers, as for one
    message. A page
    has the events of all of them in the order of time, grouped by message.

    The record of a settle has no `trace_id` where the ids and the job of the message take more than 1
    KB. It is
    found by the id of the message.

    Args:
        trace_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | TraceHistory
     """


    return sync_detailed(
        trace_id=trace_id,
client=client,
limit=limit,
cursor=cursor,

    ).parsed

async def asyncio_detailed(
    trace_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[Problem | TraceHistory]:
    """ Find the messages of a trace

     Return what happened to all messages with this `trace_id`, across queues and brokers, as for one
    message. A page
    has the events of all of them in the order of time, grouped by message.

    The record of a settle has no `trace_id` where the ids and the job of the message take more than 1
    KB. It is
    found by the id of the message.

    Args:
        trace_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TraceHistory]
     """


    kwargs = _get_kwargs(
        trace_id=trace_id,
limit=limit,
cursor=cursor,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    trace_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Problem | TraceHistory | None:
    """ Find the messages of a trace

     Return what happened to all messages with this `trace_id`, across queues and brokers, as for one
    message. A page
    has the events of all of them in the order of time, grouped by message.

    The record of a settle has no `trace_id` where the ids and the job of the message take more than 1
    KB. It is
    found by the id of the message.

    Args:
        trace_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | TraceHistory
     """


    return (await asyncio_detailed(
        trace_id=trace_id,
client=client,
limit=limit,
cursor=cursor,

    )).parsed
