from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.receive_request import ReceiveRequest
from ...models.received import Received
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    body: ReceiveRequest | Unset = UNSET,
    max_messages: int | Unset = UNSET,
    wait_seconds: float | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    params: dict[str, Any] = {}

    params["max_messages"] = max_messages

    params["wait_seconds"] = wait_seconds

    params["lease_seconds"] = lease_seconds


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/queues/{queue}/messages:receive".format(queue=quote(str(queue), safe=""),),
        "params": params,
    }

    
    if not isinstance(body, Unset):
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Any | Problem | Received | None:
    if response.status_code == 200:
        response_200 = Received.from_dict(response.json())



        return response_200

    if response.status_code == 204:
        response_204 = cast(Any, None)
        return response_204

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

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Any | Problem | Received]:
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
    body: ReceiveRequest | Unset = UNSET,
    max_messages: int | Unset = UNSET,
    wait_seconds: float | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,

) -> Response[Any | Problem | Received]:
    """ Receive messages

     Delivers up to `max_messages`, each with a lease that ends at `lease_expires_at`. Waits up to
    `wait_seconds` for the first message. A client that disconnects before the answer loses no message.
    A paused queue hands nothing out: the answer is an empty list with `paused: true`. With `Accept:
    application/vnd.babelqueue.envelope+json` the answer is the bare body of one message, with its token
    in `Ack-Token`. With `Accept: application/cloudevents+json` it is one CloudEvent, and with
    `application/cloudevents-batch+json` an array of them, each with its token in the attribute
    `bqacktoken`. The parameters are in the query or in the body, not in both.

    Args:
        queue (str):
        max_messages (int | Unset):
        wait_seconds (float | Unset):
        lease_seconds (float | Unset):
        body (ReceiveRequest | Unset): The parameters of a receive. ``lease_seconds`` defaults to
            the queue's policy.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Any | Problem | Received]
     """


    kwargs = _get_kwargs(
        queue=queue,
body=body,
max_messages=max_messages,
wait_seconds=wait_seconds,
lease_seconds=lease_seconds,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body: ReceiveRequest | Unset = UNSET,
    max_messages: int | Unset = UNSET,
    wait_seconds: float | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,

) -> Any | Problem | Received | None:
    """ Receive messages

     Delivers up to `max_messages`, each with a lease that ends at `lease_expires_at`. Waits up to
    `wait_seconds` for the first message. A client that disconnects before the answer loses no message.
    A paused queue hands nothing out: the answer is an empty list with `paused: true`. With `Accept:
    application/vnd.babelqueue.envelope+json` the answer is the bare body of one message, with its token
    in `Ack-Token`. With `Accept: application/cloudevents+json` it is one CloudEvent, and with
    `application/cloudevents-batch+json` an array of them, each with its token in the attribute
    `bqacktoken`. The parameters are in the query or in the body, not in both.

    Args:
        queue (str):
        max_messages (int | Unset):
        wait_seconds (float | Unset):
        lease_seconds (float | Unset):
        body (ReceiveRequest | Unset): The parameters of a receive. ``lease_seconds`` defaults to
            the queue's policy.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Any | Problem | Received
     """


    return sync_detailed(
        queue=queue,
client=client,
body=body,
max_messages=max_messages,
wait_seconds=wait_seconds,
lease_seconds=lease_seconds,

    ).parsed

async def asyncio_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body: ReceiveRequest | Unset = UNSET,
    max_messages: int | Unset = UNSET,
    wait_seconds: float | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,

) -> Response[Any | Problem | Received]:
    """ Receive messages

     Delivers up to `max_messages`, each with a lease that ends at `lease_expires_at`. Waits up to
    `wait_seconds` for the first message. A client that disconnects before the answer loses no message.
    A paused queue hands nothing out: the answer is an empty list with `paused: true`. With `Accept:
    application/vnd.babelqueue.envelope+json` the answer is the bare body of one message, with its token
    in `Ack-Token`. With `Accept: application/cloudevents+json` it is one CloudEvent, and with
    `application/cloudevents-batch+json` an array of them, each with its token in the attribute
    `bqacktoken`. The parameters are in the query or in the body, not in both.

    Args:
        queue (str):
        max_messages (int | Unset):
        wait_seconds (float | Unset):
        lease_seconds (float | Unset):
        body (ReceiveRequest | Unset): The parameters of a receive. ``lease_seconds`` defaults to
            the queue's policy.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Any | Problem | Received]
     """


    kwargs = _get_kwargs(
        queue=queue,
body=body,
max_messages=max_messages,
wait_seconds=wait_seconds,
lease_seconds=lease_seconds,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body: ReceiveRequest | Unset = UNSET,
    max_messages: int | Unset = UNSET,
    wait_seconds: float | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,

) -> Any | Problem | Received | None:
    """ Receive messages

     Delivers up to `max_messages`, each with a lease that ends at `lease_expires_at`. Waits up to
    `wait_seconds` for the first message. A client that disconnects before the answer loses no message.
    A paused queue hands nothing out: the answer is an empty list with `paused: true`. With `Accept:
    application/vnd.babelqueue.envelope+json` the answer is the bare body of one message, with its token
    in `Ack-Token`. With `Accept: application/cloudevents+json` it is one CloudEvent, and with
    `application/cloudevents-batch+json` an array of them, each with its token in the attribute
    `bqacktoken`. The parameters are in the query or in the body, not in both.

    Args:
        queue (str):
        max_messages (int | Unset):
        wait_seconds (float | Unset):
        lease_seconds (float | Unset):
        body (ReceiveRequest | Unset): The parameters of a receive. ``lease_seconds`` defaults to
            the queue's policy.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Any | Problem | Received
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
body=body,
max_messages=max_messages,
wait_seconds=wait_seconds,
lease_seconds=lease_seconds,

    )).parsed
