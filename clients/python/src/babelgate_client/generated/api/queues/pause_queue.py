from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.pause_request import PauseRequest
from ...models.pause_result import PauseResult
from ...models.problem import Problem
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    body: PauseRequest | Unset = UNSET,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/queues/{queue}:pause".format(queue=quote(str(queue), safe=""),),
    }

    
    if not isinstance(body, Unset):
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> PauseResult | Problem | None:
    if response.status_code == 200:
        response_200 = PauseResult.from_dict(response.json())



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

    if response.status_code == 409:
        response_409 = Problem.from_dict(response.json())



        return response_409

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[PauseResult | Problem]:
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
    body: PauseRequest | Unset = UNSET,

) -> Response[PauseResult | Problem]:
    """ Pause a queue

     Hand out no message of the queue until it is resumed. Requires the right `manage`.

    A receive from a paused queue waits as on an empty one, and then answers an empty list with `paused:
    true`.
    Messages that are with consumers can be acked, nacked, rejected and extended as before. A message
    that the
    gateway had reserved and not handed out goes back to the queue, and no attempt is counted. Peeks,
    dead letters
    and their redrives go on. Publishes are accepted, or refused with 409 `queue_paused` if the body
    says so.

    The call of a paused queue replaces `publishes` and `reason`. The pause is kept in `state_dir`, so
    that it
    outlives a restart, and told to all peers before the answer. A peer that does not answer within a
    second is in
    `silent`: it learns the pause when it answers again, and may hand messages out until then. Of two
    changes the
    newer one counts. Consumers that read from the broker itself do not notice a pause.

    Args:
        queue (str):
        body (PauseRequest | Unset): How to pause. Without a body: publishes are accepted.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PauseResult | Problem]
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
    body: PauseRequest | Unset = UNSET,

) -> PauseResult | Problem | None:
    """ Pause a queue

     Hand out no message of the queue until it is resumed. Requires the right `manage`.

    A receive from a paused queue waits as on an empty one, and then answers an empty list with `paused:
    true`.
    Messages that are with consumers can be acked, nacked, rejected and extended as before. A message
    that the
    gateway had reserved and not handed out goes back to the queue, and no attempt is counted. Peeks,
    dead letters
    and their redrives go on. Publishes are accepted, or refused with 409 `queue_paused` if the body
    says so.

    The call of a paused queue replaces `publishes` and `reason`. The pause is kept in `state_dir`, so
    that it
    outlives a restart, and told to all peers before the answer. A peer that does not answer within a
    second is in
    `silent`: it learns the pause when it answers again, and may hand messages out until then. Of two
    changes the
    newer one counts. Consumers that read from the broker itself do not notice a pause.

    Args:
        queue (str):
        body (PauseRequest | Unset): How to pause. Without a body: publishes are accepted.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PauseResult | Problem
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
    body: PauseRequest | Unset = UNSET,

) -> Response[PauseResult | Problem]:
    """ Pause a queue

     Hand out no message of the queue until it is resumed. Requires the right `manage`.

    A receive from a paused queue waits as on an empty one, and then answers an empty list with `paused:
    true`.
    Messages that are with consumers can be acked, nacked, rejected and extended as before. A message
    that the
    gateway had reserved and not handed out goes back to the queue, and no attempt is counted. Peeks,
    dead letters
    and their redrives go on. Publishes are accepted, or refused with 409 `queue_paused` if the body
    says so.

    The call of a paused queue replaces `publishes` and `reason`. The pause is kept in `state_dir`, so
    that it
    outlives a restart, and told to all peers before the answer. A peer that does not answer within a
    second is in
    `silent`: it learns the pause when it answers again, and may hand messages out until then. Of two
    changes the
    newer one counts. Consumers that read from the broker itself do not notice a pause.

    Args:
        queue (str):
        body (PauseRequest | Unset): How to pause. Without a body: publishes are accepted.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PauseResult | Problem]
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
    body: PauseRequest | Unset = UNSET,

) -> PauseResult | Problem | None:
    """ Pause a queue

     Hand out no message of the queue until it is resumed. Requires the right `manage`.

    A receive from a paused queue waits as on an empty one, and then answers an empty list with `paused:
    true`.
    Messages that are with consumers can be acked, nacked, rejected and extended as before. A message
    that the
    gateway had reserved and not handed out goes back to the queue, and no attempt is counted. Peeks,
    dead letters
    and their redrives go on. Publishes are accepted, or refused with 409 `queue_paused` if the body
    says so.

    The call of a paused queue replaces `publishes` and `reason`. The pause is kept in `state_dir`, so
    that it
    outlives a restart, and told to all peers before the answer. A peer that does not answer within a
    second is in
    `silent`: it learns the pause when it answers again, and may hand messages out until then. Of two
    changes the
    newer one counts. Consumers that read from the broker itself do not notice a pause.

    Args:
        queue (str):
        body (PauseRequest | Unset): How to pause. Without a body: publishes are accepted.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PauseResult | Problem
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
body=body,

    )).parsed
