"""Every error of the client library has its place in the map."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
from types import SimpleNamespace

import pytest
from azure.core import exceptions as core
from azure.servicebus import exceptions as vendor
from azure.servicebus._pyamqp import error as amqp

from babelgate.brokers.servicebus.client import ServiceBusConnections
from babelgate.brokers.servicebus.errors import BY_CLASS, translate
from babelgate.brokers.servicebus.url import settings_of
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown, StorageFull

CLASSES = [
    found
    for module in (vendor, amqp)
    for _, found in inspect.getmembers(module, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_has_an_ancestor_here(kind: type[Exception]) -> None:
    assert next(base for base in kind.__mro__ if base in BY_CLASS) is not Exception
    if issubclass(kind, vendor.ServiceBusError):
        assert kind in BY_CLASS, "the client library has a new error"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (vendor.MessageLockLostError(), LeaseLost),
        (vendor.SessionLockLostError(), LeaseLost),
        (vendor.ServiceBusServerBusyError(), BrokerUnavailable),
        (vendor.ServiceBusQuotaExceededError(), StorageFull),
        (vendor.MessagingEntityNotFoundError(message="The entity 'q' could not be found."), BrokerRejected),
        (vendor.MessagingEntityDisabledError(), BrokerUnavailable),
        (vendor.ServiceBusAuthenticationError(), BrokerUnavailable),
        (vendor.ServiceBusAuthorizationError(), BrokerRejected),
        (vendor.OperationTimeoutError(), OutcomeUnknown),
        (vendor.ServiceBusConnectionError(), OutcomeUnknown),
        (vendor.ServiceBusCommunicationError(), OutcomeUnknown),
        (vendor.ServiceBusError("amqp:not-allowed: it has sessions"), BrokerRejected),
        (amqp.AMQPConnectionError(amqp.ErrorCondition.SocketError), OutcomeUnknown),
        (core.ClientAuthenticationError("no credentials"), BrokerUnavailable),
        (OSError(104, "Connection reset by peer"), OutcomeUnknown),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_what_it_becomes(error: Exception, expected: type[BabelgateError]) -> None:
    assert type(translate(error, "azure", written=True)) is expected
    if expected is OutcomeUnknown:
        assert type(translate(error, "azure", written=False)) is BrokerUnavailable


def test_a_missing_right_is_named() -> None:
    assert "lack the right Send or Listen" in str(
        translate(vendor.ServiceBusAuthorizationError(), "azure", written=True)
    )


class Stubborn:
    """A sender of the client library that answers its cancellation by an error of its own."""

    _handler = None

    def _create_handler(self, auth: object) -> None:
        """It has none."""

    async def __aenter__(self) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionResetError from None

    async def close(self) -> None:
        """It has nothing to close."""


class Engine:
    """That of a client: it has a socket, and no session yet, so that it takes itself for closed."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._connection = SimpleNamespace(_transport=SimpleNamespace(writer=writer))
        self._keep_alive_thread = None

    async def client_ready_async(self) -> bool:
        return True

    async def close_async(self) -> None:
        """It closes its link, session and connection where it has a session."""


class Sender:
    """A sender of the client library, with a pipe for each connection."""

    def __init__(self, *, reopens: bool = False) -> None:
        self._handler: Engine | None = None
        self._reopens = reopens
        self.writers: list[asyncio.StreamWriter] = []

    def _create_handler(self, auth: object) -> None:
        self._handler = Engine(self.writers[-1])

    async def _connect(self) -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        self.writers.append((await asyncio.open_connection(sock=ours))[1])
        self._create_handler(None)

    async def __aenter__(self) -> None:
        await self._connect()
        if not self._reopens:
            await self.close()
            raise ConnectionResetError

    async def close(self) -> None:
        assert self._handler is not None
        await self._handler.close_async()
        self._handler = None
        if self._reopens:
            # An operation that is under way.
            await self._connect()


@pytest.mark.parametrize("reopens", [False, True], ids=["an open that fails early", "opened again in a close"])
async def test_no_socket_is_forgotten(reopens: bool) -> None:
    connections = ServiceBusConnections("azure", settings_of("servicebus://sample.servicebus.windows.net", {}), 1)
    sender = Sender(reopens=reopens)
    try:
        writer = await connections.open(sender, 60)
    except BrokerUnavailable:
        assert not reopens
    else:
        connections.close_later(sender, writer)
    await connections.close()
    assert [writer.transport.is_closing() for writer in sender.writers] == [True] * (1 + reopens)


async def test_an_open_that_is_given_up_leaves_no_error_to_the_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    connections = ServiceBusConnections("azure", settings_of("servicebus://sample.servicebus.windows.net", {}), 1)
    with pytest.raises(BrokerUnavailable):
        await connections.open(Stubborn(), 0.2)
    await connections.close()
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []
