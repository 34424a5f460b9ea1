from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.batch_result import BatchResult
from ...models.draft import Draft
from ...models.problem import Problem
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    body: list[Draft],

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/queues/{queue}/messages:batch".format(queue=quote(str(queue), safe=""),),
    }

    _kwargs["json"] = []
    for body_item_data in body:
        body_item = body_item_data.to_dict()
        _kwargs["json"].append(body_item)



    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> BatchResult | Problem | None:
    if response.status_code == 201:
        response_201 = BatchResult.from_dict(response.json())



        return response_201

    if response.status_code == 207:
        response_207 = BatchResult.from_dict(response.json())



        return response_207

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

    if response.status_code == 507:
        response_507 = Problem.from_dict(response.json())



        return response_507

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[BatchResult | Problem]:
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
    body: list[Draft],

) -> Response[BatchResult | Problem]:
    """ Publish many messages

     A JSON array of at most 10000 entries, or NDJSON (`application/x-ndjson`) with one entry per line;
    blank lines are skipped. An entry is a body of a single publish: a draft, an envelope, or an entry
    that wraps one. In an array of the media type `application/openjobspec+json` it is a job, in one of
    `application/cloudevents-batch+json` an event. Each entry has its own result, in order. The first
    100 failed entries have `detail` and `errors`. An NDJSON upload ends after 10,000 failed entries.

    Args:
        queue (str):
        body (list[Draft]):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BatchResult | Problem]
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
    body: list[Draft],

) -> BatchResult | Problem | None:
    """ Publish many messages

     A JSON array of at most 10000 entries, or NDJSON (`application/x-ndjson`) with one entry per line;
    blank lines are skipped. An entry is a body of a single publish: a draft, an envelope, or an entry
    that wraps one. In an array of the media type `application/openjobspec+json` it is a job, in one of
    `application/cloudevents-batch+json` an event. Each entry has its own result, in order. The first
    100 failed entries have `detail` and `errors`. An NDJSON upload ends after 10,000 failed entries.

    Args:
        queue (str):
        body (list[Draft]):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BatchResult | Problem
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
    body: list[Draft],

) -> Response[BatchResult | Problem]:
    """ Publish many messages

     A JSON array of at most 10000 entries, or NDJSON (`application/x-ndjson`) with one entry per line;
    blank lines are skipped. An entry is a body of a single publish: a draft, an envelope, or an entry
    that wraps one. In an array of the media type `application/openjobspec+json` it is a job, in one of
    `application/cloudevents-batch+json` an event. Each entry has its own result, in order. The first
    100 failed entries have `detail` and `errors`. An NDJSON upload ends after 10,000 failed entries.

    Args:
        queue (str):
        body (list[Draft]):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BatchResult | Problem]
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
    body: list[Draft],

) -> BatchResult | Problem | None:
    """ Publish many messages

     A JSON array of at most 10000 entries, or NDJSON (`application/x-ndjson`) with one entry per line;
    blank lines are skipped. An entry is a body of a single publish: a draft, an envelope, or an entry
    that wraps one. In an array of the media type `application/openjobspec+json` it is a job, in one of
    `application/cloudevents-batch+json` an event. Each entry has its own result, in order. The first
    100 failed entries have `detail` and `errors`. An NDJSON upload ends after 10,000 failed entries.

    Args:
        queue (str):
        body (list[Draft]):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BatchResult | Problem
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
body=body,

    )).parsed
