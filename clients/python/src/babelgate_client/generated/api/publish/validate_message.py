from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.cloud_event import CloudEvent
from ...models.draft import Draft
from ...models.entry import Entry
from ...models.envelope import Envelope
from ...models.job import Job
from ...models.problem import Problem
from ...models.projection import Projection
from ...models.validate_message_mode import check_validate_message_mode
from ...models.validate_message_mode import ValidateMessageMode
from ...types import UNSET, Unset
from typing import cast



def _get_kwargs(
    queue: str,
    *,
    body:    Draft  |     Envelope  |     Entry  |     Job  |     CloudEvent  | Unset = UNSET,
    delay_seconds: float | Unset = UNSET,
    ordering_key: str | Unset = UNSET,
    deliver_at: int | Unset = UNSET,
    ttl_seconds: float | Unset = UNSET,
    priority: int | Unset = UNSET,
    mode: ValidateMessageMode | Unset = UNSET,
    broker_properties: str | Unset = UNSET,

) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(broker_properties, Unset):
        headers["BrokerProperties"] = broker_properties



    

    params: dict[str, Any] = {}

    params["delay_seconds"] = delay_seconds

    params["ordering_key"] = ordering_key

    params["deliver_at"] = deliver_at

    params["ttl_seconds"] = ttl_seconds

    params["priority"] = priority

    json_mode: str | Unset = UNSET
    if not isinstance(mode, Unset):
        json_mode = mode

    params["mode"] = json_mode


    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}


    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/queues/{queue}/messages:validate".format(queue=quote(str(queue), safe=""),),
        "params": params,
    }

    if isinstance(body, Draft):
        _kwargs["json"] = body.to_dict()

        headers["Content-Type"] = "application/json"
    if isinstance(body, Envelope):
        _kwargs["json"] = body.to_dict()

        headers["Content-Type"] = "application/vnd.babelqueue.envelope+json"
    if isinstance(body, Entry):
        _kwargs["json"] = body.to_dict()

        headers["Content-Type"] = "application/vnd.babelqueue.entry+json"
    if isinstance(body, Job):
        _kwargs["json"] = body.to_dict()

        headers["Content-Type"] = "application/openjobspec+json"
    if isinstance(body, CloudEvent):
        _kwargs["json"] = body.to_dict()

        headers["Content-Type"] = "application/cloudevents+json"

    _kwargs["headers"] = headers
    return _kwargs



def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | Projection | None:
    if response.status_code == 200:
        response_200 = Projection.from_dict(response.json())



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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | Projection]:
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
    body:    Draft  |     Envelope  |     Entry  |     Job  |     CloudEvent  | Unset = UNSET,
    delay_seconds: float | Unset = UNSET,
    ordering_key: str | Unset = UNSET,
    deliver_at: int | Unset = UNSET,
    ttl_seconds: float | Unset = UNSET,
    priority: int | Unset = UNSET,
    mode: ValidateMessageMode | Unset = UNSET,
    broker_properties: str | Unset = UNSET,

) -> Response[Problem | Projection]:
    """ Validate a message

     Dry run of a publish: returns the canonical bytes and what the broker would store, and writes
    nothing.

    `writes` is the exact native form in the broker's own words: where it writes, the native values, the
    headers
    with their types, and the body. Values that a draft leaves open, such as its ids, are new in each
    call.

    With `mode=consume` the body is treated as one found on the queue: it is checked by the rules for
    consumers and
    not completed, and an error gives the reason for which it would be dead-lettered. Schemas are
    checked where the route has
    `schema_on_receive`. This mode requires the right `listen`.

    Args:
        queue (str):
        delay_seconds (float | Unset):
        ordering_key (str | Unset):
        deliver_at (int | Unset):
        ttl_seconds (float | Unset):
        priority (int | Unset):
        mode (ValidateMessageMode | Unset):
        broker_properties (str | Unset):
        body (Draft): The ordinary body of a publish: an envelope without its ids, time and
            version, which the gateway adds, and options of the message, which do not become part of
            its body.
        body (Envelope): A BabelQueue envelope.
        body (Entry): A full envelope, with options of the message, which do not become part of
            its body.
        body (Job): A job of the Open Job Spec. The gateway converts it to an envelope, for queues
            of any broker, and keeps members that only a job has in `meta.ext.ojs`. Members that the
            server manages are ignored. `scheduled_at` delays the message.
        body (CloudEvent): An event of CloudEvents 1.0 in the JSON format. The gateway converts it
            to an envelope, for queues of any broker: `type` is the job, `id` is `meta.id`, and
            attributes that only an event has are in `meta.ext.cloudevents`. Any other member is an
            extension attribute: a string, a boolean or an integer of 32 bits.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Projection]
     """


    kwargs = _get_kwargs(
        queue=queue,
body=body,
delay_seconds=delay_seconds,
ordering_key=ordering_key,
deliver_at=deliver_at,
ttl_seconds=ttl_seconds,
priority=priority,
mode=mode,
broker_properties=broker_properties,

    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)

