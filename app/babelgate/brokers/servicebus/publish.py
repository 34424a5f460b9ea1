"""Sends messages in native batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from azure.servicebus.exceptions import MessageSizeExceededError

from babelgate.brokers.batching import made_of_each
from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.servicebus.client import ServiceBusConnections
from babelgate.brokers.servicebus.message import Fields
from babelgate.brokers.servicebus.sdk_internals import (
    BatchMessage,
    Header,
    Message,
    Properties,
    encode_payload,
    max_batch_bytes,
    max_message_bytes,
    send_message,
)
from babelgate.errors import BabelgateError, BodyTooLarge, BrokerError, BrokerRejected, BrokerUnavailable

_ENTRY_BYTES, _ENVELOPE_BYTES = 8, 512
"""Bytes of a batch beside each message and beside all of them, at most."""

_LEAST_SECONDS = 0.05

_PROPERTIES = {
    "message_id": "message_id",
    "to": "to",
    "subject": "subject",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
}
"""The client library's name of a field, and AMQP's:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide#messages"""


class _Native(NamedTuple):
    """A message for the AMQP engine, its encoded ``payload``, and the ``key`` of its session or partition."""

    message: Message
    payload: bytes
    key: str | None


_Ready = tuple[int, _Native]
"""The position of a message, and its native form."""


async def publish(
    connections: ServiceBusConnections, entity: str, messages: Sequence[Outgoing], make: Callable[[Outgoing], Fields]
) -> list[Outcome]:
    """Write ``messages`` to the queue ``entity``, with the native fields of ``make``; one outcome each, in order.

    A batch is written whole or not at all, and has messages of one session or partition key, as a partitioned queue
    takes no other. After a batch whose outcome is not known no later one is sent, so that none overtakes it.
    """
    outcomes, made = await made_of_each(
        connections.broker, messages, lambda message: _native(message.body, make(message))
    )
    ready = list(made.items())
    until = asyncio.get_running_loop().time() + connections.timeout_seconds
    while ready:
        left = until - asyncio.get_running_loop().time()
        if left < _LEAST_SECONDS:
            reason = f"the batches before this one took the {connections.timeout_seconds:g} s of the whole publish"
            _fail(outcomes, ready, BrokerUnavailable(connections.broker, reason))
            break
        batch: list[int] = []
        send = partial(_send, ready=ready, batch=batch, outcomes=outcomes)
        try:
            await connections.call("send", entity, send, writes=True, seconds=left)
        except BrokerError as error:
            for position in batch:
                outcomes[position] = error.without_frames()
            if batch and isinstance(error, BrokerRejected):
                continue
            reason = "an earlier batch failed, so this one was not sent"
            _fail(outcomes, ready, BrokerUnavailable(connections.broker, reason) if batch else error)
    return outcomes


async def _send(sender: Any, ready: list[_Ready], batch: list[int], outcomes: list[Outcome]) -> None:
    """Send the first of ``ready`` that fit together, which are moved from there to ``batch``."""
    first = ready[0][1]
    left = max_batch_bytes(sender) - _ENVELOPE_BYTES
    payloads: list[bytes] = []
    while ready and ready[0][1].key == first.key:
        left -= len(ready[0][1].payload) + _ENTRY_BYTES
        if left < 0:
            break
        position, made = ready.pop(0)
        batch.append(position)
        payloads.append(made.payload)
    if len(payloads) > 1:
        # A partitioned queue finds the partition of a batch by these.
        annotations = first.message.message_annotations or {}
        annotations = {key: value for key, value in annotations.items() if key == b"x-opt-partition-key"}
        given = first.message.properties or Properties()
        properties = Properties(message_id=given.message_id, group_id=given.group_id)
        await send_message(
            sender, BatchMessage(message_annotations=annotations or None, properties=properties, data=payloads)
        )
        return
    if not payloads:
        # Alone it may be larger than a batch.
        batch.append(ready.pop(0)[0])
    try:
        await send_message(sender, first.message)
    except MessageSizeExceededError:
        limit = max_message_bytes(sender)
        outcomes[batch[0]] = BodyTooLarge(actual=len(first.payload), limit=limit)


def _fail(outcomes: list[Outcome], ready: list[_Ready], error: BabelgateError) -> None:
    for position, _ in ready:
        outcomes[position] = error.without_frames()
    ready.clear()


def _native(body: bytes, fields: Fields) -> _Native:
    """The message for the client library's AMQP engine, encoded once. Its own ``ServiceBusMessage`` is encoded twice,
    to measure it and to send it, and cuts a time to live to whole seconds."""
    annotations: dict[str | bytes, Any] = {}
    if (due := fields.get("scheduled_enqueue_time_utc")) is not None:
        annotations[b"x-opt-scheduled-enqueue-time"] = {"TYPE": "TIMESTAMP", "VALUE": due}
    partition_key = fields.get("partition_key")
    if partition_key is not None:
        annotations[b"x-opt-partition-key"] = partition_key
    ttl = fields.get("time_to_live")
    properties = Properties(**{name: fields.get(field) for field, name in _PROPERTIES.items()})
    made = Message(
        header=None if ttl is None else Header(ttl=ttl),
        message_annotations=annotations or None,
        properties=properties,
        application_properties=fields.get("application_properties"),
        data=[body],
    )
    payload = bytearray()
    encode_payload(payload, made)
    return _Native(made, bytes(payload), fields.get("session_id") or partition_key)
