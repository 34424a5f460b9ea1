"""Delays beyond those of Amazon SQS, by parking on SQLite and on Redis."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers import registry as bindings
from babelgate.brokers.binding import Binding
from babelgate.brokers.sqlite.binding import connect as sqlite
from babelgate.clock import Clock, now_ms
from babelgate.errors import UnsupportedByBroker
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import EVERY_LETTER, LetterEdit, Message, Nack, Reject, Settlement
from babelgate.gateway.routing import Router, Rule
from babelgate.leases.shared import SharedLeaseManager
from babelgate.leases.table import BrokerUsage
from tests.brokers.redis.harness import RedisBroker
from tests.brokers.registry import Servers
from tests.brokers.sqs.harness import STANDARD, SqsBroker
from tests.harness.broker import Server
from tests.harness.world import KEYS, draft, until

NOW = 1_700_000_000_000


class Site:
    """A gateway whose queue is on SQS. The test sets the clock of its SQLite file."""

    def __init__(self, gateway: Gateway, queue: str) -> None:
        self.gateway = gateway
        self.queue = queue

    async def publish(self, body: bytes, **how: Any) -> None:
        await self.gateway.publish(ANYONE, self.queue, body, **how)

    async def one(self) -> Message:
        (message,) = await self.gateway.receive(ANYONE, self.queue, wait_seconds=120)
        return message

    async def settle(self, settlement: Settlement) -> None:
        assert [each.error for each in await self.gateway.settle(ANYONE, self.queue, settlement)] == [None]

    async def delayed(self) -> int | None:
        return (await self.gateway.overview.queue(ANYONE, self.queue)).stats.delayed


@asynccontextmanager
async def site(elastic: Server, queue: str, parking: Binding) -> AsyncIterator[Site]:
    aws = SqsBroker(elastic, STANDARD).connect({"timeout_seconds": 30})
    router = Router([], Rule("*", aws, options=STANDARD, parking=parking))
    gateway = Gateway({each.name: each for each in (aws, parking)}, router, TokenSealer(KEYS))
    await gateway.start()
    try:
        yield Site(gateway, queue)
    finally:
        await gateway.close()


class Hands:
    """The hands of a clock."""

    def __init__(self) -> None:
        self.now = NOW

    def clock(self) -> int:
        return self.now


def local(directory: Path, clock: Clock = now_ms) -> Binding:
    return sqlite("local", f"sqlite:///{directory}/parking.db", {}, clock)


async def test_a_publish_and_a_nack_beyond_the_longest_delays(elastic: Server, tmp_path: Path, queue: str) -> None:
    hands = Hands()
    body = '{"envelope": {"job": "urn:babel:a", "data": {"n": 1.10}}, "headers": {"tenant": "é"}}'.encode()
    async with site(elastic, queue, local(tmp_path, hands.clock)) as one:
        await one.publish(body, delay_seconds=100_000)
        assert await one.delayed() == 1
        hands.now += 100_000_000
        message = await one.one()
        assert json.loads(message.body)["data"] == {"n": 1.1}
        assert b'"n":1.10' in message.body
        assert (message.attempts, message.headers["tenant"]) == (0, "é")
        await one.settle(Settlement(nacks=[Nack([message.ack_token], 50_000, "busy")]))
        assert await one.delayed() == 1
        hands.now += 50_000_000
        again = await one.one()
        assert (again.attempts, again.headers["tenant"]) == (1, "é")
        assert json.loads(again.body)["meta"] == json.loads(message.body)["meta"]
        await one.settle(Settlement(acks=[again.ack_token]))


async def test_a_purge_removes_parked_messages(elastic: Server, tmp_path: Path, queue: str) -> None:
    async with site(elastic, queue, local(tmp_path)) as one:
        await one.publish(draft({}), delay_seconds=100_000)
        assert await one.gateway.purge(ANYONE, queue, dry_run=True) == 1
        assert await one.gateway.purge(ANYONE, queue) == 1
        assert await one.delayed() == 0


async def test_an_edited_letter_with_a_long_delay_is_parked(elastic: Server, tmp_path: Path, queue: str) -> None:
    hands = Hands()
    async with site(elastic, queue, local(tmp_path, hands.clock)) as one:
        await one.publish(draft({"n": 1}))
        await one.settle(Settlement(rejects=[Reject([(await one.one()).ack_token])]))
        (letter,), _ = await one.gateway.letters.page(ANYONE, queue, EVERY_LETTER, 10, None)
        edit = LetterEdit(body=json.dumps({"job": "urn:babel:a", "data": {"n": 2}, "delay_seconds": 100_000}).encode())
        await one.gateway.letters.redrive_one(ANYONE, queue, letter.letter_id, None, edit, False, None)
        assert await one.delayed() == 1
        hands.now += 100_000_000
        assert json.loads((await one.one()).body)["data"] == {"n": 2}


def test_a_nack_is_parked_by_the_replica_that_has_the_body(tmp_path: Path, queue: str) -> None:
    aws = bindings.connect("aws", "sqs://us-east-1", {}, now_ms)
    route = Rule("*", aws, parking=local(tmp_path)).route(queue)
    leases = SharedLeaseManager(route, BrokerUsage(), now_ms)
    longest = aws.capabilities(route.native).max_retry_delay_seconds
    assert longest is not None
    assert not leases.needs_receiver("release", "handle", 0, longest)
    assert leases.needs_receiver("release", "handle", 0, longest + 1)


async def test_what_sqs_cannot_carry_is_refused_before_it_is_parked(
    elastic: Server, tmp_path: Path, queue: str
) -> None:
    async with site(elastic, queue, local(tmp_path)) as one:
        with pytest.raises(UnsupportedByBroker) as refusal:
            await one.publish(draft({"x": "\ufffe"}), delay_seconds=100_000)
        assert (refusal.value.problem_code, refusal.value.pointer) == ("character_unsupported", "/data/x")
        assert await one.delayed() == 0


async def test_a_first_in_first_out_queue_with_redis(
    elastic: Server, servers: Servers, tmp_path: Path, queue: str
) -> None:
    """It delays nothing itself, so that each delay is parked."""
    redis = bindings.connect("cache", RedisBroker(servers.server(RedisBroker), {}).url, {}, now_ms)
    async with site(elastic, f"{queue}.fifo", redis) as one:
        entry = {"envelope": json.loads(draft({"n": 1})), "ordering_key": "a", "headers": {"tenant": "b"}}
        published = now_ms()
        await one.publish(json.dumps(entry).encode(), delay_seconds=1.5)
        message = await one.one()
        assert now_ms() - published >= 1_500
        assert message.headers["tenant"] == "b"
        await one.settle(Settlement(acks=[message.ack_token]))

        async def nothing_is_left() -> bool:
            return await one.delayed() == 0

        await until(nothing_is_left)
