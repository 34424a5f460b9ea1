"""The parts of aiormq, aio-pika and pamqp that the binding uses beyond their documented interface."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import aiormq.channel
import aiormq.connection
import aiormq.exceptions
import pamqp.decode
import pamqp.encode
import pamqp.frame
import pytest
from aio_pika.abc import UnderlayConnection
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Connection
from pamqp.header import ContentHeader

from babelgate.brokers.rabbitmq import channel as channels
from babelgate.brokers.rabbitmq.profile import AddressedMessage
from babelgate.brokers.rabbitmq.receive import TemporaryConsumer
from babelgate.errors import BrokerUnavailable
from tests.brokers.rabbitmq.support import linked
from tests.harness.local import eventually


class Call:
    """The arguments of a call in the binding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"({', '.join([*map(str, self.args), *(f'{name}=…' for name in self.kwargs)])})"


SELF = "self"

CALLS: list[tuple[object, str, Call, str]] = [
    (UnderlayConnection, "connect", Call("url", "callback", context=1, transport_factory=1), "connection"),
    (aiormq.connection.Connection, "close", Call(SELF, "exception"), "connection"),
    (aiormq.connection.Connection, "channel", Call(SELF, "number", publisher_confirms=1), "channel"),
    (aiormq.connection.TransportFactory, "create", Call(SELF, "url", anything=1), "incoming.Transport"),
    (aiormq.connection.TCPTransportFactory, "create", Call(SELF, "url", anything=1), "incoming.Transport"),
    (aiormq.connection.TLSTransportFactory, "create", Call(SELF, "url", anything=1), "incoming.Transport"),
    (aiormq.channel.Channel, "rpc", Call(SELF, "frame"), "channel.Channel.consume"),
    (aiormq.channel.Channel, "close", Call(SELF, "exception", timeout=1), "channel.Channel.close"),
    (aiormq.channel.Channel, "basic_qos", Call(SELF, prefetch_count=1), "channel.Channel.consume"),
    (aiormq.channel.Channel, "queue_declare", Call(SELF, "queue", passive=1, durable=1, arguments=1), "topology"),
    (aiormq.channel.Channel, "queue_purge", Call(SELF, "queue"), "isolation"),
    (aiormq.channel.Channel, "queue_bind", Call(SELF, "queue", "exchange", "key"), "topology"),
    (aiormq.channel.Channel, "exchange_bind", Call(SELF, "destination", "source", "key"), "topology"),
    (
        aiormq.channel.Channel,
        "exchange_declare",
        Call(SELF, "exchange", exchange_type=1, passive=1, durable=1, arguments=1),
        "topology",
    ),
    (pamqp.frame, "marshal", Call("method", "channel"), "channel.Channel._frame"),
    (pamqp.encode, "by_type", Call("value", "kind"), "frames"),
    (pamqp.encode, "encode_table_value", Call("value"), "frames"),
    (pamqp.decode, "embedded_value", Call("value"), "tables"),
    (Basic.Properties, "attributes", Call(), "frames"),
    (Basic.Properties, "amqp_type", Call("name"), "frames"),
    (Basic, "Get", Call(queue=1), "channel.Channel.get"),
    (Basic, "Consume", Call(queue=1, consumer_tag=1), "channel.Channel.consume"),
    (Basic, "Cancel", Call(consumer_tag=1), "channel.Channel.cancel"),
    (Channel, "Flow", Call(active=1), "channel.Channel.barrier"),
]


def name_of(owner: object, attribute: str) -> str:
    module = getattr(owner, "__module__", None)
    return f"{module}.{owner.__qualname__}.{attribute}" if isinstance(owner, type) else f"{owner.__name__}.{attribute}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("owner", "attribute", "call", "user"), CALLS, ids=[name_of(owner, attribute) for owner, attribute, _, _ in CALLS]
)
def test_it_can_be_called_as_the_binding_calls_it(owner: object, attribute: str, call: Call, user: str) -> None:
    name = name_of(owner, attribute)
    found = getattr(owner, attribute, None)
    if found is None:
        pytest.fail(f"{name} does not exist any more. babelgate.brokers.rabbitmq.{user} uses it.")
    signature = inspect.signature(found)
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        pytest.fail(
            f"{name}{signature} does not accept {call}: {error}. babelgate.brokers.rabbitmq.{user} calls it so."
        )


