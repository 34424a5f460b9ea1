from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.push_change import PushChange
from ...models.push_request import PushRequest
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    body: PushRequest,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    

    _kwargs: dict[str, Any] = {
        "method": "put",
        "url": "/queues/{queue}/push".format(queue=quote(str(queue), safe=""),),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | PushChange | None:
    if response.status_code == 200:
        response_200 = PushChange.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | PushChange]:
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
    body: PushRequest,

) -> Response[Problem | PushChange]:
    """ Set a push

     Push the messages of the queue to a webhook from now on, signed by Standard Webhooks. The push is
    stored in
    `state_dir`: every process that shares it pushes within a second. Peers on other hosts are told at
    once: the
    call waits for their answers, 3 seconds at most, and `silent` names those that gave none. A push
    that is paused
    stays so.

    Only what the section `push` of the configuration allows can be reached. Requires the right
    `manage`.

    Args:
        queue (str):
        body (PushRequest): Where the messages of the queue are pushed to, as `push` in a route of
            the configuration.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | PushChange]
     """


    kwargs = _get_kwargs(
        queue=queue,
body=body,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body: PushRequest,

) -> Problem | PushChange | None:
    """ Set a push

     Push the messages of the queue to a webhook from now on, signed by Standard Webhooks. The push is
    stored in
    `state_dir`: every process that shares it pushes within a second. Peers on other hosts are told at
    once: the
    call waits for their answers, 3 seconds at most, and `silent` names those that gave none. A push
    that is paused
    stays so.

    Only what the section `push` of the configuration allows can be reached. Requires the right
    `manage`.

    Args:
        queue (str):
        body (PushRequest): Where the messages of the queue are pushed to, as `push` in a route of
            the configuration.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | PushChange
     """


    return sync_detailed(
        queue=queue,
client=client,
body=body,

    ).parsed

async def asyncio_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body: PushRequest,

) -> Response[Problem | PushChange]:
    """ Set a push

     Push the messages of the queue to a webhook from now on, signed by Standard Webhooks. The push is
    stored in
    `state_dir`: every process that shares it pushes within a second. Peers on other hosts are told at
    once: the
    call waits for their answers, 3 seconds at most, and `silent` names those that gave none. A push
    that is paused
    stays so.

    Only what the section `push` of the configuration allows can be reached. Requires the right
    `manage`.

    Args:
        queue (str):
        body (PushRequest): Where the messages of the queue are pushed to, as `push` in a route of
            the configuration.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | PushChange]
     """


    kwargs = _get_kwargs(
        queue=queue,
body=body,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body: PushRequest,

) -> Problem | PushChange | None:
    """ Set a push

     Push the messages of the queue to a webhook from now on, signed by Standard Webhooks. The push is
    stored in
    `state_dir`: every process that shares it pushes within a second. Peers on other hosts are told at
    once: the
    call waits for their answers, 3 seconds at most, and `silent` names those that gave none. A push
    that is paused
    stays so.

    Only what the section `push` of the configuration allows can be reached. Requires the right
    `manage`.

    Args:
        queue (str):
        body (PushRequest): Where the messages of the queue are pushed to, as `push` in a route of
            the configuration.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | PushChange
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
body=body,

    )).parsed
