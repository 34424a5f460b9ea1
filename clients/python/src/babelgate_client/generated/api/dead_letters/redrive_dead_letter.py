from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...models.redrive_dead_letter_request import RedriveDeadLetterRequest
from ...models.redriven_letter import RedrivenLetter
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    queue: str,
    letter_id: str,
    *,
    body: RedriveDeadLetterRequest | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}


    

    params: dict[str, Any] = {}

    json_cursor: None | str | Unset
    if isinstance(cursor, Unset):
        json_cursor = UNSET
    else:
        json_cursor = cursor
    params["cursor"] = json_cursor


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/queues/{queue}/dead-letters/{letter_id}:redrive".format(queue=quote(str(queue), safe=""),letter_id=quote(str(letter_id), safe=""),),
        "params": params,
    }

    
    if not isinstance(body, Unset):
        _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | RedrivenLetter | None:
    if response.status_code == 200:
        response_200 = RedrivenLetter.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | RedrivenLetter]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    queue: str,
    letter_id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RedriveDeadLetterRequest | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[Problem | RedrivenLetter]:
    """ Redrive one dead letter

     Send one dead letter back, edited if `edit` is given: publish, wait for the confirm, then remove.
    The letter
    is searched for as by GET.

    An edited message is validated like a publish, with the same codes; a pointer leads into this
    request. It starts
    with `attempts` 0 and keeps its native headers, unless an entry in `body` has others. Only the
    journal records
    the edit. Requires the right `manage`; and `send` on the target, if it is another queue or `edit` is
    given.

    Args:
        queue (str):
        letter_id (str):
        cursor (None | str | Unset):
        body (RedriveDeadLetterRequest | Unset): How to send one dead letter back. ``to_queue``
            defaults to the queue of the path.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | RedrivenLetter]
     """


    kwargs = _get_kwargs(
        queue=queue,
letter_id=letter_id,
body=body,
cursor=cursor,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    letter_id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RedriveDeadLetterRequest | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Problem | RedrivenLetter | None:
    """ Redrive one dead letter

     Send one dead letter back, edited if `edit` is given: publish, wait for the confirm, then remove.
    The letter
    is searched for as by GET.

    An edited message is validated like a publish, with the same codes; a pointer leads into this
    request. It starts
    with `attempts` 0 and keeps its native headers, unless an entry in `body` has others. Only the
    journal records
    the edit. Requires the right `manage`; and `send` on the target, if it is another queue or `edit` is
    given.

    Args:
        queue (str):
        letter_id (str):
        cursor (None | str | Unset):
        body (RedriveDeadLetterRequest | Unset): How to send one dead letter back. ``to_queue``
            defaults to the queue of the path.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | RedrivenLetter
     """


    return sync_detailed(
        queue=queue,
letter_id=letter_id,
client=client,
body=body,
cursor=cursor,

    ).parsed

async def asyncio_detailed(
    queue: str,
    letter_id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RedriveDeadLetterRequest | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Response[Problem | RedrivenLetter]:
    """ Redrive one dead letter

     Send one dead letter back, edited if `edit` is given: publish, wait for the confirm, then remove.
    The letter
    is searched for as by GET.

    An edited message is validated like a publish, with the same codes; a pointer leads into this
    request. It starts
    with `attempts` 0 and keeps its native headers, unless an entry in `body` has others. Only the
    journal records
    the edit. Requires the right `manage`; and `send` on the target, if it is another queue or `edit` is
    given.

    Args:
        queue (str):
        letter_id (str):
        cursor (None | str | Unset):
        body (RedriveDeadLetterRequest | Unset): How to send one dead letter back. ``to_queue``
            defaults to the queue of the path.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | RedrivenLetter]
     """


    kwargs = _get_kwargs(
        queue=queue,
letter_id=letter_id,
body=body,
cursor=cursor,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    letter_id: str,
    *,
    client: AuthenticatedClient | Client,
    body: RedriveDeadLetterRequest | Unset = UNSET,
    cursor: None | str | Unset = UNSET,

) -> Problem | RedrivenLetter | None:
    """ Redrive one dead letter

     Send one dead letter back, edited if `edit` is given: publish, wait for the confirm, then remove.
    The letter
    is searched for as by GET.

    An edited message is validated like a publish, with the same codes; a pointer leads into this
    request. It starts
    with `attempts` 0 and keeps its native headers, unless an entry in `body` has others. Only the
    journal records
    the edit. Requires the right `manage`; and `send` on the target, if it is another queue or `edit` is
    given.

    Args:
        queue (str):
        letter_id (str):
        cursor (None | str | Unset):
        body (RedriveDeadLetterRequest | Unset): How to send one dead letter back. ``to_queue``
            defaults to the queue of the path.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | RedrivenLetter
     """


    return (await asyncio_detailed(
        queue=queue,
letter_id=letter_id,
client=client,
body=body,
cursor=cursor,

    )).parsed
