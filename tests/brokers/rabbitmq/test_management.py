"""The management API: its counts and warnings, and that it is optional."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from app.brokers.rabbitmq.management import ManagementClient
from app.brokers.rabbitmq.options import queue_of
from app.brokers.rabbitmq.stats import warnings_of
from app.brokers.rabbitmq.url import parameters_of
from app.gateway.ack_tokens import TokenSealer
from app.gateway.authorization import ANYONE, Caller, Right
from app.gateway.gateway import Gateway
from app.gateway.overview import known_queues
from app.gateway.routing import Router, Rule
from tests.brokers.rabbitmq.harness import binding, client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import linked
from tests.harness.world import KEYS

QUORUM = {"queue_type": "quorum"}
pytestmark = pytest.mark.rabbitmq


def management(url: str, api: str, **options: str) -> ManagementClient:
    read = parameters_of(url, {"management": api, **options})
    assert read.management is not None
    return ManagementClient("rabbit", read.management, read.vhost)


@pytest.fixture
async def api(managed: RabbitServer) -> AsyncIterator[ManagementClient]:
    opened = management(managed.url(), managed.management_url)
    yield opened
    await opened.close()
    await opened.close()


async def test_counts_and_names(managed: RabbitServer, queue: str, api: ManagementClient) -> None:
    with client(managed.url()) as channel:
        channel.queue_declare(queue, durable=True)
        for _ in range(3):
            channel.basic_publish("", queue, b"x")
        channel.basic_get(queue)
        shown = None
        # It gathers them now and then.
        for _ in range(100):
            counts = await api.counts(queue)
            shown = counts and (counts.messages_ready, counts.messages_unacknowledged)
            if shown == (2, 1):
                break
            await asyncio.sleep(0.05)
        assert shown == (2, 1)
    assert queue in (await api.queues() or ())
    assert await api.counts(f"{queue}.missing") is None


async def test_an_api_that_does_not_answer_is_told_of_once(
    managed: RabbitServer, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed = management(managed.url(), "http://127.0.0.1:1")
    refusing = management(managed.url(), managed.management_url, management_password="hunter2")
    for api, word in ((closed, "does not answer"), (refusing, "status 401")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert [await api.counts(queue) for _ in range(3)] == [None] * 3
            assert await api.queues() is None
        (record,) = caplog.records
        assert word in record.getMessage() and "hunter2" not in record.getMessage()
        await api.close()


async def test_a_queue_that_drops_or_forgets_is_warned_of(
    managed: RabbitServer, queue: str, api: ManagementClient
) -> None:
    names = [f"{queue}.{kind}" for kind in ("sound", "drops", "forgets", "missing")]
    with client(managed.url()) as channel:
        channel.queue_declare(
            names[0], durable=True, arguments=dict(queue_of(names[0], QUORUM).profile.topology.queues[1].arguments)
        )
        channel.queue_declare(names[1], durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_declare(names[2], durable=False)
    async with linked(managed.url()) as link:
        drops, forgets = await warnings_of(link, api, [queue_of(name, {"declare": "passive"}) for name in names])
    assert names[1] in drops and "dropped" in drops
    assert names[2] in forgets and "not durable" in forgets


async def test_a_server_that_is_down_has_no_warnings() -> None:
    async with linked("amqp://127.0.0.1:1") as link:
        assert await warnings_of(link, None, []) == []


async def test_queues_of_the_virtual_host_are_listed_by_the_names_of_their_routes(
    managed: RabbitServer, queue: str
) -> None:
    with client(managed.url()) as channel:
        for name in (queue, f"ojs.queue.{queue}.jobs", f"ojs.dead.{queue}.jobs", f"{queue}.dlq", f"{queue}-others"):
            channel.queue_declare(name, durable=True)
    async with binding(managed.url(), {"management": managed.management_url}) as opened:
        rules = [Rule(f"{queue}.*", opened, options={"profile": "ojs"}), Rule(queue, opened)]
        router = Router(rules, Rule("default", opened))
        gateway = Gateway({opened.name: opened}, router, TokenSealer(KEYS))
        infos, _ = await gateway.overview.queues(ANYONE, 1000, None)
        infos = [info for info in infos if queue in info.queue]
        assert [(info.queue, info.source, info.native_name, info.dead_letter_queue) for info in infos] == [
            (queue, "configured", queue, f"{queue}.dlq"),
            (f"{queue}-others", "broker", f"{queue}-others", f"{queue}-others.dlq"),
            (f"{queue}.jobs", "broker", f"ojs.queue.{queue}.jobs", f"ojs.dead.{queue}.jobs"),
        ]
        nobody = Caller("nobody", {"other": frozenset(Right)})
        assert await gateway.overview.queues(nobody, 1000, None) == ([], None)
        # Retention and metrics leave queues alone that this gateway has not used: they may be another program's.
        assert set(await known_queues(gateway.router, gateway.bindings, (), foreign=False)) == {queue}


async def test_without_an_answer_of_the_api_nothing_is_listed(managed: RabbitServer) -> None:
    for options in ({}, {"management": "http://127.0.0.1:1"}):
        async with binding(managed.url(), options) as opened:
            assert await opened.queues() == ()
