"""The emulator of Azure Service Bus, with the unmodified SDK of the service."""

from __future__ import annotations

import asyncio
import base64
import gc
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    exceptions,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from tests.architecture.sources import ROOT
from tests.brokers.servicebus.server import DEAD_LETTERS, ServiceBusEmulator, emulator
from tests.harness.local import eventually, free_ports

# The SDK forgets the sockets of connections that the server dropped; Client.close() lets them be collected.
pytestmark = [pytest.mark.servicebus, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]

WAIT = 60


@pytest.fixture(scope="module")
def server() -> Iterator[ServiceBusEmulator]:
    """One server for all tests of the module."""
    with emulator() as running:
        yield running


@pytest.fixture
def queue(server: ServiceBusEmulator) -> str:
    """A queue of the test's own."""
    name = f"q-{uuid.uuid4().hex}"
    server.queue(name)
    return name


class Client:
    """The SDK's client, with handlers that are closed together."""

    def __init__(self, server: ServiceBusEmulator, **options: Any) -> None:
        self._stack = AsyncExitStack()
        self.client = ServiceBusClient.from_connection_string(
            server.connection_string(), retry_backoff_factor=0.05, **options
        )

    async def sender(self, queue: str) -> ServiceBusSender:
        """An open sender."""
        return await self._opened(self.client.get_queue_sender(queue))

    async def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        """An open receiver."""
        return await self._opened(self.client.get_queue_receiver(queue, **options))

    async def _opened(self, handler: Any) -> Any:
        self._stack.push_async_callback(handler.close)
        return await handler.__aenter__()

    async def close(self) -> None:
        """Close every handler."""
        await self._stack.aclose()
        await self.client.close()
        gc.collect()
        await asyncio.sleep(0)


@pytest.fixture
async def client(server: ServiceBusEmulator) -> AsyncIterator[Client]:
    """The SDK, connected to the server."""
    server.ensure()
    server.clear_faults()
    made = Client(server)
    yield made
    server.clear_faults()
    await made.close()


@pytest.fixture
async def once(server: ServiceBusEmulator, client: Client) -> AsyncIterator[Client]:
    """The SDK without retries."""
    made = Client(server, retry_total=0)
    yield made
    await made.close()


async def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """The next message."""
    [message] = await receiver.receive_messages(1, WAIT)
    return message


def body(message: ServiceBusReceivedMessage) -> bytes:
    """The bytes of a body of data sections."""
    return b"".join(message.body)


def bare(token: Any) -> ServiceBusReceivedMessage:
    """A message to settle by its lock token alone."""
    message = ServiceBusReceivedMessage.from_bytes(b"\x00\x53\x77\x40")
    message._received_lock_token, message._is_deferred_message = token, True
    return message


