"""The parts of the client library that ``app/babelgate/brokers/servicebus`` uses and that are not public: a release may
remove each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import aiohttp
import pytest
from aiohttp._websocket.reader import WebSocketDataQueue
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._common import constants, mgmt_handlers
from azure.servicebus._pyamqp import _decode as decoding
from azure.servicebus._pyamqp import _encode as encoding
from azure.servicebus._pyamqp import error, performatives
from azure.servicebus._pyamqp import message as messages
from azure.servicebus._pyamqp.aio import _client_async as clients
from azure.servicebus._pyamqp.aio import _connection_async as connections
from azure.servicebus._pyamqp.aio import _link_async as links
from azure.servicebus._pyamqp.aio import _receiver_async as receivers
from azure.servicebus._pyamqp.aio import _session_async as sessions
from azure.servicebus._pyamqp.aio import _transport_async as transports
from azure.servicebus._pyamqp.constants import LinkState
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

PARTS = [
    (ServiceBusReceiver, "_settle_message_via_mgmt_link", "locks.py ends several locks in one request"),
    (ServiceBusReceiver, "_renew_locks", "locks.py renews several locks in one request"),
    (ServiceBusReceiver, "_create_handler", "client.py opens without pauses"),
    (ServiceBusSender, "_create_handler", "client.py opens without pauses"),
    (ServiceBusReceiver, "_mgmt_request_response_with_retry", "dead_letters.py peeks"),
    (ServiceBusReceiver, "_populate_message_properties", "dead_letters.py peeks"),
    (receivers.ReceiverLink, "_incoming_transfer", "link.py sees the bytes of a message"),
    (clients.ReceiveClientAsync, "settle_messages_async", "link.py gives a delivery back uncounted"),
    (clients.AMQPClientAsync, "auth_complete_async", "link.py renews the access token"),
    (clients.AMQPClientAsync, "client_ready_async", "client.py opens without pauses"),
    (clients.AMQPClientAsync, "close_async", "client.py closes a WebSocket and its session"),
    (connections.Connection, "listen", "link.py and attached.py read frames"),
    (links.Link, "flow", "link.py sets and drains the credit"),
    (links.Link, "get_state", "link.py and attached.py raise the error of a detached link"),
    (WebSocketDataQueue, "_buffer", "attached.py sees what has arrived"),
    (WebSocketDataQueue, "is_eof", "attached.py sees that the peer has closed"),
    (LinkState, "ATTACHED", "attached.py looks for it"),
    (links.Link, "_incoming_flow", "link.py sees the end of a drain"),
    (PyamqpTransportAsync, "create_servicebus_exception", "link.py translates errors of the engine"),
    (clients.SendClientAsync, "send_message_async", "publish.py sends encoded messages"),
    (encoding, "encode_payload", "message.py encodes a message once"),
    (encoding, "_ENCODE_MAP", "typed.py writes encoded values"),
    (decoding, "_DECODE_BY_CONSTRUCTOR", "typed.py reads characters and decimals"),
    (messages, "BatchMessage", "publish.py makes a batch"),
    (error, "AMQPException", "link.py and errors.py name it"),
    (constants, "MGMT_RESPONSE_MESSAGE_EXPIRATION", "locks.py reads the answer to a renewal"),
    (constants, "MGMT_REQUEST_DEAD_LETTER_REASON", "locks.py states the reason of a dead letter"),
    (constants, "MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION", "locks.py describes a dead letter"),
]
PARAMETERS: list[tuple[Callable[..., Any], list[str]]] = [
    (ServiceBusReceiver._settle_message_via_mgmt_link, ["settlement", "lock_tokens", "dead_letter_details"]),
    (ServiceBusReceiver._renew_locks, ["lock_tokens", "timeout"]),
    (connections.Connection.listen, ["wait"]),
    (links.Link.flow, ["link_credit"]),
]
SOURCES: list[tuple[Callable[..., Any], str, str]] = [
    (asyncio.StreamReader.__init__, "self._buffer = ", "attached.py sees what has arrived"),
    (transports.AsyncTransport.connect, "self.reader, self.writer = ", "attached.py looks into it"),
    (aiohttp.ClientWebSocketResponse.__init__, "self._reader = ", "attached.py looks into it"),
    (ServiceBusReceiver._create_handler, "self._handler = ", "client.py wraps the handler that it makes"),
    (ServiceBusReceiver._receive, "self._receive_context.set()", "link.py keeps arriving messages by it"),
    (ServiceBusReceivedMessage.__init__, "message", "dead_letters.py reads the engine's message"),
    (ServiceBusMessage.__init__, 'self._message = kwargs["message"]', "dead_letters.py reads the engine's message"),
    (clients.AMQPClientAsync.close_async, "await self._keep_alive_thread", "client.py ends it before a close"),
    (transports.WebSocketTransportAsync.connect, "self.session = ", "client.py closes it"),
    (transports.WebSocketTransportAsync.connect, "self.sock = ", "client.py closes it"),
    (aiohttp.ClientWebSocketResponse.close, "self._response.close()", "client.py closes it"),
    (
        mgmt_handlers.peek_op,
        "amqp_transport.parse_received_message(",
        "dead_letters.py reads a peek as the client does",
    ),
    (PyamqpTransportAsync.parse_received_message, 'm[b"message"]', "dead_letters.py reads the types of a peek"),
    (receivers.ReceiverLink._incoming_transfer, "self._received_payload.extend(frame[11])", "link.py joins its parts"),
    (receivers.ReceiverLink._incoming_transfer, "self._first_frame = frame", "link.py takes the delivery's id"),
    (sessions.Session._incoming_flow, "frame[4]", "link.py reads handle, delivery count and credit of a flow"),
    (PyamqpTransportAsync.enhanced_message_received_async, "_received_messages.put((frame, message))", "link.py"),
    (ServiceBusSender._open, "self._max_message_size_on_link = ", "publish.py names the limit"),
    (ServiceBusSender._open, "self._max_batch_size_on_link = ", "publish.py fills a batch"),
]


def gone(what: str, use: str) -> str:
    return f"azure-servicebus {version('azure-servicebus')} has no {what} any more. It is used: {use}."


@pytest.mark.parametrize(("owner", "name", "use"), PARTS, ids=[f"{owner!r}.{name}" for owner, name, _ in PARTS])
def test_a_part_is_there(owner: object, name: str, use: str) -> None:
    assert hasattr(owner, name), gone(f"{getattr(owner, '__name__', owner)}.{name}", use)


@pytest.mark.parametrize(("function", "names"), PARAMETERS, ids=lambda each: getattr(each, "__qualname__", ""))
def test_a_parameter_is_there(function: Callable[..., Any], names: list[str]) -> None:
    assert set(names) <= inspect.signature(function).parameters.keys()


@pytest.mark.parametrize(("function", "text", "use"), SOURCES, ids=[text for _, text, _ in SOURCES])
def test_a_function_works_as_it_did(function: Callable[..., Any], text: str, use: str) -> None:
    assert text in inspect.getsource(function), gone(f"{text!r} in {function.__qualname__}", use)


def test_the_parts_of_a_message() -> None:
    assert messages.Message._fields[2:6] == ("message_annotations", "properties", "application_properties", "data")
    assert {"message_id", "to", "subject", "reply_to", "correlation_id", "content_type"} <= {
        *messages.Properties._fields
    }
    assert {"group_id", "reply_to_group_id"} <= {*messages.Properties._fields}
    assert messages.BatchMessage._code == 0x80013700


def test_the_fields_of_a_flow() -> None:
    fields = performatives.FlowFrame._fields
    assert fields[4:7] == ("handle", "delivery_count", "link_credit")
