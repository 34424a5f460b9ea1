from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.issued_token import IssuedToken
from ...models.problem import Problem
from ...models.rotation_request import RotationRequest
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    id: str,
    *,
    body: RotationRequest | Unset = UNSET,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/tokens/{id}:rotate".format(id=quote(str(id), safe=""),),
    }

    
    if not isinstance(body, Unset):
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> IssuedToken | Problem | None:
    if response.status_code == 200:
        response_200 = IssuedToken.from_dict(response.json())



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

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())



        return response_413

    if response.status_code == 415:
        response_415 = Problem.from_dict(response.json())



        return response_415

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[IssuedToken | Problem]:
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
    body: RotationRequest | Unset = UNSET,

) -> Response[IssuedToken | Problem]:
    """ Rotate a token

     Give a token a new secret, and a new end if one is asked for. The old secret stays valid for
    `overlap_seconds`, so
    that its holders can change it without a break; a secret from before that ends at once.

    Requires what it takes to make the token.

    Args:
        id (str):
        body (RotationRequest | Unset): How to rotate. Without a body: the old secret is valid for
            an hour, and the end stays.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[IssuedToken | Problem]
     """


    kwargs = _get_kwargs(
        id=id,
body=body,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RotationRequest | Unset = UNSET,

) -> IssuedToken | Problem | None:
    """ Rotate a token

     Give a token a new secret, and a new end if one is asked for. The old secret stays valid for
    `overlap_seconds`, so
    that its holders can change it without a break; a secret from before that ends at once.

    Requires what it takes to make the token.

    Args:
        id (str):
        body (RotationRequest | Unset): How to rotate. Without a body: the old secret is valid for
            an hour, and the end stays.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        IssuedToken | Problem
     """


    return sync_detailed(
        id=id,
client=client,
body=body,

    ).parsed

async def asyncio_detailed(
    id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RotationRequest | Unset = UNSET,

) -> Response[IssuedToken | Problem]:
    """ Rotate a token

     Give a token a new secret, and a new end if one is asked for. The old secret stays valid for
    `overlap_seconds`, so
    that its holders can change it without a break; a secret from before that ends at once.

    Requires what it takes to make the token.

    Args:
        id (str):
        body (RotationRequest | Unset): How to rotate. Without a body: the old secret is valid for
            an hour, and the end stays.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[IssuedToken | Problem]
     """


    kwargs = _get_kwargs(
        id=id,
body=body,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RotationRequest | Unset = UNSET,

) -> IssuedToken | Problem | None:
    """ Rotate a token

     Give a token a new secret, and a new end if one is asked for. The old secret stays valid for
    `overlap_seconds`, so
    that its holders can change it without a break; a secret from before that ends at once.

    Requires what it takes to make the token.

    Args:
        id (str):
        body (RotationRequest | Unset): How to rotate. Without a body: the old secret is valid for
            an hour, and the end stays.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        IssuedToken | Problem
     """


    return (await asyncio_detailed(
        id=id,
client=client,
body=body,

    )).parsed