class ScriptedServer:
    """The few answers of a RabbitMQ server that a publish with confirms needs."""

    ANSWERS: Mapping[type, Any] = {
        Connection.StartOk: Connection.Tune(10, 131_072, 0),
        Connection.Open: Connection.OpenOk(),
        Connection.Close: Connection.CloseOk(),
        Channel.Open: Channel.OpenOk(),
        Channel.Close: Channel.CloseOk(),
        Confirm.Select: Confirm.SelectOk(),
        Channel.Flow: Channel.FlowOk(True),
    }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        capabilities = {"publisher_confirms": True, "basic.nack": True}
        properties: Any = {"capabilities": capabilities, "version": "4.1.0"}
        start = Connection.Start(server_properties=properties)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert (await reader.readexactly(8)).startswith(b"AMQP")
            writer.write(pamqp.frame.marshal(start, 0))
            while True:
                head = await reader.readexactly(7)
                data = head + await reader.readexactly(int.from_bytes(head[3:], "big") + 1)
                _, channel, frame = pamqp.frame.unmarshal(data)
                if isinstance(frame, ContentBody):
                    writer.write(pamqp.frame.marshal(Basic.Ack(1), channel))
                elif type(frame) in self.ANSWERS:
                    writer.write(pamqp.frame.marshal(self.ANSWERS[type(frame)], channel))
        writer.close()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The URL of a scripted server."""
    async with await asyncio.start_server(ScriptedServer().serve, "127.0.0.1", 0) as server:
        yield f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def channel(url: str) -> AsyncIterator[channels.Channel]:
    """A channel of the binding on a scripted server."""
    async with linked(url) as link:
        yield await link.channel(confirms=True)


async def test_a_close_while_a_channel_opens_leaves_neither_a_connection_nor_a_task(url: str) -> None:
    """aiormq forgets a connection whose caller is cancelled when it has just been opened."""
    before = asyncio.all_tasks()
    for turns in range(60):
        async with linked(url) as link:
            opening = asyncio.create_task(link.channel())
            for _ in range(turns):
                await asyncio.sleep(0)
        (found,) = await asyncio.gather(opening, return_exceptions=True)
        assert isinstance(found, channels.Channel | BrokerUnavailable), (turns, found)
        # The server has a task for each connection.
        await eventually(lambda: asyncio.all_tasks() <= before)
    assert isinstance(found, channels.Channel), "it takes less than 60 turns"


ATTRIBUTES: list[tuple[str, Any, str]] = [
    ("number", int, "channel.Channel"),
    ("connection", aiormq.connection.Connection, "channel.Channel"),
    ("connection.channels", dict, "connection.AmqpConnection.channel"),
    ("connection.is_opened", bool, "connection.AmqpConnection"),
    ("connection.connection_tune.frame_max", int, "channel.Channel"),
    ("connection.connection_tune.channel_max", int, "connection.AmqpConnection.channel_max"),
    ("connection.server_properties", dict, "connection.AmqpConnection.server_version"),
    ("connection.closing", asyncio.Future, "connection.AmqpConnection"),
    ("is_closed", bool, "channel.Channel.is_open"),
    ("closing", asyncio.Future, "channel.Channel and channel_pool"),
]


@pytest.mark.parametrize(("path", "kind", "user"), ATTRIBUTES, ids=[path for path, _, _ in ATTRIBUTES])
async def test_a_channel_has_the_attributes_that_the_binding_uses(
    channel: channels.Channel, path: str, kind: Any, user: str
) -> None:
    found: object = channel.rpc
    for part in path.split("."):
        if not hasattr(found, part):
            pytest.fail(
                f"{type(found).__name__}.{part} does not exist any more. babelgate.brokers.rabbitmq.{user} uses it."
            )
        found = getattr(found, part)
    assert isinstance(found, kind), (
        f"Channel.{path} is {found!r}. babelgate.brokers.rabbitmq.{user} expects {kind.__name__}."
    )


async def test_a_confirm_takes_the_way_around_aiormq(channel: channels.Channel) -> None:
    """aiormq must read from the stream that its transport factory made."""
    batch = channel.publish([AddressedMessage("", "orders", Basic.Properties(), b"{}")])
    done, _ = await asyncio.wait({batch.done}, timeout=60)
    assert done, "aiormq reads frames in another way: see babelgate.brokers.rabbitmq.incoming"
    await asyncio.wait_for(channel.barrier(), 60)


async def test_the_rest_of_a_message_whose_channel_has_ended_is_dropped(channel: channels.Channel) -> None:
    getting = asyncio.create_task(channel.get("orders", 1))
    await asyncio.sleep(0)
    got = Basic.GetOk(delivery_tag=1, redelivered=False, exchange="", routing_key="orders", message_count=0)
    method, header = (pamqp.frame.marshal(each, 1)[7:-1] for each in (got, ContentHeader(body_size=4)))
    assert channel.content_method(method)
    channel.content_header(header)
    channel.content_body(b"{ ")
    await channel.close()
    with pytest.raises(channels.ChannelGone):
        await getting
    channel.content_body(b" }")


class Started:
    """A channel on which a consumer starts, and where nothing more can be done, because of ``error``."""

    def __init__(self, error: Exception, is_open: bool) -> None:
        self.error, self.is_open = error, is_open

    async def consume(self, *_: Any) -> str:
        return "tag"

    async def cancel(self, tag: str) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (channels.ChannelGone("closed"), False),
        # A connection that has ended without a reason rejects calls with a bare exception.
        (Exception(), False),
        # A channel that the broker closes is open for some turns of the event loop.
        (aiormq.exceptions.ChannelInvalidStateError("closed by the broker"), True),
    ],
)
async def test_a_consumer_that_ends_with_its_channel_is_no_error(error: Exception, is_open: bool) -> None:
    consumer = TemporaryConsumer(cast(channels.Channel, Started(error, is_open)), "orders", 1)
    assert await consumer.stop() == []


async def test_a_consumer_that_cannot_be_ended_on_an_open_channel_is_an_error() -> None:
    error = aiormq.exceptions.InvalidFrameError("orders")
    consumer = TemporaryConsumer(cast(channels.Channel, Started(error, is_open=True)), "orders", 1)
    with pytest.raises(aiormq.exceptions.InvalidFrameError):
        await consumer.stop()


def test_properties_have_flags_by_name() -> None:
    names = Basic.Properties.attributes()
    assert set(names) == set(Basic.Properties.flags), "pamqp's Basic.Properties changed: see frames._PROPERTIES"
    # AMQP 0-9-1, section 4.2.6.1: the first property is the highest bit. incoming.properties_of relies on the order.
    assert [Basic.Properties.flags[name] for name in names] == [1 << 15 - position for position in range(len(names))]