async def test_messages_keep_what_their_sender_wrote(server: ServiceBusEmulator, queue: str, client: Client) -> None:
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    identifier = uuid.uuid4()
    properties: dict[str | bytes, Any] = {
        "text": "text",
        "int": 1,
        "long": {"TYPE": "LONG", "VALUE": 1 << 40},
        "double": 0.5,
        "true": True,
        "none": None,
        "uuid": identifier,
    }
    await sender.send_messages(
        ServiceBusMessage(
            b"\x00body\xff" * 10,
            application_properties=properties,
            subject="subject",
            correlation_id="correlation",
            message_id="message",
            content_type="text/plain",
            session_id="session",
            to="to",
            reply_to="reply",
            reply_to_session_id="reply session",
            partition_key="session",
            time_to_live=timedelta(hours=1),
        )
    )
    [stored] = server.messages(queue)
    assert {name: value["value"] for name, value in stored["properties"].items() if "time" not in name} == {
        "message_id": "message",
        "to": "to",
        "subject": "subject",
        "reply_to": "reply",
        "correlation_id": "correlation",
        "content_type": "text/plain",
        "group_id": "session",
        "reply_to_group_id": "reply session",
    }
    assert stored["application_properties"] == {
        "text": {"type": "string", "value": "text"},
        "int": {"type": "int", "value": 1},
        "long": {"type": "long", "value": 1 << 40},
        "double": {"type": "double", "value": 0.5},
        "true": {"type": "boolean", "value": True},
        "none": {"type": "null", "value": None},
        "uuid": {"type": "uuid", "value": str(identifier)},
    }
    assert base64.b64decode(stored["body"]) == b"\x00body\xff" * 10
    assert stored["annotations"]["x-opt-partition-key"]["value"] == "session"
    assert (stored["state"], stored["delivery_count"], stored["header"]["ttl"]) == ("active", 0, 3600000)

    message = await one(receiver)
    assert body(message) == b"\x00body\xff" * 10
    assert (message.delivery_count, message.sequence_number, message.state) == (0, 1, ServiceBusMessageState.ACTIVE)
    assert (message.subject, message.message_id, message.correlation_id) == ("subject", "message", "correlation")
    assert (message.content_type, message.session_id, message.to) == ("text/plain", "session", "to")
    assert (message.reply_to, message.reply_to_session_id) == ("reply", "reply session")
    assert (message.partition_key, message.time_to_live) == ("session", timedelta(hours=1))
    assert message.application_properties == {
        b"text": b"text",
        b"int": 1,
        b"long": 1 << 40,
        b"double": 0.5,
        b"true": True,
        b"none": None,
        b"uuid": identifier,
    }
    assert message.enqueued_time_utc is not None and message.locked_until_utc is not None
    assert abs((message.locked_until_utc - message.enqueued_time_utc).total_seconds() - 30) < 20
    assert server.messages(queue)[0]["state"] == "locked"
    await receiver.complete_message(message)
    assert server.messages(queue) == []

    value = AmqpAnnotatedMessage(value_body={"a": 1}, annotations={"x-own": "note"})
    await sender.send_messages(value)
    large = b"x" * 700_000
    octets = {"type": "binary", "value": base64.b64encode(b"\x00\xff").decode()}
    server.inject_fields(
        queue,
        [
            {
                "body": base64.b64encode(large).decode(),
                "message_id": {"type": "ulong", "value": 7},
                "application_properties": {"bytes": octets},
            }
        ],
    )
    first, second = await one(receiver), await one(receiver)
    assert first.body_type is AmqpMessageBodyType.VALUE and first.body == {b"a": 1}
    assert (first.raw_amqp_message.annotations or {})[b"x-own"] == b"note"
    assert body(second) == large and str(second.message_id) == "7"
    assert second.application_properties == {b"bytes": b"\x00\xff"}
    # It takes several frames each way.
    await sender.send_messages(ServiceBusMessage(large, subject="large"))
    third = await one(receiver)
    assert body(third) == large and third.subject == "large"


