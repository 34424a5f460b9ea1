from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.probe import Probe
from ...models.problem import Problem
from ...models.readyz_verbose import check_readyz_verbose
from ...models.readyz_verbose import ReadyzVerbose
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    *,
    verbose: ReadyzVerbose | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

    json_verbose: str | Unset = UNSET
    if not isinstance(verbose, Unset):
        json_verbose = verbose

    params["verbose"] = json_verbose


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/readyz",
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Probe | Problem | None:
    if response.status_code == 200:
        response_200 = Probe.from_dict(response.json())



        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())



        return response_400

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Probe | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,
    verbose: ReadyzVerbose | Unset = UNSET,

) -> Response[Probe | Problem]:
    """ Readiness probe

     200 from start to stop of the gateway, while each required broker is up. The check takes at most 2
    s.

    With `verbose` the answer lists the state of the brokers that `GET /brokers` shows this caller, with
    warnings
    about their set-up, the keys of the issuers of tokens, and the schemas that are read from a URL.
    Without a valid
    token, or without the right `manage` or `observe`, the answer names no broker, unless the setting
    `open_readyz`
    allows it.

    Args:
        verbose (ReadyzVerbose | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Probe | Problem]
     """


    kwargs = _get_kwargs(
        verbose=verbose,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    *,
    client: AuthenticatedClient | Client,
    verbose: ReadyzVerbose | Unset = UNSET,

) -> Probe | Problem | None:
    """ Readiness probe

     200 from start to stop of the gateway, while each required broker is up. The check takes at most 2
    s.

    With `verbose` the answer lists the state of the brokers that `GET /brokers` shows this caller, with
    warnings
    about their set-up, the keys of the issuers of tokens, and the schemas that are read from a URL.
    Without a valid
    token, or without the right `manage` or `observe`, the answer names no broker, unless the setting
    `open_readyz`
    allows it.

    Args:
        verbose (ReadyzVerbose | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Probe | Problem
     """


    return sync_detailed(
        client=client,
verbose=verbose,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    verbose: ReadyzVerbose | Unset = UNSET,

) -> Response[Probe | Problem]:
    """ Readiness probe

     200 from start to stop of the gateway, while each required broker is up. The check takes at most 2
    s.

    With `verbose` the answer lists the state of the brokers that `GET /brokers` shows this caller, with
    warnings
    about their set-up, the keys of the issuers of tokens, and the schemas that are read from a URL.
    Without a valid
    token, or without the right `manage` or `observe`, the answer names no broker, unless the setting
    `open_readyz`
    allows it.

    Args:
        verbose (ReadyzVerbose | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Probe | Problem]
     """


    kwargs = _get_kwargs(
        verbose=verbose,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    verbose: ReadyzVerbose | Unset = UNSET,

) -> Probe | Problem | None:
    """ Readiness probe

     200 from start to stop of the gateway, while each required broker is up. The check takes at most 2
    s.

    With `verbose` the answer lists the state of the brokers that `GET /brokers` shows this caller, with
    warnings
    about their set-up, the keys of the issuers of tokens, and the schemas that are read from a URL.
    Without a valid
    token, or without the right `manage` or `observe`, the answer names no broker, unless the setting
    `open_readyz`
    allows it.

    Args:
        verbose (ReadyzVerbose | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Probe | Problem
     """


    return (await asyncio_detailed(
        client=client,
verbose=verbose,

    )).parsed
