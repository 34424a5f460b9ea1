from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.push_removed import PushRemoved
from typing import cast



def _get_kwargs(
    queue: str,

) -> dict[str, Any]:
    

    

    

    _kwargs: dict[str, Any] = {
        "method": "delete",
        "url": "/queues/{queue}/push".format(queue=quote(str(queue), safe=""),),
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | PushRemoved | None:
    if response.status_code == 200:
        response_200 = PushRemoved.from_dict(response.json())



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

    if response.status_code == 409:
        response_409 = Problem.from_dict(response.json())



        return response_409

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | PushRemoved]:
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

) -> Response[Problem | PushRemoved]:
    """ Remove a push

     Push the messages of the queue no more. This process waits for posts in flight, 6 seconds at most;
    messages
    without an answer go back to the queue. Peers are told as by a `PUT`; each of them ends its own
    posts. Requires
    the right `manage`.

    Args:
        queue (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | PushRemoved]
     """


    kwargs = _get_kwargs(
        queue=queue,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    *,
    client: AuthenticatedClient | Client,

) -> Problem | PushRemoved | None:
    """ Remove a push

     Push the messages of the queue no more. This process waits for posts in flight, 6 seconds at most;
    messages
    without an answer go back to the queue. Peers are told as by a `PUT`; each of them ends its own
    posts. Requires
    the right `manage`.

    Args:
        queue (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | PushRemoved
     """


    return sync_detailed(
        queue=queue,
client=client,

    ).parsed

async def asyncio_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,

) -> Response[Problem | PushRemoved]:
    """ Remove a push

     Push the messages of the queue no more. This process waits for posts in flight, 6 seconds at most;
    messages
    without an answer go back to the queue. Peers are told as by a `PUT`; each of them ends its own
    posts. Requires
    the right `manage`.

    Args:
        queue (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | PushRemoved]
     """


    kwargs = _get_kwargs(
        queue=queue,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    *,
    client: AuthenticatedClient | Client,

) -> Problem | PushRemoved | None:
    """ Remove a push

     Push the messages of the queue no more. This process waits for posts in flight, 6 seconds at most;
    messages
    without an answer go back to the queue. Peers are told as by a `PUT`; each of them ends its own
    posts. Requires
    the right `manage`.

    Args:
        queue (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | PushRemoved
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,

    )).parsed
