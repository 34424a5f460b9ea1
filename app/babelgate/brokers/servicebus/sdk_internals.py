"""All that this package uses of azure-servicebus beside its public API, which a release may take away.

The public API cannot keep the types of properties, settle or renew several locks in one request, take its credit back
from a link, send encoded bytes, or show whether a link is attached. No other module of this package uses a
private name of the SDK; ``tests/brokers/servicebus/test_internals.py`` checks that, and that each part is there.

A *client* is a sender or a receiver of the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple
from uuid import UUID

from azure.servicebus._common import constants, mgmt_handlers
from azure.servicebus._pyamqp import _encode
from azure.servicebus._pyamqp._encode import encode_payload as encode_payload
from azure.servicebus._pyamqp.constants import LinkState
from azure.servicebus._pyamqp.error import AMQPException as AMQPException
from azure.servicebus._pyamqp.error import AuthenticationException as AuthenticationException
from azure.servicebus._pyamqp.message import BatchMessage as BatchMessage
from azure.servicebus._pyamqp.message import Header as Header
from azure.servicebus._pyamqp.message import Message as Message
from azure.servicebus._pyamqp.message import Properties as Properties

from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.brokers.servicebus.message import ENCODED, AmqpMessage, read
from babelgate.runtime import turns

_UNREAD_SECONDS = 1.0
"""How long reading the frames that have arrived may take. They are in memory, but the last one may be half a frame."""

_LISTEN_SECONDS = 0.1
"""How long one look at the socket waits for a frame."""

_TOKEN_BYTES = 16

_QUIET = logging.getLogger("azure.servicebus")


def socket_of(client: Any) -> asyncio.StreamWriter | None:
    """The socket of a client; None without one, or with a WebSocket."""
    return getattr(_transport_of(client), "writer", None)


def _transport_of(client: Any) -> Any:
    engine = client._handler
    connection = None if engine is None else engine._connection
    return None if connection is None else connection._transport


async def is_attached(client: Any) -> bool:
    """Whether the link of an open client is attached, also after the frames that came since its last use.

    The SDK reads the socket during operations only: it would learn by the next one that the service has detached the
    link. No operation may be in progress. Blocks for at most a second.
    """
    if (transport := _transport_of(client)) is None:
        return False
    engine = client._handler
    try:
        async with asyncio.timeout(_UNREAD_SECONDS):
            while _has_unread(transport):
                await engine._connection.listen(wait=_UNREAD_SECONDS)
        return bool(engine._link.get_state() == LinkState.ATTACHED)
    except Exception:
        # Whatever the SDK raises, the link cannot be used.
        return False


def _has_unread(transport: Any) -> bool:
    """Whether something has arrived. Raises ConnectionError if the connection is lost."""
    is_stream = hasattr(transport, "reader")
    reader = transport.reader if is_stream else getattr(transport.sock, "_reader", None)
    if reader is None or reader.exception() is not None or (reader.at_eof() if is_stream else reader.is_eof()):
        raise ConnectionError
    return bool(reader._buffer)


def end_keep_alive(client: Any) -> None:
    """End the task that keeps the connection alive. A close would wait for its next second."""
    engine = client._handler
    if engine is not None and engine._keep_alive_thread is not None:
        engine._keep_alive_thread.cancel()
        engine._keep_alive_thread = None


def work_around_sdk_bugs(client: Any) -> None:
    """Let ``client`` open without pauses, and close all that it has opened.

    The SDK pauses after each frame, for half a second in all. It forgets the socket of an open that ends before its
    session has begun, and a WebSocket that cannot be opened or is cut, and its session.
    """
    create = client._create_handler

    def create_handler(auth: Any) -> None:
        create(auth)
        engine = client._handler
        is_ready, close = engine.client_ready_async, engine.close_async

        async def ready() -> bool:
            while not await is_ready():
                pass
            engine.client_ready_async = is_ready
            return True

        async def closed() -> None:
            transport, socket = _transport_of(client), socket_of(client)
            try:
                await close()
            finally:
                if socket is not None:
                    socket.transport.abort()
                if (session := getattr(transport, "session", None)) is not None:
                    if transport.sock is not None:
                        transport.sock._response.close()
                    await session.close()

        engine.client_ready_async, engine.close_async = ready, closed

    client._create_handler = create_handler


@contextmanager
def _translating(client: Any) -> Iterator[None]:
    """Raise the SDK's public error for one of its AMQP engine."""
    try:
        yield
    except AMQPException as error:
        raise client._amqp_transport.create_servicebus_exception(_QUIET, error) from error


async def send_message(sender: Any, message: Message) -> None:
    """Send a message of the engine, or a batch, and wait for the answer. Raises the SDK's errors."""
    with _translating(sender):
        await sender._handler.send_message_async(message)


def max_message_bytes(sender: Any) -> int:
    """The largest message that the link of an open sender takes."""
    return int(sender._max_message_size_on_link)


def max_batch_bytes(sender: Any) -> int:
    """The largest batch that the link of an open sender takes."""
    return int(sender._max_batch_size_on_link)


async def settle_by_tokens(
    receiver: Any, disposition: str, tokens: Sequence[UUID], details: Mapping[str, str] | None
) -> None:
    """End locks in one request to the management node. ``details``: see :func:`dead_letter_details`."""
    await receiver._settle_message_via_mgmt_link(disposition, list(tokens), dead_letter_details=details)


def dead_letter_details(reason: str, description: str) -> dict[str, str]:
    """The details of a native dead letter."""
    return {
        constants.MGMT_REQUEST_DEAD_LETTER_REASON: reason,
        constants.MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION: description,
    }


