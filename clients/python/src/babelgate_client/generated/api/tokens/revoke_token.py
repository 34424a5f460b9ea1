from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.revoked_token import RevokedToken
from typing import cast



def _get_kwargs(
    id: str,

) -> dict[str, Any]:
    

    

    

    _kwargs: dict[str, Any] = {
        "method": "delete",
        "url": "/tokens/{id}".format(id=quote(str(id), safe=""),),
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | RevokedToken | None:
    if response.status_code == 200:
        response_200 = RevokedToken.from_dict(response.json())



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

    if response.status_code == 431:
        response_431 = Problem.from_dict(response.json())



        return response_431

    if response.status_code == 500:
        response_500 = Problem.from_dict(response.json())



        return response_500

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())



        return response_503

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | RevokedToken]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    id: str,
    *,
    client: AuthenticatedClient | Client,

) -> Response[Problem | RevokedToken]:
    """ Revoke a token

     Make a token invalid. Requests, streams, waiting receives and sessions of the console that use it
    end. The answer
    comes when all peers know it, or after 3 seconds; `silent` names those that gave no answer. They
    learn it within 5
    seconds once they can be reached, and refuse the token by then.

    Requires the right `manage` on all queues of the token.

    Args:
        id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | RevokedToken]
     """


    kwargs = _get_kwargs(
        id=id,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    id: str,
    *,
    client: AuthenticatedClient | Client,

) -> Problem | RevokedToken | None:
    """ Revoke a token

     Make a token invalid. Requests, streams, waiting receives and sessions of the console that use it
    end. The answer
    comes when all peers know it, or after 3 seconds; `silent` names those that gave no answer. They
    learn it within 5
    seconds once they can be reached, and refuse the token by then.

    Requires the right `manage` on all queues of the token.

    Args:
        id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | RevokedToken
     """


    return sync_detailed(
        id=id,
client=client,

    ).parsed

async def asyncio_detailed(
    id: str,
    *,
    client: AuthenticatedClient | Client,

) -> Response[Problem | RevokedToken]:
    """ Revoke a token

     Make a token invalid. Requests, streams, waiting receives and sessions of the console that use it
    end. The answer
    comes when all peers know it, or after 3 seconds; `silent` names those that gave no answer. They
    learn it within 5
    seconds once they can be reached, and refuse the token by then.

    Requires the right `manage` on all queues of the token.

    Args:
        id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | RevokedToken]
     """


    kwargs = _get_kwargs(
        id=id,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    id: str,
    *,
    client: AuthenticatedClient | Client,

) -> Problem | RevokedToken | None:
    """ Revoke a token

     Make a token invalid. Requests, streams, waiting receives and sessions of the console that use it
    end. The answer
    comes when all peers know it, or after 3 seconds; `silent` names those that gave no answer. They
    learn it within 5
    seconds once they can be reached, and refuse the token by then.

    Requires the right `manage` on all queues of the token.

    Args:
        id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | RevokedToken
     """


    return (await asyncio_detailed(
        id=id,
client=client,

    )).parsed
