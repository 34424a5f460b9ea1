"""The management API: its counts and warnings, and that it is optional."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from babelgate.brokers.rabbitmq.management import ManagementClient
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.url import parameters_of
from babelgate.brokers.rabbitmq.warnings import queue_warnings, warnings_of
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.overview import known_queues
from babelgate.gateway.routing import Router, Rule
from tests.brokers.rabbitmq.harness import binding, client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import linked
from tests.harness.world import KEYS, until

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
            shown = counts and counts.messages_unacknowledged
            if shown == 1:
                break
            await asyncio.sleep(0.05)
        assert shown == 1
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


LOSSY: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], str]] = (
    ({"x-queue-type": "quorum", "x-delivery-limit": 20}, {}, "drops a message after its delivery limit"),
    ({"x-queue-type": "quorum"}, {"delivery-limit": 5}, "(delivery-limit 5)"),
    ({"x-max-length": 10}, {}, "drops its oldest messages beyond its limit (max-length 10, overflow drop-head)"),
    ({}, {"max-length-bytes": 9}, "drops its oldest messages beyond its limit (max-length-bytes 9"),
    ({"x-max-length": 10, "x-overflow": "drop-head"}, {"overflow": "reject-publish"}, "(max-length 10"),
    ({"x-message-ttl": 60_000}, {}, "drops messages that are older than 60 s (message-ttl)"),
    ({"x-message-ttl": 60_000}, {"message-ttl": 30_000}, "older than 30 s"),
    ({"x-message-ttl": 1, "x-dead-letter-exchange": "amq.direct"}, {}, "moves to its dead-letter exchange messages"),
    ({"x-expires": 3_600_000}, {}, "was not used for 3600 s (expires)"),
    ({}, {"expires": 3_600_000}, "was not used for 3600 s (expires)"),
)
"""Arguments of a queue, a policy for it, and what the warning says."""

SOUND: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = (
    ({}, {}),
    (queue_of("sound", QUORUM).profile.topology.queues[1].arguments, {}),
    ({"x-queue-type": "quorum", "x-delivery-limit": -1}, {}),
    ({"x-max-length": 10, "x-overflow": "reject-publish"}, {}),
    ({}, {"max-length": 10, "overflow": "reject-publish"}),
    ({}, {"dead-letter-exchange": "amq.direct"}),
)


@contextmanager
def policy(managed: RabbitServer, queue: str, definition: Mapping[str, Any]) -> Iterator[None]:
    """A policy for ``queue``, if ``definition`` has any setting."""
    address = f"{managed.management_url}/api/policies/%2F/{queue}"
    login = ("guest", "guest")
    if definition:
        body = {"pattern": f"^{re.escape(queue)}$", "definition": dict(definition)}
        httpx.put(address, json=body, auth=login).raise_for_status()
    try:
        yield
    finally:
        if definition:
            httpx.delete(address, auth=login).raise_for_status()


@pytest.mark.parametrize(("arguments", "definition", "text"), LOSSY)
@pytest.mark.parametrize("suffix", ["", ".dlq"])
async def test_a_queue_that_loses_messages_is_warned_of(
    managed: RabbitServer,
    queue: str,
    suffix: str,
    arguments: Mapping[str, Any],
    definition: Mapping[str, Any],
    text: str,
) -> None:
    """By its arguments or a policy, its dead letters, too."""
    name = queue + suffix
    with client(managed.url()) as channel, policy(managed, name, definition):
        channel.queue_declare(name, durable=True, arguments=dict(arguments))
        async with binding(managed.url(), {"management": managed.management_url}) as opened:
            native = opened.native_queue(queue, {"declare": "passive"})

            async def warned() -> bool:
                found = await opened.queue_warnings(native, 60)
                return len(found) == 1 and f" {name} " in found[0] and text in found[0]

            # A policy takes effect a little later.
            await until(warned)


@pytest.mark.parametrize(("arguments", "definition"), SOUND)
async def test_a_queue_that_keeps_its_messages_is_not(
    managed: RabbitServer,
    queue: str,
    api: ManagementClient,
    arguments: Mapping[str, Any],
    definition: Mapping[str, Any],
) -> None:
    with client(managed.url()) as channel, policy(managed, queue, definition):
        channel.queue_declare(queue, durable=True, arguments=dict(arguments))
        if definition:
            # A policy takes effect a little later.
            async def applied() -> bool:
                counts = await api.counts(queue)
                return counts is not None and bool(counts.effective_policy_definition)

            await until(applied)
        assert await queue_warnings(api, [queue, f"{queue}.missing"], (3, 10, 8)) == []


async def test_newer_servers_have_a_delivery_limit_without_a_setting(
    managed: RabbitServer, queue: str, api: ManagementClient
) -> None:
    with client(managed.url()) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    assert await queue_warnings(api, [queue], (3, 13)) == []
    (warning,) = await queue_warnings(api, [queue], (4, 0))
    assert "(delivery-limit 20)" in warning


async def test_a_queue_that_ends_with_its_server_or_consumers_is_warned_of(
    managed: RabbitServer, queue: str, api: ManagementClient
) -> None:
    with client(managed.url()) as channel:
        channel.queue_declare(queue, durable=False, auto_delete=True)
        transient, deleted = await queue_warnings(api, [queue], (3, 10))
    assert "not durable" in transient and "auto_delete" in deleted


async def test_without_the_management_api_queues_have_no_warnings(managed: RabbitServer, queue: str) -> None:
    async with binding(managed.url()) as opened:
        assert await opened.queue_warnings(opened.native_queue(queue, {}), 60) == ()


async def test_a_server_that_is_down_has_no_warnings() -> None:
    async with linked("amqp://127.0.0.1:1") as link:
        assert await warnings_of(link) == []


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
