from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.loaded_configuration import LoadedConfiguration
from ...models.problem import Problem
from typing import cast



def _get_kwargs(
    
) -> dict[str, Any]:
    

    

    

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/config",
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> LoadedConfiguration | Problem | None:
    if response.status_code == 200:
        response_200 = LoadedConfiguration.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[LoadedConfiguration | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,

) -> Response[LoadedConfiguration | Problem]:
    """ Show the configuration

     Return the configuration that the process that answers serves by: its file with all defaults, and
    with secrets,
    digests of tokens and passwords in URLs masked. `refused` says why the last attempt to load another
    one failed,
    `workers` what each worker of the gateway serves.

    Requires the right `manage` on `*`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[LoadedConfiguration | Problem]
     """


    kwargs = _get_kwargs(
        
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    *,
    client: AuthenticatedClient | Client,

) -> LoadedConfiguration | Problem | None:
    """ Show the configuration

     Return the configuration that the process that answers serves by: its file with all defaults, and
    with secrets,
    digests of tokens and passwords in URLs masked. `refused` says why the last attempt to load another
    one failed,
    `workers` what each worker of the gateway serves.

    Requires the right `manage` on `*`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        LoadedConfiguration | Problem
     """


    return sync_detailed(
        client=client,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,

) -> Response[LoadedConfiguration | Problem]:
    """ Show the configuration

     Return the configuration that the process that answers serves by: its file with all defaults, and
    with secrets,
    digests of tokens and passwords in URLs masked. `refused` says why the last attempt to load another
    one failed,
    `workers` what each worker of the gateway serves.

    Requires the right `manage` on `*`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[LoadedConfiguration | Problem]
     """


    kwargs = _get_kwargs(
        
    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    *,
    client: AuthenticatedClient | Client,

) -> LoadedConfiguration | Problem | None:
    """ Show the configuration

     Return the configuration that the process that answers serves by: its file with all defaults, and
    with secrets,
    digests of tokens and passwords in URLs masked. `refused` says why the last attempt to load another
    one failed,
    `workers` what each worker of the gateway serves.

    Requires the right `manage` on `*`.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        LoadedConfiguration | Problem
     """


    return (await asyncio_detailed(
        client=client,

    )).parsed