async def test_settlement_on_the_link_and_by_token(server: ServiceBusEmulator, queue: str, client: Client) -> None:
    server.queue(queue, max_delivery_count=3)
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    other = await client.receiver(queue)
    dead = await client.receiver(queue, sub_queue="deadletter")
    await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(8)])
    first, *rest = await receiver.receive_messages(8, WAIT)
    assert [body(message) for message in [first, *rest]] == [b"%d" % number for number in range(8)]

    # An abandoned message comes first again, one more delivery counted; the last delivery is a dead letter.
    for attempt in (1, 2):
        await receiver.abandon_message(first)
        first = await one(receiver)
        assert (body(first), first.delivery_count, first.sequence_number) == (b"0", attempt, 1)
    await receiver.abandon_message(first)
    buried = await one(dead)
    assert (buried.dead_letter_reason, buried.dead_letter_source) == ("MaxDeliveryCountExceeded", queue)
    assert buried.dead_letter_error_description and buried.sequence_number == 1
    await dead.complete_message(buried)

    await receiver.dead_letter_message(rest[0], reason="reason", error_description="description")
    await other.dead_letter_message(bare(rest[1].lock_token), reason="other", error_description="text")
    for reason, description in (("reason", "description"), ("other", "text")):
        buried = await one(dead)
        assert (buried.dead_letter_reason, buried.dead_letter_error_description) == (reason, description)
        await dead.abandon_message(buried)
        assert (await one(dead)).delivery_count == 1
    assert [each["state"] for each in server.messages(f"{queue}/$deadletterqueue")] == ["locked", "locked"]

    await other.complete_message(bare(rest[2].lock_token))
    await other.abandon_message(bare(rest[3].lock_token))
    again = await one(receiver)
    assert (body(again), again.delivery_count) == (b"4", 1)
    await receiver.complete_message(again)
    with pytest.raises(exceptions.MessageLockLostError):
        await other.complete_message(bare(rest[2].lock_token))

    # Deferred messages come by their sequence numbers only.
    await receiver.defer_message(rest[4])
    await other.defer_message(bare(rest[5].lock_token))
    numbers = [rest[4].sequence_number, rest[5].sequence_number]
    assert [each["state"] for each in server.messages(queue)] == ["deferred", "deferred", "locked"]
    deferred = await other.receive_deferred_messages([number for number in numbers if number])
    assert [body(message) for message in deferred] == [b"5", b"6"]
    assert deferred[0].state is ServiceBusMessageState.DEFERRED
    await other.complete_message(deferred[0])
    with pytest.raises(exceptions.MessageNotFoundError):
        await other.receive_deferred_messages(numbers[0] or 0)

    # All tokens of a request apply, or none.
    with pytest.raises(exceptions.MessageLockLostError):
        await other._settle_message_via_mgmt_link("completed", [rest[6].lock_token, uuid.uuid4()])
    assert [each["state"] for each in server.messages(queue)] == ["deferred", "locked"]
    await other._settle_message_via_mgmt_link("completed", [rest[6].lock_token, deferred[1].lock_token])
    assert server.messages(queue) == []


async def test_released_messages_and_drained_credit(server: ServiceBusEmulator, queue: str, client: Client) -> None:
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    assert await receiver.receive_messages(5, 0.1) == []
    assert server.credit(queue) == 5
    handler: Any = receiver._handler
    echoes: list[Any] = []

    async def flow(frame: Any) -> None:
        # The SDK drops this frame: fields 5, 6 and 8 are the delivery count, the credit and the drain flag.
        handler._link.delivery_count, handler._link.current_link_credit = frame[5], frame[6]
        echoes.append(frame)

    async def drain(frames: int) -> None:
        await handler._link.flow(link_credit=5, drain=True)
        async with asyncio.timeout(WAIT):
            while len(echoes) < frames:
                await handler._connection.listen(wait=0.1)
        assert (echoes[-1][6], echoes[-1][8], server.credit(queue)) == (0, True, 0)

    handler._link._incoming_flow = flow
    await drain(1)
    assert server.entity(queue)["counters"]["drains"] == 1
    await sender.send_messages(ServiceBusMessage("kept"))
    assert [(each["state"], each["delivery_count"]) for each in server.messages(queue)] == [("active", 0)]

    # What is available is delivered before the credit is consumed.
    receiver._receive_context.set()
    await drain(2)
    receiver._receive_context.clear()
    assert server.messages(queue)[0]["state"] == "locked"
    frame, _ = handler._received_messages.get_nowait()
    await handler.settle_messages_async(frame[1], frame[2], "released", await_outcome=True)
    assert server.messages(queue)[0]["state"] == "active"
    message = await one(receiver)
    assert (body(message), message.delivery_count) == (b"kept", 0)

    # A message of a link that ends stays locked, unless the options say otherwise.
    await receiver.close()
    assert server.messages(queue)[0]["state"] == "locked"
    name = cast(Any, sender._handler)._link.name
    assert server.entity(queue)["links"] == [{"role": "sender", "kind": "entity", "name": name}]
    other = await client.receiver(queue)
    await other.complete_message(bare(message.lock_token))
    server.options(release_on_disconnect=True)
    try:
        await sender.send_messages(ServiceBusMessage("released"))
        await one(other)
        await other.close()
        assert [(each["state"], each["delivery_count"]) for each in server.messages(queue)] == [("active", 0)]
    finally:
        server.options(release_on_disconnect=False)
    deleting = await client.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    assert body(await one(deleting)) == b"released"
    assert server.messages(queue) == []


