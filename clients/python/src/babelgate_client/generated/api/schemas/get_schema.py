from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.get_schema_response_get_schema_schemas_job_get import GetSchemaResponseGetSchemaSchemasJobGet
from ...models.problem import Problem
from typing import cast



def _get_kwargs(
    job: str,

) -> dict[str, Any]:
    

    

    

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/schemas/{job}".format(job=quote(str(job), safe=""),),
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> GetSchemaResponseGetSchemaSchemasJobGet | Problem | None:
    if response.status_code == 200:
        response_200 = GetSchemaResponseGetSchemaSchemasJobGet.from_dict(response.json())



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

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[GetSchemaResponseGetSchemaSchemasJobGet | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    job: str,
    *,
    client: AuthenticatedClient | Client,

) -> Response[GetSchemaResponseGetSchemaSchemasJobGet | Problem]:
    """ Get the schema of a job

     Return the JSON Schema (2020-12) of the `data` of a job, byte for byte as its file has it. A `$ref`
    to another job
    leads to the schema of that job. The answer has an `ETag`; with `If-None-Match` an unchanged schema
    is 304.
    Requires any right on any queue.

    Args:
        job (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[GetSchemaResponseGetSchemaSchemasJobGet | Problem]
     """


    kwargs = _get_kwargs(
        job=job,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    job: str,
    *,
    client: AuthenticatedClient | Client,

) -> GetSchemaResponseGetSchemaSchemasJobGet | Problem | None:
    """ Get the schema of a job

     Return the JSON Schema (2020-12) of the `data` of a job, byte for byte as its file has it. A `$ref`
    to another job
    leads to the schema of that job. The answer has an `ETag`; with `If-None-Match` an unchanged schema
    is 304.
    Requires any right on any queue.

    Args:
        job (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        GetSchemaResponseGetSchemaSchemasJobGet | Problem
     """


    return sync_detailed(
        job=job,
client=client,

    ).parsed

async def asyncio_detailed(
    job: str,
    *,
    client: AuthenticatedClient | Client,

) -> Response[GetSchemaResponseGetSchemaSchemasJobGet | Problem]:
    """ Get the schema of a job

     Return the JSON Schema (2020-12) of the `data` of a job, byte for byte as its file has it. A `$ref`
    to another job
    leads to the schema of that job. The answer has an `ETag`; with `If-None-Match` an unchanged schema
    is 304.
    Requires any right on any queue.

    Args:
        job (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[GetSchemaResponseGetSchemaSchemasJobGet | Problem]
     """


    kwargs = _get_kwargs(
        job=job,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    job: str,
    *,
    client: AuthenticatedClient | Client,

) -> GetSchemaResponseGetSchemaSchemasJobGet | Problem | None:
    """ Get the schema of a job

     Return the JSON Schema (2020-12) of the `data` of a job, byte for byte as its file has it. A `$ref`
    to another job
    leads to the schema of that job. The answer has an `ETag`; with `If-None-Match` an unchanged schema
    is 304.
    Requires any right on any queue.

    Args:
        job (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        GetSchemaResponseGetSchemaSchemasJobGet | Problem
     """


    return (await asyncio_detailed(
        job=job,
client=client,

    )).parsed
