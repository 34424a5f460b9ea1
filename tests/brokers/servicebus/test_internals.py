"""The parts of the client library that ``sdk_internals`` uses and that are not public: a release may remove each. No
other module of the package uses such a part."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp._websocket.reader import WebSocketDataQueue
from azure.servicebus._common import constants, mgmt_handlers
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

from babelgate.brokers import servicebus

PARTS = [
    (ServiceBusReceiver, "_settle_message_via_mgmt_link", "settle_by_tokens"),
    (ServiceBusReceiver, "_renew_locks", "renew_locks"),
    (ServiceBusReceiver, "_create_handler", "work_around_sdk_bugs"),
    (ServiceBusSender, "_create_handler", "work_around_sdk_bugs"),
    (ServiceBusReceiver, "_mgmt_request_response_with_retry", "peek"),
    (ServiceBusReceiver, "_populate_message_properties", "peek"),
    (receivers.ReceiverLink, "_incoming_transfer", "ReceiveLink takes the bytes of a message"),
    (clients.ReceiveClientAsync, "settle_messages_async", "ReceiveLink.give_back"),
    (clients.AMQPClientAsync, "auth_complete_async", "ReceiveLink renews the access token"),
    (clients.AMQPClientAsync, "client_ready_async", "work_around_sdk_bugs"),
    (clients.AMQPClientAsync, "close_async", "work_around_sdk_bugs closes a WebSocket and its session"),
    (connections.Connection, "listen", "is_attached and ReceiveLink read frames"),
    (links.Link, "flow", "ReceiveLink.receive"),
    (links.Link, "get_state", "is_attached and ReceiveLink raise the error of a detached link"),
    (WebSocketDataQueue, "_buffer", "is_attached sees what has arrived"),
    (WebSocketDataQueue, "is_eof", "is_attached sees that the peer has closed"),
    (LinkState, "ATTACHED", "is_attached looks for it"),
    (links.Link, "_incoming_flow", "ReceiveLink sees the end of a drain"),
    (PyamqpTransportAsync, "create_servicebus_exception", "the engine's errors are translated"),
    (clients.SendClientAsync, "send_message_async", "send_message"),
    (encoding, "encode_payload", "publish.py encodes a message once"),
    (encoding, "_ENCODE_MAP", "values are written in their encoded form"),
    (messages, "BatchMessage", "publish.py makes a batch"),
    (error, "AMQPException", "the engine's errors are translated"),
    (constants, "MGMT_RESPONSE_MESSAGE_EXPIRATION", "renew_locks"),
    (constants, "MGMT_REQUEST_DEAD_LETTER_REASON", "dead_letter_details"),
    (constants, "MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION", "dead_letter_details"),
]
PARAMETERS: list[tuple[Callable[..., Any], list[str]]] = [
    (ServiceBusReceiver._settle_message_via_mgmt_link, ["settlement", "lock_tokens", "dead_letter_details"]),
    (ServiceBusReceiver._renew_locks, ["lock_tokens", "timeout"]),
    (connections.Connection.listen, ["wait"]),
    (links.Link.flow, ["link_credit"]),
]
SOURCES: list[tuple[Callable[..., Any], str, str]] = [
    (asyncio.StreamReader.__init__, "self._buffer = ", "is_attached sees what has arrived"),
    (transports.AsyncTransport.connect, "self.reader, self.writer = ", "is_attached looks into it"),
    (aiohttp.ClientWebSocketResponse.__init__, "self._reader = ", "is_attached looks into it"),
    (ServiceBusReceiver._create_handler, "self._handler = ", "work_around_sdk_bugs wraps the handler that it makes"),
    (clients.AMQPClientAsync.close_async, "await self._keep_alive_thread", "end_keep_alive"),
    (transports.WebSocketTransportAsync.connect, "self.session = ", "work_around_sdk_bugs closes it"),
    (transports.WebSocketTransportAsync.connect, "self.sock = ", "work_around_sdk_bugs closes it"),
    (aiohttp.ClientWebSocketResponse.close, "self._response.close()", "work_around_sdk_bugs closes it"),
    (
        mgmt_handlers.peek_op,
        "if status_code == 200:",
        "peek lets it raise the error of another status",
    ),
    (PyamqpTransportAsync.parse_received_message, 'm[b"message"]', "peek reads the messages"),
    *(
        (receivers.ReceiverLink._incoming_transfer, text, "ReceiveLink does the same")
        for text in (
            "self._received_payload.extend(frame[11])",
            "self._first_frame = frame",
            "if not frame[5]:",
            "self.delivery_count += 1",
            "self.current_link_credit -= 1",
            "self._received_delivery_tags.add(self._first_frame[2])",
        )
    ),
    (sessions.Session._incoming_flow, "frame[4]", "ReceiveLink reads handle, delivery count and credit of a flow"),
    (ServiceBusSender._open, "self._max_message_size_on_link = ", "max_message_bytes"),
    (ServiceBusSender._open, "self._max_batch_size_on_link = ", "max_batch_bytes"),
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


_PRIVATE = re.compile(r"azure\.servicebus[\w.]*\._\w+|(?<![\w.])(?!self\b|cls\b)\w+(?:\.\w+)*\._(?!_|replace\b)\w+")


def test_only_one_module_uses_private_names() -> None:
    """What begins with ``self`` is of a class of its own, and ``_replace`` of a named tuple."""
    for module in Path(servicebus.__file__).parent.glob("*.py"):
        if module.name != "sdk_internals.py":
            private = _PRIVATE.findall(module.read_text("utf-8"))
            assert not private, f"{module.name} uses {private}; sdk_internals.py is the place for it"


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