async def test_the_clock_ends_locks_and_starts_scheduled_messages(
    server: ServiceBusEmulator, queue: str, client: Client
) -> None:
    server.queue(queue, max_delivery_count=2)
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    await sender.send_messages(ServiceBusMessage("a"))
    message = await one(receiver)
    server.advance(20)
    renewed = await receiver.renew_message_lock(message)
    assert renewed == message.locked_until_utc
    server.advance(20)
    assert server.messages(queue)[0]["state"] == "locked"
    server.advance(20)
    assert [(each["state"], each["delivery_count"]) for each in server.messages(queue)] == [("active", 1)]
    with pytest.raises(exceptions.MessageLockLostError):
        await receiver.complete_message(bare(message.lock_token))
    with pytest.raises(exceptions.MessageLockLostError):
        await receiver.renew_message_lock(bare(message.lock_token))
    message = await one(receiver)
    assert message.delivery_count == 1
    assert server.lose_lock(queue, str(message.lock_token)) == 1
    with pytest.raises(exceptions.MessageLockLostError):
        await receiver.complete_message(message)
    assert server.counts(queue) == {"active": 0, "scheduled": 0, "dead_letter": 1, "total": 1}

    later = datetime.fromtimestamp(server.state()["now"] / 1000, UTC) + timedelta(hours=1)
    await sender.send_messages(ServiceBusMessage("annotated", scheduled_enqueue_time_utc=later))
    numbers = await sender.schedule_messages([ServiceBusMessage("managed"), ServiceBusMessage("cancelled")], later)
    assert server.counts(queue)["scheduled"] == 3
    await sender.cancel_scheduled_messages(numbers[1])
    with pytest.raises(exceptions.MessageNotFoundError):
        await sender.cancel_scheduled_messages(numbers[1])
    peeked = await receiver.peek_messages(10, sequence_number=1)
    assert [body(each) for each in peeked] == [b"annotated", b"managed"]
    assert all(each.state is ServiceBusMessageState.SCHEDULED for each in peeked)
    assert peeked[0].scheduled_enqueue_time_utc == later.replace(microsecond=later.microsecond // 1000 * 1000)
    server.advance(3601)
    messages = [await one(receiver), await one(receiver)]
    assert {body(each) for each in messages} == {b"annotated", b"managed"}
    assert {each.sequence_number for each in messages} == {5, 6}
    await receiver.defer_message(messages[0])
    peeked = await receiver.peek_messages(10, sequence_number=1)
    assert [each.state for each in peeked] == [ServiceBusMessageState.DEFERRED, ServiceBusMessageState.ACTIVE]
    assert await receiver.peek_messages(10, sequence_number=7) == []


async def test_times_to_live_duplicates_and_limits(
    server: ServiceBusEmulator, queue: str, client: Client, once: Client
) -> None:
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    await sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(seconds=10)))
    await sender.send_messages(ServiceBusMessage("long", time_to_live=timedelta(days=10)))
    server.advance(11)
    assert [base64.b64decode(each["body"]) for each in server.messages(queue)] == [b"long"]
    server.queue(queue, dead_letter_on_expiration=True, default_ttl_seconds=30)
    await sender.send_messages(ServiceBusMessage("default"))
    server.advance(31)
    [buried] = server.messages(queue + DEAD_LETTERS)
    assert buried["application_properties"]["DeadLetterReason"]["value"] == "TTLExpiredException"
    locked = await one(receiver)
    assert body(locked) == b"long"

    server.queue(queue, duplicate_detection_seconds=60, default_ttl_seconds=0)
    for _ in range(2):
        await sender.send_messages(ServiceBusMessage("same", message_id="same"))
    assert server.counts(queue)["active"] == 2
    server.advance(61)
    await sender.send_messages(ServiceBusMessage("same", message_id="same"))
    assert server.counts(queue)["active"] == 3

    limited = f"{queue}-limited"
    server.queue(limited, max_message_size=5000, max_batch_size=5000, max_size=3000)
    small = await once.sender(limited)
    with pytest.raises(exceptions.ServiceBusQuotaExceededError):
        await small.send_messages(ServiceBusMessage(b"x" * 4000))
    server.queue(limited, max_message_size=1000)
    with pytest.raises(exceptions.MessageSizeExceededError):
        await small.send_messages(ServiceBusMessage(b"x" * 2000))
    batch = await small.create_message_batch()
    with pytest.raises(exceptions.MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(b"x" * 6000))
    server.queue(limited, disabled=True)
    with pytest.raises(exceptions.MessagingEntityDisabledError):
        await small.send_messages(ServiceBusMessage("x"))
    with pytest.raises(exceptions.MessagingEntityDisabledError):
        await once.receiver(limited)

    server.options(auto_create=False)
    try:
        with pytest.raises(exceptions.MessagingEntityNotFoundError):
            await once.receiver(f"{queue}-missing")
        with pytest.raises(exceptions.MessagingEntityNotFoundError):
            await once.sender(f"{queue}-missing")
    finally:
        server.options(auto_create=True)


