"""Sends messages in native batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from app.brokers.binding import Outcome, Outgoing
from app.brokers.servicebus.client import ServiceBusConnections
from app.brokers.servicebus.message import Fields, native
from app.errors import BabelgateError, BodyTooLarge, BrokerError, BrokerRejected, BrokerUnavailable
from app.runtime import turns

_YIELD_MESSAGES = 16
"""Messages that are encoded in one turn of the event loop."""

_LEAST_SECONDS = 0.05

_Ready = tuple[int, ServiceBusMessage]
"""The position of a message, and its native form."""


async def publish(
    connections: ServiceBusConnections, entity: str, messages: Sequence[Outgoing], make: Callable[[Outgoing], Fields]
) -> list[Outcome]:
    """Write ``messages`` to the queue ``entity``, with the native fields of ``make``; one outcome each, in order.

    A batch is written whole or not at all, and has messages of one session or partition key, as a partitioned queue
    takes no other. After a batch whose outcome is not known no later one is sent, so that none overtakes it.
    """
    outcomes: list[Outcome] = [None] * len(messages)
    ready: list[_Ready] = []

    def made(message: Outgoing) -> ServiceBusMessage | BabelgateError:
        try:
            return native(message.body, make(message))
        except ValueError as error:
            return BrokerRejected(connections.broker, str(error))

    for position, each in enumerate(await turns.mapped(made, messages, _size)):
        if isinstance(each, BabelgateError):
            outcomes[position] = each
        else:
            ready.append((position, each))
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
    made = await sender.create_message_batch()
    key = _key(ready[0][1])
    while ready and _key(ready[0][1]) == key:
        position, message = ready[0]
        try:
            made.add_message(message)
        except MessageSizeExceededError:
            if batch:
                break
            # Alone it may be larger than a batch.
            await _send_alone(sender, ready, batch, outcomes)
            return
        batch.append(position)
        ready.pop(0)
        if len(batch) % _YIELD_MESSAGES == 0:
            await asyncio.sleep(0)
    if batch:
        await sender.send_messages(made)


async def _send_alone(sender: Any, ready: list[_Ready], batch: list[int], outcomes: list[Outcome]) -> None:
    position, message = ready.pop(0)
    limit = sender._max_message_size_on_link
    batch.append(position)
    try:
        await sender.send_messages(message)
    except MessageSizeExceededError:
        amqp = sender._amqp_transport
        size = amqp.get_message_encoded_size(amqp.to_outgoing_amqp_message(message.raw_amqp_message))
        outcomes[position] = BodyTooLarge(actual=size, limit=limit)


def _key(message: ServiceBusMessage) -> str | None:
    return message.session_id or message.partition_key


def _fail(outcomes: list[Outcome], ready: list[_Ready], error: BabelgateError) -> None:
    for position, _ in ready:
        outcomes[position] = error.without_frames()
    ready.clear()


def _size(message: Outgoing) -> int:
    return len(message.body)
