"""The Redis sections of the official conformance suite, through our own scripts on a real server.

The suite injects its clock; our scripts take one as an argument, and with it tick in whole seconds as the suite has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import redis

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest, Delivery, Outgoing
from babelgate.brokers.redis import settle as settling
from babelgate.brokers.redis.binding import RedisBinding, connect
from babelgate.brokers.redis.layouts.layout import RedisQueue
from babelgate.clock import now_ms
from babelgate.envelope import Limits, Poison
from tests.brokers.redis.harness import RedisServer
from tests.harness import conformance as suite
from tests.harness.conformance import locate

pytestmark = pytest.mark.redis
Case = Mapping[str, Any]
NO_ENDLESS_LEASE = "a lease of the gateway always ends; those that others take without end are never swept"
LIMITS = Limits()


@pytest.fixture
async def binding(server: RedisServer, queue: str) -> AsyncIterator[RedisBinding]:
    """Never opened, so that no DueItems runs beside the steps of a case."""
    made = connect("cache", server.url(), {}, now_ms)
    made.server.index = f"{queue}:index".encode()
    yield made
    await made.close()


def layout_cases() -> list[Any]:
    """All cases of ``redis_layout`` under the names that the suite's results give them."""
    if locate() is None:
        return [pytest.param("missing", {}, id="missing")]
    section = suite.section("redis_layout")
    found = [(case["name"], case) for case in section["cases"]]
    for block, content in section.items():
        if isinstance(content, dict):
            found += [(f"{block}/{case['name']}", case) for case in content["cases"]]
    return [pytest.param(name, case, id=name) for name, case in found]


def test_the_sections_are_complete(server: RedisServer) -> None:
    assert len(layout_cases()) == 59 and len(suite.cases("redis_delay")) == 8


async def test_the_element_is_the_envelope(binding: RedisBinding, plain: redis.Redis, queue: str) -> None:
    with suite.judged("redis", "payload_identity"):
        body = (suite.folder() / suite.section("redis")["payload_identity"]["envelope_file"]).read_bytes()
        native = binding.native_queue(queue, {})
        await binding.publish(native, [Outgoing(body)])
        assert plain.lrange(queue, 0, -1) == [body]
        reserved = await native.options.layout.reserve(binding.server, native.options, 1, 30)
        assert [each.body for each in reserved.deliveries] == [body]


@suite.each_case("redis_delay")
async def test_delay(case: Case, binding: RedisBinding, plain: redis.Redis, queue: str) -> None:
    with suite.judged("redis_delay", case["name"]):
        native = binding.native_queue(queue, {"layout": "laravel"})
        binding.server.now = repr(case["now"]).encode()
        await binding.publish(native, [Outgoing(b"{}", delay_seconds=case["delay"])])
        assert plain.zscore(f"queues:{queue}:delayed", "{}") == case["expect_score"]


@pytest.mark.parametrize(("name", "case"), layout_cases())
async def test_layout(name: str, case: Case, binding: RedisBinding, plain: redis.Redis, queue: str) -> None:
    if "retry_after" in case and case["retry_after"] is None:
        suite.record("redis_layout", name, "not applicable", NO_ENDLESS_LEASE)
        return
    with suite.judged("redis_layout", name):
        if "layout" in case:
            await Scenario(case, binding, plain, queue).run()
        else:
            await key_names(case, binding, plain)


async def key_names(case: Case, binding: RedisBinding, plain: redis.Redis) -> None:
    """The four keys, by what the verbs leave there."""
    options = {"layout": "laravel", "prefix": case["key_prefix"]}
    native, names = binding.native_queue(case["queue"], options), case["expect"]
    await binding.publish(native, [Outgoing(b"{}"), Outgoing(b"[]", delay_seconds=60), Outgoing(b"()")])
    await native.options.layout.reserve(binding.server, native.options, 1, 30)
    kinds = {"ready": b"list", "delayed": b"zset", "reserved": b"zset", "notify": b"list"}
    assert {key: plain.type(names[key]) for key in kinds} == kinds