async def test_sessions(server: ServiceBusEmulator, queue: str, client: Client, once: Client) -> None:
    server.queue(queue, requires_session=True)
    sender = await client.sender(queue)
    await sender.send_messages([ServiceBusMessage(f"{n}", session_id="ab"[n % 2]) for n in range(4)])
    with pytest.raises(exceptions.ServiceBusError, match="SessionId"):
        await sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(exceptions.ServiceBusError, match="requires sessions"):
        await once.receiver(queue)
    receiver = await client.receiver(queue, session_id="b")
    with pytest.raises(exceptions.SessionCannotBeLockedError):
        await once.receiver(queue, session_id="b")
    messages = [await one(receiver), await one(receiver)]
    assert [body(message) for message in messages] == [b"1", b"3"]
    session = receiver.session
    assert await session.get_state() is None
    await session.set_state(b"state")
    assert await session.get_state() == b"state"
    ends = session.locked_until_utc
    server.advance(10)
    assert ends is not None and await session.renew_lock() > ends + timedelta(seconds=9)
    assert [body(each) for each in await receiver.peek_messages(10, sequence_number=1)] == [b"1", b"3"]
    await receiver.complete_message(messages[0])
    await receiver.defer_message(messages[1])
    [deferred] = await receiver.receive_deferred_messages(messages[1].sequence_number or 0)
    await receiver.complete_message(deferred)

    following = await client.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    assert following.session.session_id == "a"
    held = await one(following)
    assert {name async for name in client.client.list_queue_sessions(queue)} == {"a", "b"}
    with pytest.raises(exceptions.OperationTimeoutError):
        await once.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)

    # A closed session gives its messages back uncounted; a session whose lock ends gives them back counted.
    await following.close()
    assert server.messages(queue)[0]["state"] == "active"
    following = await client.receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    held = await one(following)
    assert (body(held), held.delivery_count) == (b"0", 0)
    server.advance(31)
    assert [each["delivery_count"] for each in server.messages(queue)] == [1, 0]
    waiting = asyncio.create_task(client.receiver(queue, session_id="c"))
    last = await waiting
    await sender.send_messages(ServiceBusMessage("c", session_id="c"))
    assert body(await one(last)) == b"c"


