from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    max_in_flight: int | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,
    auto_extend: bool | Unset = UNSET,

) -> dict[str, Any]:
    

    

    params: dict[str, Any] = {}

    params["max_in_flight"] = max_in_flight

    params["lease_seconds"] = lease_seconds

    params["auto_extend"] = auto_extend


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/queues/{queue}/messages:stream".format(queue=quote(str(queue), safe=""),),
        "params": params,
    }


    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | str | None:
    if response.status_code == 200:
        response_200 = response.text
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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | str]:
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
    max_in_flight: int | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,
    auto_extend: bool | Unset = UNSET,

) -> Response[Problem | str]:
    """ Stream messages, for clients without POST

     Delivers messages as they come, for as long as the client reads, with at most `max_in_flight` that
    are delivered and not settled. Settle them by the ordinary calls, at any replica. The gateway
    prolongs their leases while the stream is open. When the stream ends, what is not settled is on the
    queue again at once, and no attempt is counted. The events are `message` (its data is that of a
    received message), `problem` (a failure: the gateway tries again if it is `retryable`, and ends the
    stream if not) and `drain` (the gateway stops and hands out nothing more; it ends the stream when
    all is settled, after 5 seconds at the latest). A keep-alive comes every 15 seconds. `Accept:
    application/x-ndjson` asks for one JSON object on each line; without it the answer has Server-Sent
    Events. A GET with `Upgrade: websocket` (subprotocol `babelgate.v1`) gets the same events as text
    frames, and takes the body of `messages:settle` and `{"max_in_flight": …}` in band. With
    `application/cloudevents+json` beside it in `Accept`, the data of a `message` is a CloudEvent.
    `Last-Event-ID` is refused with 422 `resume_unsupported`, because a lease is no position in a queue.

    Args:
        queue (str):
        max_in_flight (int | Unset):
        lease_seconds (float | Unset):
        auto_extend (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | str]
     """


    kwargs = _get_kwargs(
        queue=queue,
max_in_flight=max_in_flight,
lease_seconds=lease_seconds,
auto_extend=auto_extend,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    max_in_flight: int | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,
    auto_extend: bool | Unset = UNSET,

) -> Problem | str | None:
    """ Stream messages, for clients without POST

     Delivers messages as they come, for as long as the client reads, with at most `max_in_flight` that
    are delivered and not settled. Settle them by the ordinary calls, at any replica. The gateway
    prolongs their leases while the stream is open. When the stream ends, what is not settled is on the
    queue again at once, and no attempt is counted. The events are `message` (its data is that of a
    received message), `problem` (a failure: the gateway tries again if it is `retryable`, and ends the
    stream if not) and `drain` (the gateway stops and hands out nothing more; it ends the stream when
    all is settled, after 5 seconds at the latest). A keep-alive comes every 15 seconds. `Accept:
    application/x-ndjson` asks for one JSON object on each line; without it the answer has Server-Sent
    Events. A GET with `Upgrade: websocket` (subprotocol `babelgate.v1`) gets the same events as text
    frames, and takes the body of `messages:settle` and `{"max_in_flight": …}` in band. With
    `application/cloudevents+json` beside it in `Accept`, the data of a `message` is a CloudEvent.
    `Last-Event-ID` is refused with 422 `resume_unsupported`, because a lease is no position in a queue.

    Args:
        queue (str):
        max_in_flight (int | Unset):
        lease_seconds (float | Unset):
        auto_extend (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | str
     """


    return sync_detailed(
        queue=queue,
client=client,
max_in_flight=max_in_flight,
lease_seconds=lease_seconds,
auto_extend=auto_extend,

    ).parsed

async def asyncio_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    max_in_flight: int | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,
    auto_extend: bool | Unset = UNSET,

) -> Response[Problem | str]:
    """ Stream messages, for clients without POST

     Delivers messages as they come, for as long as the client reads, with at most `max_in_flight` that
    are delivered and not settled. Settle them by the ordinary calls, at any replica. The gateway
    prolongs their leases while the stream is open. When the stream ends, what is not settled is on the
    queue again at once, and no attempt is counted. The events are `message` (its data is that of a
    received message), `problem` (a failure: the gateway tries again if it is `retryable`, and ends the
    stream if not) and `drain` (the gateway stops and hands out nothing more; it ends the stream when
    all is settled, after 5 seconds at the latest). A keep-alive comes every 15 seconds. `Accept:
    application/x-ndjson` asks for one JSON object on each line; without it the answer has Server-Sent
    Events. A GET with `Upgrade: websocket` (subprotocol `babelgate.v1`) gets the same events as text
    frames, and takes the body of `messages:settle` and `{"max_in_flight": …}` in band. With
    `application/cloudevents+json` beside it in `Accept`, the data of a `message` is a CloudEvent.
    `Last-Event-ID` is refused with 422 `resume_unsupported`, because a lease is no position in a queue.

    Args:
        queue (str):
        max_in_flight (int | Unset):
        lease_seconds (float | Unset):
        auto_extend (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | str]
     """


    kwargs = _get_kwargs(
        queue=queue,
max_in_flight=max_in_flight,
lease_seconds=lease_seconds,
auto_extend=auto_extend,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    max_in_flight: int | Unset = UNSET,
    lease_seconds: float | Unset = UNSET,
    auto_extend: bool | Unset = UNSET,

) -> Problem | str | None:
    """ Stream messages, for clients without POST

     Delivers messages as they come, for as long as the client reads, with at most `max_in_flight` that
    are delivered and not settled. Settle them by the ordinary calls, at any replica. The gateway
    prolongs their leases while the stream is open. When the stream ends, what is not settled is on the
    queue again at once, and no attempt is counted. The events are `message` (its data is that of a
    received message), `problem` (a failure: the gateway tries again if it is `retryable`, and ends the
    stream if not) and `drain` (the gateway stops and hands out nothing more; it ends the stream when
    all is settled, after 5 seconds at the latest). A keep-alive comes every 15 seconds. `Accept:
    application/x-ndjson` asks for one JSON object on each line; without it the answer has Server-Sent
    Events. A GET with `Upgrade: websocket` (subprotocol `babelgate.v1`) gets the same events as text
    frames, and takes the body of `messages:settle` and `{"max_in_flight": …}` in band. With
    `application/cloudevents+json` beside it in `Accept`, the data of a `message` is a CloudEvent.
    `Last-Event-ID` is refused with 422 `resume_unsupported`, because a lease is no position in a queue.

    Args:
        queue (str):
        max_in_flight (int | Unset):
        lease_seconds (float | Unset):
        auto_extend (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | str
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
max_in_flight=max_in_flight,
lease_seconds=lease_seconds,
auto_extend=auto_extend,

    )).parsed
