"""One connection, kept on demand, to a real server."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Any, cast

import pytest

from babelgate.brokers.rabbitmq.channel import ChannelGone
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.url import parameters_of
from babelgate.errors import BrokerUnavailable
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import linked, virtual_host
from tests.harness.local import eventually

pytestmark = pytest.mark.rabbitmq


def connections(rabbit: RabbitServer) -> list[str]:
    return rabbit.ctl("list_connections", "--no-table-headers", "client_properties", "timeout").splitlines()


async def test_it_connects_when_it_is_needed_and_all_that_ask_share_the_attempt(rabbit: RabbitServer) -> None:
    async with linked(rabbit.url(), heartbeat=17) as link:
        assert (link.is_open, link.server_version, link.channel_max) == (False, (), 0)
        channels = await asyncio.gather(*(link.channel() for _ in range(10)))
        assert link.generation == 1 and link.is_open and link.blocked is None
        assert len({channel.generation for channel in channels}) == 10
        assert link.server_version >= (3, 8) and link.channel_max > 0
        (connection,) = [each for each in await asyncio.to_thread(connections, rabbit) if "babelgate" in each]
        assert "babelgate rabbit publish" in connection and connection.endswith("17")


async def test_close_is_idempotent_and_later_calls_fail_until_it_is_opened(rabbit: RabbitServer) -> None:
    async with linked(rabbit.url()) as link:
        await link.open()
        channel = await link.channel()
        await link.close()
        await link.close()
        assert not link.is_open and not channel.is_open
        with pytest.raises(ChannelGone):
            await channel.get("q", 1)
        for call in (link.connected, link.channel):
            with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
                await call()
        assert link.generation == 1
        await link.open()
        assert (await link.channel()).is_open and link.generation == 2


class Suspended(AmqpConnection):
    """The process stands still while a channel opens, which then takes some more round trips."""

    opened: Any = object()

    async def connected(self) -> Any:
        self._reader = cast(Any, object())

    async def _open_channel(self, *_: object) -> Any:
        time.sleep(2.2)  # noqa: ASYNC251
        await asyncio.sleep(0.3)
        return self.opened


async def test_after_a_suspension_a_channel_has_half_of_its_time() -> None:
    link = Suspended("rabbit", parameters_of("amqp://h", {}), "publish", timeout_seconds=2)
    assert await link.channel() is link.opened


async def test_a_process_that_was_suspended_reads_the_answer_before_it_gives_the_server_up(
    rabbit: RabbitServer,
) -> None:
    async with linked(rabbit.url()) as link:
        await link.open()
        opening = asyncio.create_task(link.channel())
        # It has begun to wait. Then the whole process stands still.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(6)  # noqa: ASYNC251
        assert (await opening).is_open
        assert link.generation == 1


async def test_a_virtual_host_of_any_name(rabbit: RabbitServer) -> None:
    with virtual_host(rabbit) as vhost:
        async with linked(rabbit.url(vhost)) as link:
            await link.open()
    with pytest.raises(BrokerUnavailable, match=f"vhost {vhost} not found"):
        async with linked(rabbit.url(vhost)) as link:
            await link.open()


async def test_a_wrong_password_is_named_and_not_shown(rabbit: RabbitServer) -> None:
    async with linked(rabbit.url(password="hunter2")) as link:
        with pytest.raises(BrokerUnavailable, match="login was refused") as refused:
            await link.open()
        assert "hunter2" not in str(refused.value)


async def test_after_a_failure_the_broker_is_left_alone_for_a_while(free_port: int) -> None:
    accepted = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    async with (
        await asyncio.start_server(refuse, "127.0.0.1", free_port),
        linked(f"amqp://127.0.0.1:{free_port}") as link,
    ):
        for _ in range(20):
            with pytest.raises(BrokerUnavailable) as failed:
                await link.channel()
        assert accepted < 10 and "Server connection" in failed.value.reason


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_server_that_never_answers_costs_less_than_five_seconds(free_port: int) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_server(hang, "127.0.0.1", free_port),
        linked(f"amqp://127.0.0.1:{free_port}") as link,
    ):
        with pytest.raises(BrokerUnavailable, match="no answer within 4 s"):
            await link.open()


async def test_a_lost_connection_is_told_once_and_made_again(
    rabbit: RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with linked(rabbit.url()) as link:
        channel = await link.channel()
        with caplog.at_level(logging.DEBUG):
            rabbit.kill()
            with pytest.raises(ChannelGone):
                await channel.barrier()
            await eventually(lambda: not link.is_open)
        # The outage itself is a warning above the bindings (babelgate.gateway.outages).
        assert [record.name for record in caplog.records if record.levelno >= logging.INFO] == [
            "babelgate.brokers.rabbitmq.connection"
        ]
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        with pytest.raises(BrokerUnavailable):
            await link.open()
        await asyncio.to_thread(rabbit.start)
        for _ in range(100):
            try:
                await link.open()
                break
            except BrokerUnavailable:
                await asyncio.sleep(0.1)
        assert link.is_open and link.generation == 2


async def test_numbers_of_channels_are_used_again_and_their_limit_is_a_refusal(
    rabbit: RabbitServer,
) -> None:
    with rabbit.configured(channel_max=5):
        async with linked(rabbit.url()) as link:
            last = [await link.channel() for _ in range(5)][-1]
            with pytest.raises(BrokerUnavailable, match="all 5 channels"):
                await link.channel()
            # The highest stays open; one past it would end the connection.
            for _ in range(3):
                await last.close()
                last = await link.channel()
            assert link.generation == 1


async def test_tls(rabbit: RabbitServer) -> None:
    async with linked(rabbit.tls_url(), ssl_ca_certs=str(rabbit.ca_file)) as link:
        await link.open()
        assert link.is_open
    async with linked(rabbit.tls_url()) as link:
        with pytest.raises(BrokerUnavailable, match="certificate verify failed"):
            await link.open()
    async with linked(rabbit.tls_url(), ssl_cert_reqs="none") as link:
        await link.open()
    async with linked(rabbit.tls_url(), ssl_ca_certs="/does/not/exist") as link:
        with pytest.raises(BrokerUnavailable, match="No such file"):
            await link.open()