async def test_queues_are_described(server: ServiceBusEmulator, client: Client) -> None:
    class Redirected(AioHttpTransport):  # type: ignore[misc]  # the library has no types for it
        async def send(self, request: Any, **options: Any) -> Any:
            request.url = (
                urlsplit(request.url)._replace(scheme="http", netloc=f"127.0.0.1:{server.control_port}").geturl()
            )
            return await super().send(request, **options)

    name = f"described/{uuid.uuid4().hex}"
    server.queue(name, lock_seconds=7, max_delivery_count=4, requires_session=False, duplicate_detection_seconds=60)
    server.inject(name, b"a", b"b", b"c")
    receiver = await client.receiver(name)
    await receiver.dead_letter_message(await one(receiver))
    await one(receiver)
    transport = Redirected()
    made = ServiceBusAdministrationClient.from_connection_string(
        server.connection_string(), transport=transport, retry_total=0
    )
    async with made as admin:
        found = await admin.get_queue(name)
        assert (found.name, found.lock_duration, found.max_delivery_count) == (name, timedelta(seconds=7), 4)
        assert (found.requires_session, found.requires_duplicate_detection) == (False, True)
        assert found.duplicate_detection_history_time_window == timedelta(seconds=60)
        told = await admin.get_queue_runtime_properties(name)
        assert (told.active_message_count, told.dead_letter_message_count) == (2, 1)
        assert (told.scheduled_message_count, told.total_message_count) == (0, 3)
        assert told.size_in_bytes and told.created_at_utc
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue(f"{name}-missing")
        names = {f"listed-{number:03}" for number in range(120)}
        for each in names:
            server.queue(each)
        assert {each.name async for each in admin.list_queues()} >= names | {name}
        for each in names:
            assert server.delete_queue(each)
        server.fault("unauthorized_http", times=1)
        with pytest.raises(ClientAuthenticationError):
            await admin.get_queue(name)


async def test_faults_of_connections(server: ServiceBusEmulator, queue: str, client: Client) -> None:
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    server.fault("drop_before_send", queue, times=1)
    await sender.send_messages(ServiceBusMessage("once"))
    assert server.counts(queue)["active"] == 1
    # The SDK repeats a send that was stored and not answered.
    server.fault("drop_after_send", queue, times=1)
    await sender.send_messages(ServiceBusMessage("twice"))
    assert server.counts(queue)["active"] == 3
    assert [(each["kind"], each["hits"]) for each in server.faults()] == [
        ("drop_before_send", 1),
        ("drop_after_send", 1),
    ]
    server.clear_faults()

    message = await one(receiver)
    server.fault("drop_before_disposition", queue, times=1)
    await receiver.complete_message(message)
    assert server.counts(queue)["active"] == 2
    message = await one(receiver)
    server.fault("drop_after_disposition", queue, times=1)
    with pytest.raises(exceptions.MessageLockLostError):
        await receiver.complete_message(message)
    assert server.counts(queue)["active"] == 1
    server.fault("drop_after_management", queue, times=1, operation="peek-message")
    assert len(await receiver.peek_messages(1, sequence_number=1)) == 1
    assert server.faults()[-1]["hits"] == 1

    assert server.detach(queue, kind="receiver") == 1
    assert body(await one(receiver)) == b"twice"
    assert server.disconnect() >= 2
    await eventually(lambda: server.state()["connections"] == 0)
    await sender.send_messages(ServiceBusMessage("after"))
    assert server.counts(queue)["active"] == 2