def sync(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body:    Draft  |     Envelope  |     Entry  |     Job  |     CloudEvent  | Unset = UNSET,
    delay_seconds: float | Unset = UNSET,
    ordering_key: str | Unset = UNSET,
    deliver_at: int | Unset = UNSET,
    ttl_seconds: float | Unset = UNSET,
    priority: int | Unset = UNSET,
    mode: ValidateMessageMode | Unset = UNSET,
    broker_properties: str | Unset = UNSET,

) -> Problem | Projection | None:
    """ Validate a message

     Dry run of a publish: returns the canonical bytes and what the broker would store, and writes
    nothing.

    `writes` is the exact native form in the broker's own words: where it writes, the native values, the
    headers
    with their types, and the body. Values that a draft leaves open, such as its ids, are new in each
    call.

    With `mode=consume` the body is treated as one found on the queue: it is checked by the rules for
    consumers and
    not completed, and an error gives the reason for which it would be dead-lettered. Schemas are
    checked where the route has
    `schema_on_receive`. This mode requires the right `listen`.

    Args:
        queue (str):
        delay_seconds (float | Unset):
        ordering_key (str | Unset):
        deliver_at (int | Unset):
        ttl_seconds (float | Unset):
        priority (int | Unset):
        mode (ValidateMessageMode | Unset):
        broker_properties (str | Unset):
        body (Draft): The ordinary body of a publish: an envelope without its ids, time and
            version, which the gateway adds, and options of the message, which do not become part of
            its body.
        body (Envelope): A BabelQueue envelope.
        body (Entry): A full envelope, with options of the message, which do not become part of
            its body.
        body (Job): A job of the Open Job Spec. The gateway converts it to an envelope, for queues
            of any broker, and keeps members that only a job has in `meta.ext.ojs`. Members that the
            server manages are ignored. `scheduled_at` delays the message.
        body (CloudEvent): An event of CloudEvents 1.0 in the JSON format. The gateway converts it
            to an envelope, for queues of any broker: `type` is the job, `id` is `meta.id`, and
            attributes that only an event has are in `meta.ext.cloudevents`. Any other member is an
            extension attribute: a string, a boolean or an integer of 32 bits.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Projection
     """


    return sync_detailed(
        queue=queue,
client=client,
body=body,
delay_seconds=delay_seconds,
ordering_key=ordering_key,
deliver_at=deliver_at,
ttl_seconds=ttl_seconds,
priority=priority,
mode=mode,
broker_properties=broker_properties,

    ).parsed

