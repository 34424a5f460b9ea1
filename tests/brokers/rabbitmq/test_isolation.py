"""What one queue, one message or one caller can do to the connections that all queues share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from aiormq.exceptions import ChannelLockedResource, ConnectionClosed, ConnectionInternalError

from babelgate.brokers.binding import Delivery, NativeQueue
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.brokers.rabbitmq.channel import ChannelGone
from babelgate.brokers.rabbitmq.isolation import ALONE_SECONDS, FAILED_SECONDS, UNSUPPORTED_SECONDS, QueueTrust
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.config import settings
from babelgate.errors import BabelgateError, BrokerUnavailable, UnsupportedByBroker
from babelgate.server.server import uvicorn_config
from tests.brokers.rabbitmq.harness import client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.wire_support import message, reserved
from tests.harness.sockets import serving
from tests.harness.ways import Served
from tests.harness.world import until

pytestmark = pytest.mark.rabbitmq

UNSUPPORTED = {
    "stream": {"x-queue-type": "stream"},
    "single": {"x-queue-type": "quorum", "x-single-active-consumer": True},
}
DRAFT = {"job": "urn:babel:a:b", "data": {}}


async def failure(call: Callable[[], Awaitable[object]]) -> BabelgateError:
    """The error that a call must raise."""
    with pytest.raises(BabelgateError) as caught:
        await call()
    return caught.value


@pytest.fixture(params=UNSUPPORTED)
def foreign(request: pytest.FixtureRequest, rabbit: RabbitServer, queue: str) -> str:
    """A queue of another program that cannot be served by ``basic.get``."""
    with client(rabbit.url()) as channel:
        channel.queue_declare(queue, durable=True, arguments=UNSUPPORTED[request.param])
    return queue


@pytest.fixture
async def leased(one: RabbitBinding, queue: str) -> AsyncIterator[tuple[NativeQueue, Delivery]]:
    """A delivery of another queue, whose lease must still be there in the end."""
    other = one.native_queue(f"{queue}.other", {})
    assert await one.publish(other, [message()]) == [None]
    delivery = await reserved(one, other)
    yield other, delivery
    assert one.outstanding(other, [delivery.handle]) == [True]
    assert await one.ack(other, [delivery.handle]) == [None]


@pytest.mark.parametrize("declare", ["passive", "none"])
async def test_a_queue_that_cannot_be_served_is_refused_and_harms_no_other(
    rabbit: RabbitServer, one: RabbitBinding, foreign: str, declare: str, leased: tuple[NativeQueue, Delivery]
) -> None:
    native = one.native_queue(foreign, {"declare": declare})
    assert await one.publish(native, [message()]) == [None]
    for _ in range(3):
        error = await failure(lambda: one.reserve(native, 1, 0.1, 30))
        assert isinstance(error, UnsupportedByBroker) and not error.retryable
        assert error.problem_code == "queue_unsupported" and foreign in error.detail


async def test_a_purge_of_a_stream_is_refused_and_harms_no_other(
    rabbit: RabbitServer, one: RabbitBinding, queue: str, leased: tuple[NativeQueue, Delivery]
) -> None:
    with client(rabbit.url()) as channel:
        for name in (queue, f"{queue}.dlq"):
            channel.queue_declare(name, durable=True, arguments=UNSUPPORTED["stream"])
    native = one.native_queue(queue, {"declare": "passive"})
    error = await failure(lambda: one.purge(native))
    assert isinstance(error, UnsupportedByBroker) and error.problem_code == "queue_unsupported"
    # A stream counts as empty.
    assert await one.purge_dead(native) == 0


async def test_a_queue_of_another_program_is_received_on_the_shared_connection_after_an_answer(
    rabbit: RabbitServer, one: RabbitBinding, queue: str
) -> None:
    with client(rabbit.url()) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10})
    native = one.native_queue(queue, {"declare": "passive"})
    assert await one.publish(native, [message("1"), message("2")]) == [None, None]
    first = await reserved(one, native)
    second = await reserved(one, native)
    third = one.reserve(native, 1, 0, 30)
    assert await third == []
    assert [first.body, second.body] == [message("1").body, message("2").body]
    assert (first.redelivered, second.redelivered) == (False, False)
    generations = {each.handle.split(".")[0] for each in (first, second)}
    assert len(generations) == 2
    assert await one.ack(native, [first.handle, second.handle]) == [None, None]


async def test_a_queue_whose_receive_fails_ends_the_leases_of_others_once_at_most(
    rabbit: RabbitServer, one: RabbitBinding, queue: str
) -> None:
    failing = one.native_queue(queue, {"queue_type": "quorum"})
    assert await one.publish(failing, [message()]) == [None]
    assert await one.ack(failing, [(await reserved(one, failing)).handle]) == [None]
    rabbit.queue_eval(queue, "ra:stop_server(quorum_queues, Pid)")
    assert isinstance(await failure(lambda: one.reserve(failing, 1, 0, 30)), BrokerUnavailable)
    other = one.native_queue(f"{queue}.other", {})
    assert await one.publish(other, [message()]) == [None]
    delivery = await reserved(one, other)
    errors: list[BabelgateError] = []

    async def is_asked_again() -> bool:
        """An error is remembered for a moment: another one is a new answer of the broker."""
        error = await failure(lambda: one.reserve(failing, 1, 0, 30))
        assert isinstance(error, BrokerUnavailable) and queue in error.reason
        errors.append(error)
        return any(each is not errors[0] for each in errors)

    await until(is_asked_again)
    assert one.outstanding(other, [delivery.handle]) == [True]
    assert await one.ack(other, [delivery.handle]) == [None]
    rabbit.queue_eval(queue, "ra:restart_server(quorum_queues, Pid)")

    async def serves() -> bool:
        return await one.publish(failing, [message("after")]) == [None]

    await until(serves)

    async def received() -> bool:
        return [each.body for each in await one.reserve(failing, 1, 1, 30)] == [message("after").body]

    await until(received)


def ended(text: str) -> ChannelGone:
    """The error of a pending call when the broker ends the connection with ``text``."""
    gone = ChannelGone(text)
    gone.__cause__ = ConnectionInternalError(text)
    return gone


def test_what_is_remembered_of_a_queue_and_for_how_long() -> None:
    now = [1000.0]
    trust = QueueTrust("rabbit", lambda: now[0])
    declared, foreign = queue_of("q", {}), queue_of("p", {"declare": "passive"})
    assert trust.shares(declared) and not trust.shares(foreign)
    trust.answered("p")
    assert trust.shares(foreign)
    trust.forget("p")
    assert not trust.shares(foreign)
    # The broker names the queue, and it is another one; or it restarts; or only a channel ended.
    trust.failed("q", ended("INTERNAL_ERROR - queue 'other' in vhost '/': noproc"), False)
    for harmless in (ConnectionClosed(320, "CONNECTION_FORCED"), OSError("reset"), ChannelLockedResource("exclusive")):
        gone = ChannelGone("closed")
        gone.__cause__ = harmless
        trust.failed("q", gone, False)
    assert trust.shares(declared)
    # With others on a connection that ended: alone until an answer.
    trust.failed("q", ended("INTERNAL_ERROR"), False)
    assert not trust.shares(declared) and trust.is_suspect("q")
    trust.check("q")
    trust.answered("q")
    assert trust.shares(declared)
    # Alone on a connection that ended: refused for a moment, and alone for longer, whatever is answered.
    with pytest.raises(BrokerUnavailable, match="the queue q"):
        trust.failed("q", ended("INTERNAL_ERROR"), True)
    with pytest.raises(BrokerUnavailable):
        trust.check("q")
    now[0] += FAILED_SECONDS
    trust.check("q")
    trust.answered("q")
    assert not trust.shares(declared)
    now[0] += ALONE_SECONDS
    assert trust.shares(declared)
    locked = ChannelLockedResource(
        "basic.get operations are not supported by quorum queues with single active consumer"
    )
    with pytest.raises(UnsupportedByBroker):
        trust.failed("p", locked, True)
    now[0] += UNSUPPORTED_SECONDS - 1
    with pytest.raises(UnsupportedByBroker):
        trust.check("p")
    now[0] += 1
    trust.check("p")


@contextmanager
def served(rabbit: RabbitServer, state: Path, direct: bool, routes: Mapping[str, Any]) -> Iterator[httpx.Client]:
    """A client of a gateway over the server, which serves requests directly, or by the application."""
    path = state / "babelgate.yaml"
    broker = {"url": rabbit.url(), "timeout_seconds": 30}
    config = {"state_dir": str(state), "brokers": {"rabbit": broker}, "queues": routes}
    path.write_text(yaml.safe_dump(config | {"default": {"broker": "rabbit"}}))
    found = settings.load(path, {})
    with (
        serving(uvicorn_config(Served(found, direct=direct).build, found)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}/queues", timeout=60) as caller,
    ):
        yield caller


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "application"])
def test_the_answer_is_422_and_leases_of_other_queues_go_on(
    rabbit: RabbitServer, foreign: str, tmp_path: Path, direct: bool
) -> None:
    with served(rabbit, tmp_path, direct, {foreign: {"broker": "rabbit", "declare": "passive"}}) as caller:
        other = f"/{foreign}.other/messages"
        assert caller.post(other, json=DRAFT).status_code == 201
        (leased,) = caller.post(f"{other}:receive?wait_seconds=10").json()["messages"]
        for _ in range(3):
            answer = caller.post(f"/{foreign}/messages:receive")
            problem = answer.json()
            assert (answer.status_code, problem["code"], problem["retryable"]) == (422, "queue_unsupported", False)
        assert caller.post(f"{other}:ack", json={"ack_tokens": [leased["ack_token"]]}).status_code == 200
