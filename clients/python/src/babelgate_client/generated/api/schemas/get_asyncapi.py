from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.get_asyncapi_response_get_asyncapi_asyncapi_json_get import GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet
from ...models.problem import Problem
from typing import cast



def _get_kwargs(
    
) -> dict[str, Any]:
    

    

    

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/asyncapi.json",
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem | None:
    if response.status_code == 200:
        response_200 = GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,

) -> Response[GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem]:
    """ Get the AsyncAPI document

     Describe the queues that the caller may use, and the jobs that have schemas, as a document of
    AsyncAPI 3.0. It is
    that of an application with the rights of the caller, which sends where the caller may publish, and
    receives where the
    caller may consume. Schemas are in JSON Schema draft 7. A caller with the right `manage` also sees
    native names and
    the addresses of brokers, without credentials. The answer has an `ETag`; with `If-None-Match` an
    unchanged document
    is 304. Requires any right on any queue.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem]
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

) -> GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem | None:
    """ Get the AsyncAPI document

     Describe the queues that the caller may use, and the jobs that have schemas, as a document of
    AsyncAPI 3.0. It is
    that of an application with the rights of the caller, which sends where the caller may publish, and
    receives where the
    caller may consume. Schemas are in JSON Schema draft 7. A caller with the right `manage` also sees
    native names and
    the addresses of brokers, without credentials. The answer has an `ETag`; with `If-None-Match` an
    unchanged document
    is 304. Requires any right on any queue.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem
     """


    return sync_detailed(
        client=client,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,

) -> Response[GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem]:
    """ Get the AsyncAPI document

     Describe the queues that the caller may use, and the jobs that have schemas, as a document of
    AsyncAPI 3.0. It is
    that of an application with the rights of the caller, which sends where the caller may publish, and
    receives where the
    caller may consume. Schemas are in JSON Schema draft 7. A caller with the right `manage` also sees
    native names and
    the addresses of brokers, without credentials. The answer has an `ETag`; with `If-None-Match` an
    unchanged document
    is 304. Requires any right on any queue.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem]
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

) -> GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem | None:
    """ Get the AsyncAPI document

     Describe the queues that the caller may use, and the jobs that have schemas, as a document of
    AsyncAPI 3.0. It is
    that of an application with the rights of the caller, which sends where the caller may publish, and
    receives where the
    caller may consume. Schemas are in JSON Schema draft 7. A caller with the right `manage` also sees
    native names and
    the addresses of brokers, without credentials. The answer has an `ETag`; with `If-None-Match` an
    unchanged document
    is 304. Requires any right on any queue.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet | Problem
     """


    return (await asyncio_detailed(
        client=client,

    )).parsed
