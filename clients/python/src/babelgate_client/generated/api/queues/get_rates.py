from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.rates import Rates
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    *,
    limit: int | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

    params["limit"] = limit


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/rates",
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | Rates | None:
    if response.status_code == 200:
        response_200 = Rates.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | Rates]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,

) -> Response[Problem | Rates]:
    """ Get the last hour of all queues

     Get the sum of the last hour over all queues on which the caller has any right, the busiest of these
    queues, and
    what needs attention.

    The figures are those of the workers of the gateway that answers, from their memory. With several
    workers, of
    which one has used more than 1,000 queues within the hour, those of a queue may lack some of its
    messages; the
    sums have all. `circuit_open`, `storage_refused` and `broker_warning` concern brokers that the
    caller may
    manage, as the process that answers sees them, and `push_circuit_open` is of the pushes of this
    process. Counts of queues are at most 5 seconds old, and missing where the
    broker does not answer within 2 seconds.

    Args:
        limit (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Rates]
     """


    kwargs = _get_kwargs(
        limit=limit,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,

) -> Problem | Rates | None:
    """ Get the last hour of all queues

     Get the sum of the last hour over all queues on which the caller has any right, the busiest of these
    queues, and
    what needs attention.

    The figures are those of the workers of the gateway that answers, from their memory. With several
    workers, of
    which one has used more than 1,000 queues within the hour, those of a queue may lack some of its
    messages; the
    sums have all. `circuit_open`, `storage_refused` and `broker_warning` concern brokers that the
    caller may
    manage, as the process that answers sees them, and `push_circuit_open` is of the pushes of this
    process. Counts of queues are at most 5 seconds old, and missing where the
    broker does not answer within 2 seconds.

    Args:
        limit (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Rates
     """


    return sync_detailed(
        client=client,
limit=limit,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,

) -> Response[Problem | Rates]:
    """ Get the last hour of all queues

     Get the sum of the last hour over all queues on which the caller has any right, the busiest of these
    queues, and
    what needs attention.

    The figures are those of the workers of the gateway that answers, from their memory. With several
    workers, of
    which one has used more than 1,000 queues within the hour, those of a queue may lack some of its
    messages; the
    sums have all. `circuit_open`, `storage_refused` and `broker_warning` concern brokers that the
    caller may
    manage, as the process that answers sees them, and `push_circuit_open` is of the pushes of this
    process. Counts of queues are at most 5 seconds old, and missing where the
    broker does not answer within 2 seconds.

    Args:
        limit (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Rates]
     """


    kwargs = _get_kwargs(
        limit=limit,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,

) -> Problem | Rates | None:
    """ Get the last hour of all queues

     Get the sum of the last hour over all queues on which the caller has any right, the busiest of these
    queues, and
    what needs attention.

    The figures are those of the workers of the gateway that answers, from their memory. With several
    workers, of
    which one has used more than 1,000 queues within the hour, those of a queue may lack some of its
    messages; the
    sums have all. `circuit_open`, `storage_refused` and `broker_warning` concern brokers that the
    caller may
    manage, as the process that answers sees them, and `push_circuit_open` is of the pushes of this
    process. Counts of queues are at most 5 seconds old, and missing where the
    broker does not answer within 2 seconds.

    Args:
        limit (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Rates
     """


    return (await asyncio_detailed(
        client=client,
limit=limit,

    )).parsed
