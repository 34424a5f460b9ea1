from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.queue_list import QueueList
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    *,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,
    paused: bool | None | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

    params["limit"] = limit

    json_cursor: None | str | Unset
    if isinstance(cursor, Unset):
        json_cursor = UNSET
    else:
        json_cursor = cursor
    params["cursor"] = json_cursor

    json_paused: bool | None | Unset
    if isinstance(paused, Unset):
        json_paused = UNSET
    else:
        json_paused = paused
    params["paused"] = json_paused


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/queues",
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | QueueList | None:
    if response.status_code == 200:
        response_200 = QueueList.from_dict(response.json())



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

    if response.status_code == 408:
        response_408 = Problem.from_dict(response.json())



        return response_408

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | QueueList]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,
    paused: bool | None | Unset = UNSET,

) -> Response[Problem | QueueList]:
    """ List queues

     List the known queues on which the caller has any right, by name.

    A queue is known if it is configured by name, if its broker lists it, or if the process that answers
    has used
    it or knows that it is paused; `source` says which. The table of brokers in the documentation says
    which brokers
    list their queues. With `paused=true` the list has the paused queues only.

    Args:
        limit (int | Unset):
        cursor (None | str | Unset):
        paused (bool | None | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | QueueList]
     """


    kwargs = _get_kwargs(
        limit=limit,
cursor=cursor,
paused=paused,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,
    paused: bool | None | Unset = UNSET,

) -> Problem | QueueList | None:
    """ List queues

     List the known queues on which the caller has any right, by name.

    A queue is known if it is configured by name, if its broker lists it, or if the process that answers
    has used
    it or knows that it is paused; `source` says which. The table of brokers in the documentation says
    which brokers
    list their queues. With `paused=true` the list has the paused queues only.

    Args:
        limit (int | Unset):
        cursor (None | str | Unset):
        paused (bool | None | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | QueueList
     """


    return sync_detailed(
        client=client,
limit=limit,
cursor=cursor,
paused=paused,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,
    paused: bool | None | Unset = UNSET,

) -> Response[Problem | QueueList]:
    """ List queues

     List the known queues on which the caller has any right, by name.

    A queue is known if it is configured by name, if its broker lists it, or if the process that answers
    has used
    it or knows that it is paused; `source` says which. The table of brokers in the documentation says
    which brokers
    list their queues. With `paused=true` the list has the paused queues only.

    Args:
        limit (int | Unset):
        cursor (None | str | Unset):
        paused (bool | None | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | QueueList]
     """


    kwargs = _get_kwargs(
        limit=limit,
cursor=cursor,
paused=paused,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,
    paused: bool | None | Unset = UNSET,

) -> Problem | QueueList | None:
    """ List queues

     List the known queues on which the caller has any right, by name.

    A queue is known if it is configured by name, if its broker lists it, or if the process that answers
    has used
    it or knows that it is paused; `source` says which. The table of brokers in the documentation says
    which brokers
    list their queues. With `paused=true` the list has the paused queues only.

    Args:
        limit (int | Unset):
        cursor (None | str | Unset):
        paused (bool | None | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | QueueList
     """


    return (await asyncio_detailed(
        client=client,
limit=limit,
cursor=cursor,
paused=paused,

    )).parsed
