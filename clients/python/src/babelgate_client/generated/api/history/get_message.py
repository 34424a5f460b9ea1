from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.message_history import MessageHistory
from ...models.problem import Problem
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    message_id: str,
    *,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

    params["limit"] = limit

    json_cursor: None | str | Unset
    if isinstance(cursor, Unset):
        json_cursor = UNSET
    else:
        json_cursor = cursor
    params["cursor"] = json_cursor


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/messages/{message_id}".format(message_id=quote(str(message_id), safe=""),),
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> MessageHistory | Problem | None:
    if response.status_code == 200:
        response_200 = MessageHistory.from_dict(response.json())



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

    if response.status_code == 429:
        response_429 = Problem.from_dict(response.json())



        return response_429

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[MessageHistory | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    message_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[MessageHistory | Problem]:
    """ Find a message

     Return what happened to a message, and where it is, from the journals of this gateway and all its
    peers. Events
    are found at most 200 ms after they happened.

    Only events that a gateway has recorded are known: not what other programs do at the broker, nor the
    extend of a
    lease. Events of queues on which the caller has neither `listen` nor `manage` are left out.
    `searched` says how
    far back the journals reach, and which gateways gave no answer.

    Args:
        message_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[MessageHistory | Problem]
     """


    kwargs = _get_kwargs(
        message_id=message_id,
limit=limit,
cursor=cursor,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    message_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> MessageHistory | Problem | None:
    """ Find a message

     Return what happened to a message, and where it is, from the journals of this gateway and all its
    peers. Events
    are found at most 200 ms after they happened.

    Only events that a gateway has recorded are known: not what other programs do at the broker, nor the
    extend of a
    lease. Events of queues on which the caller has neither `listen` nor `manage` are left out.
    `searched` says how
    far back the journals reach, and which gateways gave no answer.

    Args:
        message_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        MessageHistory | Problem
     """


    return sync_detailed(
        message_id=message_id,
client=client,
limit=limit,
cursor=cursor,

    ).parsed

async def asyncio_detailed(
    message_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[MessageHistory | Problem]:
    """ Find a message

     Return what happened to a message, and where it is, from the journals of this gateway and all its
    peers. Events
    are found at most 200 ms after they happened.

    Only events that a gateway has recorded are known: not what other programs do at the broker, nor the
    extend of a
    lease. Events of queues on which the caller has neither `listen` nor `manage` are left out.
    `searched` says how
    far back the journals reach, and which gateways gave no answer.

    Args:
        message_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[MessageHistory | Problem]
     """


    kwargs = _get_kwargs(
        message_id=message_id,
limit=limit,
cursor=cursor,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    message_id: str,
    *,
    client: AuthenticatedClient | Client,
    limit: int | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> MessageHistory | Problem | None:
    """ Find a message

     Return what happened to a message, and where it is, from the journals of this gateway and all its
    peers. Events
    are found at most 200 ms after they happened.

    Only events that a gateway has recorded are known: not what other programs do at the broker, nor the
    extend of a
    lease. Events of queues on which the caller has neither `listen` nor `manage` are left out.
    `searched` says how
    far back the journals reach, and which gateways gave no answer.

    Args:
        message_id (str):
        limit (int | Unset):
        cursor (None | str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        MessageHistory | Problem
     """


    return (await asyncio_detailed(
        message_id=message_id,
client=client,
limit=limit,
cursor=cursor,

    )).parsed
