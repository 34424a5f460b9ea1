from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.broker_list import BrokerList
from ...models.problem import Problem
from typing import cast



def _get_kwargs(
    
) -> dict[str, Any]:
    

    

    

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/brokers",
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> BrokerList | Problem | None:
    if response.status_code == 200:
        response_200 = BrokerList.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[BrokerList | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient | Client,

) -> Response[BrokerList | Problem]:
    """ List brokers

     List the brokers of the queues that the caller may manage, with their current state.

    Requires the right `manage` or `observe` on some queue. A broker is shown when that right covers one
    of its configured
    queues, or a whole configured pattern that is routed to it, or when a whole pattern of that right is
    routed to
    it. The right on `*` shows all brokers.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BrokerList | Problem]
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

) -> BrokerList | Problem | None:
    """ List brokers

     List the brokers of the queues that the caller may manage, with their current state.

    Requires the right `manage` or `observe` on some queue. A broker is shown when that right covers one
    of its configured
    queues, or a whole configured pattern that is routed to it, or when a whole pattern of that right is
    routed to
    it. The right on `*` shows all brokers.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BrokerList | Problem
     """


    return sync_detailed(
        client=client,

    ).parsed

async def asyncio_detailed(
    *,
    client: AuthenticatedClient | Client,

) -> Response[BrokerList | Problem]:
    """ List brokers

     List the brokers of the queues that the caller may manage, with their current state.

    Requires the right `manage` or `observe` on some queue. A broker is shown when that right covers one
    of its configured
    queues, or a whole configured pattern that is routed to it, or when a whole pattern of that right is
    routed to
    it. The right on `*` shows all brokers.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BrokerList | Problem]
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

) -> BrokerList | Problem | None:
    """ List brokers

     List the brokers of the queues that the caller may manage, with their current state.

    Requires the right `manage` or `observe` on some queue. A broker is shown when that right covers one
    of its configured
    queues, or a whole configured pattern that is routed to it, or when a whole pattern of that right is
    routed to
    it. The right on `*` shows all brokers.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BrokerList | Problem
     """


    return (await asyncio_detailed(
        client=client,

    )).parsed
