from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.issued_token import IssuedToken
from ...models.problem import Problem
from ...models.token_request import TokenRequest
from typing import cast



def _get_kwargs(
    *,
    body: TokenRequest,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/tokens",
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> IssuedToken | Problem | None:
    if response.status_code == 201:
        response_201 = IssuedToken.from_dict(response.json())



        return response_201

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
    *,
    client: AuthenticatedClient | Client,
    body: TokenRequest,

) -> Response[IssuedToken | Problem]:
    """ Make a token

     Make a bearer token with an end, at most `auth.made_tokens.max_ttl_seconds` away. The answer has its
    secret, which
    is shown once; `state_dir` keeps its SHA-256. The token is valid at this process, at those that
    `told` counts, and
    within a second at those that share `state_dir`.

    A caller grants only rights that it has itself: `manage`, and each right that is granted, are
    required on all queues
    of `rights`.

    With `page` it is a token for a web page, where anyone can read it: it can only publish, from pages
    of these
    origins, at most `per_minute` messages of at most `max_message_bytes`.

    Args:
        body (TokenRequest): A token to be made. It needs one of `ttl_seconds` and `ends_at`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[IssuedToken | Problem]
     """


    kwargs = _get_kwargs(
        body=body,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    *,
    client: AuthenticatedClient | Client,
    body: TokenRequest,

) -> IssuedToken | Problem | None:
    """ Make a token

     Make a bearer token with an end, at most `auth.made_tokens.max_ttl_seconds` away. The answer has its
    secret, which
    is shown once; `state_dir` keeps its SHA-256. The token is valid at this process, at those that
    `told` counts, and
    within a second at those that share `state_dir`.

    A caller grants only rights that it has itself: `manage`, and each right that is granted, are
    required on all queues
    of `rights`.

    With `page` it is a token for a web page, where anyone can read it: it can only publish, from pages
    of these
    origins, at most `per_minute` messages of at most `max_message_bytes`.

    Args:
        body (TokenRequest): A token to be made. It needs one of `ttl_seconds` and `ends_at`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        IssuedToken | Problem
     """


    return sync_detailed(
        client=client,
body=body,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    body: TokenRequest,

) -> Response[IssuedToken | Problem]:
    """ Make a token

     Make a bearer token with an end, at most `auth.made_tokens.max_ttl_seconds` away. The answer has its
    secret, which
    is shown once; `state_dir` keeps its SHA-256. The token is valid at this process, at those that
    `told` counts, and
    within a second at those that share `state_dir`.

    A caller grants only rights that it has itself: `manage`, and each right that is granted, are
    required on all queues
    of `rights`.

    With `page` it is a token for a web page, where anyone can read it: it can only publish, from pages
    of these
    origins, at most `per_minute` messages of at most `max_message_bytes`.

    Args:
        body (TokenRequest): A token to be made. It needs one of `ttl_seconds` and `ends_at`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[IssuedToken | Problem]
     """


    kwargs = _get_kwargs(
        body=body,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    body: TokenRequest,

) -> IssuedToken | Problem | None:
    """ Make a token

     Make a bearer token with an end, at most `auth.made_tokens.max_ttl_seconds` away. The answer has its
    secret, which
    is shown once; `state_dir` keeps its SHA-256. The token is valid at this process, at those that
    `told` counts, and
    within a second at those that share `state_dir`.

    A caller grants only rights that it has itself: `manage`, and each right that is granted, are
    required on all queues
    of `rights`.

    With `page` it is a token for a web page, where anyone can read it: it can only publish, from pages
    of these
    origins, at most `per_minute` messages of at most `max_message_bytes`.

    Args:
        body (TokenRequest): A token to be made. It needs one of `ttl_seconds` and `ends_at`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        IssuedToken | Problem
     """


    return (await asyncio_detailed(
        client=client,
body=body,

    )).parsed