async def test_faults_of_entities(server: ServiceBusEmulator, queue: str, client: Client, once: Client) -> None:
    sender, receiver = await client.sender(queue), await client.receiver(queue)
    server.fault("throttle", queue)
    unlucky = await once.sender(f"{queue}-other")
    with pytest.raises(exceptions.ServiceBusServerBusyError):
        await once.receiver(queue)
    with pytest.raises(exceptions.ServiceBusServerBusyError):
        await once.sender(queue)
    server.fault("throttle", f"{queue}-other", operation="send", times=1)
    with pytest.raises(exceptions.ServiceBusServerBusyError):
        await unlucky.send_messages(ServiceBusMessage("x"))
    await unlucky.send_messages(ServiceBusMessage("x"))
    server.clear_faults()
    server.fault("throttle", queue, operation="management", times=1)
    assert await receiver.peek_messages(1) == []
    assert server.faults()[0]["hits"] == 1

    server.clear_faults()
    server.fault("refuse_tokens", queue)
    with pytest.raises(exceptions.ServiceBusAuthenticationError):
        await once.receiver(queue)
    server.clear_faults()
    server.fault("unauthorized", queue)
    with pytest.raises(exceptions.ServiceBusAuthorizationError):
        await once.receiver(queue)
    server.clear_faults()

    server.fault("hang", queue)
    sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("late")))
    await eventually(lambda: server.entity(queue)["held"] == 1)
    assert not sending.done() and server.messages(queue) == []
    server.clear_faults()
    await sending
    assert body(await one(receiver)) == b"late"


async def test_everything_accepted_survives_a_kill(tmp_path: Path) -> None:
    with emulator(tmp_path) as server:
        client = Client(server)
        server.defaults(lock_seconds=60)
        server.queue("sessions", requires_session=True)
        sender, receiver = await client.sender("q"), await client.receiver("q")
        session = await client.receiver("sessions", session_id="s")
        await session.session.set_state(b"kept")
        sent = [ServiceBusMessage(f"{number}", message_id=str(number)) for number in range(7)]
        await sender.send_messages(sent)
        held, done, deferred, buried, failed, *_ = await receiver.receive_messages(5, WAIT)
        await receiver.complete_message(done)
        await receiver.defer_message(deferred)
        await receiver.dead_letter_message(buried, reason="reason")
        await receiver.abandon_message(failed)
        later = datetime.now(UTC) + timedelta(hours=1)
        await sender.schedule_messages(ServiceBusMessage("later"), later)
        server.advance(5)
        before = [server.messages(name) for name in ("q", f"q{DEAD_LETTERS}")]
        assert [each["state"] for each in before[0]] == [
            "locked",
            "deferred",
            "active",
            "active",
            "active",
            "scheduled",
        ]
        for end in (server.kill, server.stop):
            end()
            server.start()
            assert [server.messages(name) for name in ("q", f"q{DEAD_LETTERS}")] == before
        assert server.entity("new")["settings"]["lock_seconds"] == 60

        # The lock holds, its token settles the message, and the rest comes in its order.
        assert await receiver.peek_messages(1, sequence_number=1)
        await receiver.complete_message(bare(held.lock_token))
        message = await one(receiver)
        assert (body(message), message.delivery_count) == (b"4", 1)
        server.advance(3600)
        assert [body(each) for each in await receiver.receive_messages(3, WAIT)] == [b"4", b"5", b"6"]
        assert body(await one(receiver)) == b"later"
        again = await client.receiver("sessions", session_id="s")
        assert await again.session.get_state() == b"kept"
        await client.close()


async def test_a_paused_server_goes_on(server: ServiceBusEmulator, queue: str, client: Client) -> None:
    sender = await client.sender(queue)
    server.pause()
    sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
    done, _ = await asyncio.wait({sending}, timeout=0.5)
    assert not done
    server.ensure()
    await sending
    assert server.counts(queue)["active"] == 1


async def test_the_command_prints_what_a_client_and_a_gateway_need(tmp_path: Path) -> None:
    port, control = free_ports(2)
    command = [sys.executable, "-m", "tools.servicebus_emulator", "--port", str(port), "--control", str(control)]
    command += ["--data", str(tmp_path / "messages.sqlite")]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        printed = [(await process.stdout.readline()).decode().split() for _ in range(2)]
        client = ServiceBusClient.from_connection_string(printed[0][-1])
        async with client, client.get_queue_sender("made-by-use") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        assert printed[1][-1].startswith("servicebus://?connection_string=Endpoint")
    finally:
        process.terminate()
    assert await process.wait() == 0