async def asyncio_detailed(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body:    Draft  |     Envelope  |     Entry  |     Job  |     CloudEvent  | Unset = UNSET,
    delay_seconds: float | Unset = UNSET,
    ordering_key: str | Unset = UNSET,
    deliver_at: int | Unset = UNSET,
    ttl_seconds: float | Unset = UNSET,
    priority: int | Unset = UNSET,
    mode: ValidateMessageMode | Unset = UNSET,
    broker_properties: str | Unset = UNSET,

) -> Response[Problem | Projection]:
    """ Validate a message

     Dry run of a publish: returns the canonical bytes and what the broker would store, and writes
    nothing.

    `writes` is the exact native form in the broker's own words: where it writes, the native values, the
    headers
    with their types, and the body. Values that a draft leaves open, such as its ids, are new in each
    call.

    With `mode=consume` the body is treated as one found on the queue: it is checked by the rules for
    consumers and
    not completed, and an error gives the reason for which it would be dead-lettered. Schemas are
    checked where the route has
    `schema_on_receive`. This mode requires the right `listen`.

    Args:
        queue (str):
        delay_seconds (float | Unset):
        ordering_key (str | Unset):
        deliver_at (int | Unset):
        ttl_seconds (float | Unset):
        priority (int | Unset):
        mode (ValidateMessageMode | Unset):
        broker_properties (str | Unset):
        body (Draft): The ordinary body of a publish: an envelope without its ids, time and
            version, which the gateway adds, and options of the message, which do not become part of
            its body.
        body (Envelope): A BabelQueue envelope.
        body (Entry): A full envelope, with options of the message, which do not become part of
            its body.
        body (Job): A job of the Open Job Spec. The gateway converts it to an envelope, for queues
            of any broker, and keeps members that only a job has in `meta.ext.ojs`. Members that the
            server manages are ignored. `scheduled_at` delays the message.
        body (CloudEvent): An event of CloudEvents 1.0 in the JSON format. The gateway converts it
            to an envelope, for queues of any broker: `type` is the job, `id` is `meta.id`, and
            attributes that only an event has are in `meta.ext.cloudevents`. Any other member is an
            extension attribute: a string, a boolean or an integer of 32 bits.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Projection]
     """


    kwargs = _get_kwargs(
        queue=queue,
body=body,
delay_seconds=delay_seconds,
ordering_key=ordering_key,
deliver_at=deliver_at,
ttl_seconds=ttl_seconds,
priority=priority,
mode=mode,
broker_properties=broker_properties,

    )

    response = await client.get_async_httpx_client().request(
        **kwargs
    )

    return _build_response(client=client, response=response)

async def asyncio(
    queue: str,
    *,
    client: AuthenticatedClient | Client,
    body:    Draft  |     Envelope  |     Entry  |     Job  |     CloudEvent  | Unset = UNSET,
    delay_seconds: float | Unset = UNSET,
    ordering_key: str | Unset = UNSET,
    deliver_at: int | Unset = UNSET,
    ttl_seconds: float | Unset = UNSET,
    priority: int | Unset = UNSET,
    mode: ValidateMessageMode | Unset = UNSET,
    broker_properties: str | Unset = UNSET,

) -> Problem | Projection | None:
    """ Validate a message

     Dry run of a publish: returns the canonical bytes and what the broker would store, and writes
    nothing.

    `writes` is the exact native form in the broker's own words: where it writes, the native values, the
    headers
    with their types, and the body. Values that a draft leaves open, such as its ids, are new in each
    call.

    With `mode=consume` the body is treated as one found on the queue: it is checked by the rules for
    consumers and
    not completed, and an error gives the reason for which it would be dead-lettered. Schemas are
    checked where the route has
    `schema_on_receive`. This mode requires the right `listen`.

    Args:
        queue (str):
        delay_seconds (float | Unset):
        ordering_key (str | Unset):
        deliver_at (int | Unset):
        ttl_seconds (float | Unset):
        priority (int | Unset):
        mode (ValidateMessageMode | Unset):
        broker_properties (str | Unset):
        body (Draft): The ordinary body of a publish: an envelope without its ids, time and
            version, which the gateway adds, and options of the message, which do not become part of
            its body.
        body (Envelope): A BabelQueue envelope.
        body (Entry): A full envelope, with options of the message, which do not become part of
            its body.
        body (Job): A job of the Open Job Spec. The gateway converts it to an envelope, for queues
            of any broker, and keeps members that only a job has in `meta.ext.ojs`. Members that the
            server manages are ignored. `scheduled_at` delays the message.
        body (CloudEvent): An event of CloudEvents 1.0 in the JSON format. The gateway converts it
            to an envelope, for queues of any broker: `type` is the job, `id` is `meta.id`, and
            attributes that only an event has are in `meta.ext.cloudevents`. Any other member is an
            extension attribute: a string, a boolean or an integer of 32 bits.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Projection
     """


    return (await asyncio_detailed(
        queue=queue,
client=client,
body=body,
delay_seconds=delay_seconds,
ordering_key=ordering_key,
deliver_at=deliver_at,
ttl_seconds=ttl_seconds,
priority=priority,
mode=mode,
broker_properties=broker_properties,

    )).parsed