async def renew_locks(receiver: Any, tokens: Sequence[UUID], seconds: float) -> list[int]:
    """Renew locks in one request to the management node; their new ends in Unix ms, in order."""
    answer = await receiver._renew_locks(*tokens, timeout=seconds)
    ends: list[int] = answer[constants.MGMT_RESPONSE_MESSAGE_EXPIRATION]
    return ends


_read_peek: Any = mgmt_handlers.peek_op


async def peek(receiver: Any, sequence: int, limit: int, seconds: float) -> list[bytes]:
    """The encodings of at most ``limit`` messages from the sequence number ``sequence`` on."""

    def read(status: int, answer: Any, description: Any, amqp_transport: Any) -> list[bytes]:
        if status != HTTPStatus.OK:
            # None, or an error.
            return _read_peek(status, answer, description, receiver, amqp_transport) or []
        return [bytes(entry[b"message"]) for entry in answer.value[b"messages"]]

    request = {
        constants.MGMT_REQUEST_FROM_SEQUENCE_NUMBER: receiver._amqp_transport.AMQP_LONG_VALUE(sequence),
        constants.MGMT_REQUEST_MAX_MESSAGE_COUNT: limit,
    }
    receiver._populate_message_properties(request)
    found: list[bytes] = await receiver._mgmt_request_response_with_retry(
        constants.REQUEST_RESPONSE_PEEK_OPERATION, request, read, timeout=seconds
    )
    return found


class LockedMessage(NamedTuple):
    """A message on a link: its lock token, and the id and tag of the delivery."""

    token: UUID
    delivery_id: int
    tag: bytes
    message: AmqpMessage


class ReceiveLink:
    """The link of an open ``receiver``.

    The SDK's own receive leaves its credit on the link when it ends early: a message that comes later is locked without
    a receive. Here each receive ends with a drain: the service sends what it has for the credit, or takes the credit
    back, and says so. So an empty answer is the service's. The AMQP specification, section 2.6.7, has the rule:
    https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html#doc-flow-control
    """

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver
        self._engine = receiver._handler
        self._link = self._engine._link
        self._arrived: list[tuple[int, bytes, bytes]] = []
        self._drained = False
        self._first: Any = None
        self._payload: list[bytes | memoryview] = []
        # The SDK's decoder drops the types of values, and fails at some.
        self._link._incoming_transfer = self._transfer
        # The SDK drops this frame.
        self._link._incoming_flow = self._flow

    async def receive(
        self, limit: int, wait_seconds: float, until: float, waits: Callable[[], bool] = lambda: True
    ) -> list[LockedMessage]:
        """At most ``limit`` messages: those that are there, or those that come within ``wait_seconds`` while ``waits``.

        Raises TimeoutError when the service has not answered at the loop time ``until``, and the SDK's errors. The link
        must not be used again after an error.
        """
        clock = asyncio.get_running_loop().time
        with _translating(self._receiver):
            if wait_seconds > 0:
                wait_until = clock() + wait_seconds
                await self._link.flow(link_credit=limit)
                while not self._arrived and waits() and (left := wait_until - clock()) > 0:
                    await self._listen(min(left, _LISTEN_SECONDS))
            self._drained = False
            if len(self._arrived) < limit:
                await self._link.flow(link_credit=limit - len(self._arrived), drain=True)
                while len(self._arrived) < limit and not self._drained:
                    if clock() > until + GRACE_SECONDS:
                        raise TimeoutError
                    await self._listen(_LISTEN_SECONDS)
        arrived, self._arrived = self._arrived, []
        return await turns.mapped(_locked, arrived, lambda each: len(each[2]))

    async def give_back(self, message: LockedMessage, seconds: float) -> None:
        """Make a delivery available at once, uncounted. Raises the SDK's errors."""
        await self._engine.settle_messages_async(
            message.delivery_id, message.tag, "released", await_outcome=True, outcome_timeout=seconds
        )

    async def _listen(self, seconds: float) -> None:
        """Wait for a frame, and renew the access token when it is time."""
        if await self._engine.auth_complete_async():
            self._link.get_state()
            await self._engine._connection.listen(wait=seconds)

    async def _transfer(self, frame: Any) -> None:
        """A part of a message, the last one unless ``frame[5]``. The first has the id and the tag of the delivery in
        ``frame[1]`` and ``frame[2]``, and all have bytes in ``frame[11]``."""
        if frame[1] is not None:
            self._first = frame
        self._payload.append(frame[11])
        if not frame[5]:
            link, tag = self._link, bytes(self._first[2] or b"")
            link.delivery_count += 1
            link.current_link_credit -= 1
            link._received_delivery_tags.add(tag)
            self._arrived.append((self._first[1], tag, b"".join(self._payload)))
            self._payload.clear()

    async def _flow(self, frame: Any) -> None:
        """The state of the link as the service reports it: handle, delivery count and credit are fields 4 to 6."""
        if frame[4] is not None and frame[5] is not None:
            self._link.delivery_count = frame[5]
            self._link.current_link_credit = credit = frame[6] or 0
            self._drained = self._drained or not credit


def _locked(arrived: tuple[int, bytes, bytes]) -> LockedMessage:
    delivery_id, tag, payload = arrived
    # A message that is removed by its receive has no lock.
    token = UUID(bytes_le=tag) if len(tag) == _TOKEN_BYTES else UUID(int=0)
    return LockedMessage(token, delivery_id, tag, read(payload))


def _write_encoded(output: bytearray, value: bytes, **how: Any) -> None:
    output.extend(value)


_encoders: dict[Any, Any] = _encode._ENCODE_MAP
_encoders[ENCODED] = _write_encoded