class Scenario:
    """One behavioural case: a state, steps with a clock, and what the keys must hold after each."""

    def __init__(self, case: Case, binding: RedisBinding, plain: redis.Redis, queue: str) -> None:
        self.case = case
        self.binding = binding
        self.plain = plain
        laravel = case["layout"] == "zset"
        self.native = binding.native_queue(queue, {"layout": "laravel" if laravel else "list"})
        made = self.native.options
        assert isinstance(made, RedisQueue)
        self.queue = made
        key = made.key.decode()
        self.keys = {"ready": key, "dlq": f"{key}.dlq", "notify": f"{key}:notify", "delayed": f"{key}:delayed"}
        self.keys |= {"reserved": f"{key}:reserved", "processing": f"{key}:processing"}
        self.keys["deadlines"] = f"{key}:processing:deadlines"
        self.held: dict[str, Delivery] = {}
        self.last: Delivery | None = None

    async def run(self) -> None:
        self.seed()
        for step in self.case["steps"]:
            self.binding.server.now = repr(step["now"]).encode()
            await self.perform(step)
            self.check(step.get("expect", {}))

    def seed(self) -> None:
        state = self.case["state"]
        for name in ("ready", "processing"):
            for element in state.get(name, []):
                self.plain.rpush(self.keys[name], element)
        for name in ("delayed", "reserved", "deadlines"):
            for entry in state.get(name, []):
                self.plain.zadd(self.keys[name], {member_of(entry): float(entry["score"])})
        if many := state.get("delayed_generate"):
            members = {many["member"] % number: float(many["score"]) for number in range(many["count"])}
            self.plain.zadd(self.keys["delayed"], members)
        for _ in range(state.get("notify", 0)):
            self.plain.rpush(self.keys["notify"], 1)

    async def perform(self, step: Case) -> None:
        server = self.binding.server
        match step["op"]:
            case "push_delayed":
                message = Outgoing(step["body"].encode(), delay_seconds=step["delay"])
                await self.binding.publish(self.native, [message])
            case "reserve":
                lease = self.case["retry_after"]
                taken = (await self.queue.layout.reserve(server, self.queue, 1, lease)).deliveries
                self.last = taken[0] if taken else None
                if self.last is not None:
                    self.held[step.get("as", "")] = self.last
            case "migrate" | "sweep":
                self.plain.zadd(server.index.decode(), {self.queue.entry: 0})
                await server.make_due_ready(b"20", self.case.get("migration_batch_size", 1_000_000))
            case "release":
                await settling.retry(server, self.queue, [self.handle(step)], step["delay"])
            case "ack":
                await settling.ack(server, self.queue, [self.handle(step)])
            case "dead_letter":
                block = envelope.dead_letter_block("failed", "orders", 3, 0)
                await settling.dead_letter(server, self.queue, [DeadLetterRequest(self.handle(step), block)])
            case other:
                raise AssertionError(f"an op that is not known: {other}")

    def handle(self, step: Case) -> str:
        """Of a delivery held since an earlier step, or of a reservation that the case spells out."""
        named = step["reservation"]
        if isinstance(named, str):
            return self.held[named].handle
        score = self.plain.zscore(self.keys["deadlines"], f"{named['token']}:{named['raw']}") or 0
        return f"{named['token']}:{round(score * 1_000_000)}"

    def check(self, expected: Case) -> None:
        for key, value in expected.items():
            match key:
                case "outcome":
                    assert self.outcome() == value
                case "handler_body":
                    assert self.last is not None and self.last.body == value.encode()
                case "reported_attempts":
                    assert [json.loads(member)["attempts"] for member, _ in self.scored("reserved")] == [value]
                case "ready" | "processing":
                    assert self.plain.lrange(self.keys[key], 0, -1) == [element.encode() for element in value]
                case "ready_generate":
                    members = [(value["member"] % number).encode() for number in range(value["count"])]
                    assert self.plain.lrange(self.keys["ready"], 0, -1) == members
                case "ready_count" | "dlq_count" | "notify":
                    assert self.plain.llen(self.keys[key.removesuffix("_count")]) == value
                case "delayed" | "reserved" | "deadlines":
                    check_scored(self.scored(key), value)
                case "tokens_distinct":
                    tokens = [member[:32] for member, _ in self.scored("deadlines")]
                    assert len(set(tokens)) == len(tokens)
                case other:
                    raise AssertionError(f"an expectation that is not known: {other}")

    def scored(self, name: str) -> list[tuple[bytes, float]]:
        found: Any = self.plain.zrange(self.keys[name], 0, -1, withscores=True)
        return [(member, score) for member, score in found]

    def outcome(self) -> str:
        if self.last is None:
            return "empty"
        if self.last.handle.endswith(":0"):
            return "poison"
        try:
            envelope.inspect(self.last.body, LIMITS)
        except Poison:
            # The suite's legacy bodies have an identity and nothing else: enough for an SDK, not for the gateway.
            return "poison" if self.case["layout"] == "zset" else "delivered"
        return "delivered"


def member_of(entry: Case) -> str:
    member: str = entry["member"] if "member" in entry else f"{entry['token']}:{entry['raw']}"
    return member


def matches(member: bytes, score: float, entry: Case) -> bool:
    if score != float(entry["score"]):
        return False
    if entry.get("token") == "<any>":
        return re.fullmatch(b"[0-9a-f]{32}:" + re.escape(entry["raw"].encode()), member) is not None
    for key in ("member_json", "body_json"):
        if key in entry:
            return suite.same(json.loads(member), entry[key])
    return member == member_of(entry).encode()


def check_scored(found: list[tuple[bytes, float]], expected: list[Case]) -> None:
    """Every entry has its member, and nothing else is there."""
    left = list(found)
    for entry in expected:
        left.remove(next(each for each in left if matches(*each, entry)))
    assert not left
