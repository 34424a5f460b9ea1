"""What a pusher does beside posting: leases, pauses, stops, and brokers that are away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from standardwebhooks import Webhook

from babelgate.brokers import registry
from babelgate.brokers.binding import Binding, Outgoing
from babelgate.clock import now_ms
from babelgate.cloudevents import structured_entry
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.model import Message, Settlement, SettleResult
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.push import pusher as pusher_module
from babelgate.push.pusher import Pusher
from babelgate.push.pushes import Pushes
from babelgate.runtime.backoff import Backoff
from tests.harness.local import eventually, free_port
from tests.harness.traced import Spans, header, parent, told
from tests.harness.webhooks import SECRET, Post, Receiver, Script, answer, pushing, receiver
from tests.harness.world import KEYS, LIMIT_SECONDS, draft, until

QUEUE = "orders"
PATIENT = Policy(max_attempts=3)


class Unsettled(Gateway):
    """Its broker confirms the first settles of each action only after so many calls."""

    refuse = 0

    async def settle(self, *given: Any, **more: Any) -> list[SettleResult]:
        settlement: Settlement = given[2]
        if not settlement.extends and self.refuse > 0:
            self.refuse -= 1
            raise OutcomeUnknown("local", "no answer")
        return await super().settle(*given, **more)


@contextlib.asynccontextmanager
async def gateway(
    directory: Path, policy: Policy = PATIENT, made_by: type[Unsettled] = Unsettled, **more: Any
) -> AsyncIterator[Unsettled]:
    binding: Binding = registry.connect("local", f"sqlite:///{directory}/queues.db", {"timeout_seconds": 30}, now_ms)
    router = Router([], Rule("*", binding, policy))
    made = made_by({"local": binding}, router, TokenSealer(KEYS), **more)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def publish(made: Gateway, count: int = 1) -> None:
    results = await made.publish_many(ANYONE, QUEUE, [draft({"n": n}) for n in range(count)])
    assert not any(isinstance(result, BabelgateError) for result in results)


async def depth(made: Gateway) -> tuple[int | None, int | None, int | None]:
    """Ready, leased and dead."""
    stats = (await made.overview.queue(ANYONE, QUEUE)).stats
    return stats.depth, stats.in_flight, stats.dead


async def has(made: Gateway, expected: tuple[int, int, int]) -> None:
    """Wait for so many messages. What a broker was just asked for goes back a moment after the caller has left."""

    async def as_expected() -> bool:
        return await depth(made) == expected

    await until(as_expected)


def of(pushes: Pushes) -> Pusher:
    return pushes.running[QUEUE]


def outcomes(pushes: Pushes) -> dict[str, int]:
    return dict(of(pushes).state.outcomes)


def always(said: bytes) -> Script:
    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return said

    return script


async def test_a_lease_is_extended_while_the_receiver_works(tmp_path: Path) -> None:
    """The receiver takes three times the lease. The message is not delivered again meanwhile."""

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.sleep(4.5)
        return answer()

    async with gateway(tmp_path, Policy(lease_seconds=1.5)) as made, receiver(script) as server:
        await publish(made)
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: counted(pushes, 1))
            assert outcomes(pushes) == {"acked": 1}
        assert len(server.posts) == 1
        await has(made, (0, 0, 0))


async def counted(pushes: Pushes, count: int) -> bool:
    return of(pushes).state.outcomes.total() >= count


class Late(Unsettled):
    """The answers to its extends come late."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.settles: list[str] = []

    async def settle(self, *given: Any, **more: Any) -> list[SettleResult]:
        if given[2].extends:
            self.begun.set()
            await self.goes_on.wait()
        self.settles.append("extend" if given[2].extends else "nack")
        return await super().settle(*given, **more)

    async def give_back(self, *given: Any, **more: Any) -> None:
        self.settles.append("give back")
        await super().give_back(*given, **more)


@pytest.mark.parametrize("ends_by", ["nack", "give back"])
async def test_a_message_goes_back_after_an_extend_that_is_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_by: str
) -> None:
    """The broker would lease it again if the extend came later."""
    monkeypatch.setattr(pusher_module, "STOP_SECONDS", 0.2)
    answers = asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        await answers.wait()
        return answer(500)

    async with gateway(tmp_path, Policy(lease_seconds=3), Late) as made, receiver(script) as server:
        assert isinstance(made, Late)
        await publish(made)
        async with pushing(made, QUEUE, server.url) as pushes:
            async with asyncio.timeout(LIMIT_SECONDS):
                await made.begun.wait()
            found = of(pushes)
            if ends_by == "nack":
                answers.set()
            else:
                for task in found._unanswered:
                    task.cancel()
            await until(lambda: let_go(found))
            assert made.settles == []
            made.goes_on.set()
            await until(lambda: settled(made, 2))
            assert made.settles[:2] == ["extend", ends_by]


async def let_go(found: Pusher) -> bool:
    return not found.in_flight


async def settled(made: Late, count: int) -> bool:
    return len(made.settles) >= count


async def test_a_receiver_that_hangs_is_given_up_and_counts(tmp_path: Path) -> None:
    # A task that waits for what nobody else refers to may be collected.
    never = asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        await never.wait()
        return b""

    async with gateway(tmp_path) as made, receiver(script) as server:
        await publish(made)
        async with pushing(made, QUEUE, server.url, timeout_seconds=0.3) as pushes:
            await until(lambda: counted(pushes, 3))
            assert outcomes(pushes) == {"nacked": 3}
            assert of(pushes).state.failures[0].code == "no_answer"
        assert [post.headers["attempts"] for post in server.posts] == ["0", "1", "2"]
        await has(made, (0, 0, 1))


async def test_a_target_that_is_away_takes_no_attempt(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made:
        await publish(made, 3)
        async with pushing(made, QUEUE, f"http://127.0.0.1:{free_port()}/") as pushes:
            await until(lambda: counted(pushes, 3))
            found = of(pushes)
            assert set(outcomes(pushes)) == {"unreachable"}
            assert found.circuit.state != "closed"
            assert found.state.failures[0].status is None
        await has(made, (3, 0, 0))
        (message,) = await made.receive(ANYONE, QUEUE)
        assert message.attempts == 0


async def test_failures_open_the_circuit_and_a_probe_closes_it(tmp_path: Path) -> None:
    is_broken = True

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(500 if is_broken else 200)

    async with gateway(tmp_path, Policy(max_attempts=1_000)) as made, receiver(script) as server:
        await publish(made, 20)
        async with pushing(made, QUEUE, server.url, concurrency=1) as pushes:
            await server.arrived(7)
            # Five failures open it, and then each pause is followed by one probe.
            assert of(pushes).circuit.state != "closed"
            is_broken = False
            await until(lambda: acked(pushes, 20))
            assert of(pushes).circuit.state == "closed"
        await has(made, (0, 0, 0))


async def acked(pushes: Pushes, count: int) -> bool:
    return outcomes(pushes).get("acked", 0) >= count


async def test_a_receiver_that_asks_for_a_pause_gets_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver(always(answer(429, Retry_After="3600"))) as server:
        await publish(made, 5)
        async with pushing(made, QUEUE, server.url, concurrency=1) as pushes:
            await until(lambda: counted(pushes, 1))
            assert of(pushes).circuit.wait_seconds > 3_000
        assert len(server.posts) == 1
        await has(made, (5, 0, 0))


async def test_a_2xx_that_was_read_is_acked_when_the_broker_answers_again(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver() as server:
        made.refuse = 3
        await publish(made)
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: counted(pushes, 1))
        assert made.refuse == 0
        assert len(server.posts) == 1
        await has(made, (0, 0, 0))


async def test_a_stop_waits_for_answers_and_returns_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher_module, "STOP_SECONDS", 1.0)
    stopping, never = asyncio.Event(), asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        await stopping.wait()
        if post.data["n"] % 2:
            await never.wait()
        return answer()

    async with gateway(tmp_path) as made, receiver(script) as server:
        await publish(made, 6)
        async with pushing(made, QUEUE, server.url):
            await server.arrived(6)
            stopping.set()
        await has(made, (3, 0, 0))
        left = await made.receive(ANYONE, QUEUE, max_messages=10)
        assert [message.attempts for message in left] == [0, 0, 0]


async def test_no_more_posts_at_a_time_than_allowed(tmp_path: Path) -> None:
    at_once: list[int] = []
    now = 0

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        nonlocal now
        now += 1
        at_once.append(now)
        await asyncio.sleep(0.02)
        now -= 1
        return answer()

    async with gateway(tmp_path) as made, receiver(script) as server:
        await publish(made, 30)
        async with pushing(made, QUEUE, server.url, concurrency=3) as pushes:
            await until(lambda: acked(pushes, 30))
        assert max(at_once) == 3
        assert server.connections <= 3


async def test_one_at_a_time_keeps_the_order(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver() as server:
        await publish(made, 30)
        async with pushing(made, QUEUE, server.url, concurrency=1) as pushes:
            await until(lambda: acked(pushes, 30))
        assert [post.data["n"] for post in server.posts] == list(range(30))


async def test_a_rate_bounds_the_posts(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver() as server:
        await publish(made, 30)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with pushing(made, QUEUE, server.url, per_second=10) as pushes:
            await until(lambda: acked(pushes, 30))
        # Ten at once, and then ten a second.
        assert loop.time() - began >= 1.9


async def test_the_data_alone_is_posted_as_it_was_sent(tmp_path: Path) -> None:
    raw = b'{"b":1.10,"a":12345678901234567890,"c":"\xc3\xa9"}'
    async with gateway(tmp_path) as made, receiver() as server:
        await made.publish(ANYONE, QUEUE, b'{"job":"urn:babel:shop:paid","data":' + raw + b"}")
        async with pushing(made, QUEUE, server.url, body="data", headers=(("authorization", "Bearer x"),)):
            (post,) = await server.arrived(1)
    assert post.body == raw
    assert post.headers["content-type"] == "application/json"
    assert post.headers["job"] == "urn:babel:shop:paid"
    assert post.headers["authorization"] == "Bearer x"


async def test_an_event_is_posted_as_an_event_without_a_token(tmp_path: Path) -> None:
    event = {"specversion": "1.0", "id": "A-1", "source": "/shop", "type": "com.example.paid", "data": [1]}
    async with gateway(tmp_path) as made, receiver() as server:
        await made.publish(ANYONE, QUEUE, structured_entry(json.dumps(event).encode(), QUEUE, made.clock))
        async with pushing(made, QUEUE, server.url, body="cloudevents"):
            (post,) = await server.arrived(1)
    assert post.headers["content-type"] == "application/cloudevents+json"
    posted = json.loads(post.body)
    assert posted.items() >= event.items()
    assert posted.keys() - event.keys() == {"traceparent", "bqtraceid", "bqattempts", "bqredelivered"}


async def test_an_event_is_posted_in_the_binary_mode(tmp_path: Path) -> None:
    event = {"specversion": "1.0", "id": "A-1", "source": "/shop", "type": "com.example.paid", "subject": "5% \u20ac"}
    event |= {"datacontenttype": "text/plain", "data": "gr\u00fc\u00dfe"}
    async with gateway(tmp_path) as made, receiver() as server:
        await made.publish(ANYONE, QUEUE, structured_entry(json.dumps(event).encode(), QUEUE, made.clock))
        async with pushing(made, QUEUE, server.url, body="cloudevents_binary"):
            (post,) = await server.arrived(1)
    assert (post.headers["content-type"], post.body) == ("text/plain", "gr\u00fc\u00dfe".encode())
    assert {name: value for name, value in post.headers.items() if name.startswith("ce-")}.items() >= {
        "ce-specversion": "1.0",
        "ce-id": "A-1",
        "ce-source": "/shop",
        "ce-type": "com.example.paid",
        "ce-subject": "5%25%20%E2%82%AC",
        "ce-bqattempts": "0",
        "ce-bqredelivered": "false",
    }.items()
    assert "ce-bqacktoken" not in post.headers
    with pytest.raises(json.JSONDecodeError):
        # The signature is right, and the body is no JSON.
        Webhook(SECRET).verify(post.body, dict(post.headers))


async def test_messages_that_are_there_are_posted_together(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver() as server:
        await publish(made, 25)
        async with pushing(made, QUEUE, server.url, concurrency=1, max_messages=10) as pushes:
            await until(lambda: acked(pushes, 25))
        await has(made, (0, 0, 0))
    lists = [Webhook(SECRET).verify(post.body, dict(post.headers)) for post in server.posts]
    assert [len(each) for each in lists] == [10, 10, 5]
    assert [envelope["data"]["n"] for each in lists for envelope in each] == list(range(25))
    assert len({post.id for post in server.posts}) == 3


async def test_what_has_failed_together_is_posted_alone(tmp_path: Path) -> None:
    """One message that the receiver cannot take fails the others once, and not again."""

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(422 if any(each["data"]["n"] == 3 for each in json.loads(post.body)) else 204)

    async with gateway(tmp_path) as made, receiver(script) as server:
        await publish(made, 6)
        async with pushing(made, QUEUE, server.url, concurrency=2, max_messages=10) as pushes:
            await until(lambda: counted(pushes, 6 + 5 + 2))
            assert outcomes(pushes) == {"acked": 5, "nacked": 8}
        await has(made, (0, 0, 1))
    again = [json.loads(post.body) for post in server.posts[1:]]
    assert {len(each) for each in again} == {1}
    of_three = [post.id for post in server.posts[1:] if json.loads(post.body)[0]["data"]["n"] == 3]
    assert len(of_three) == 2
    assert len(set(of_three)) == 1


async def test_a_message_without_an_id_is_known_by_its_content(tmp_path: Path) -> None:
    """Two messages of one trace are two messages, and a second attempt is the same one."""
    body = b'{"job":"urn:babel:a","trace_id":"t","data":{"n":%d},"meta":{"schema_version":1},"attempts":0}'
    said = [answer(500), answer(204), answer(204)]

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return said[len(server.posts) - 1]

    async with gateway(tmp_path) as made, receiver(script) as server:
        binding = made.bindings["local"]
        route = made.router.route(QUEUE)
        for n in range(2):
            assert await binding.publish(route.native, [Outgoing(body % n)]) == [None]
        async with pushing(made, QUEUE, server.url, concurrency=1) as pushes:
            await until(lambda: acked(pushes, 2))
    ids = {json.loads(post.body)["data"]["n"]: set[str]() for post in server.posts}
    for post in server.posts:
        ids[json.loads(post.body)["data"]["n"]].add(post.id)
    assert [len(found) for found in ids.values()] == [1, 1]
    assert ids[0] != ids[1]


async def test_a_job_that_is_no_value_of_a_header_is_in_the_body_only(tmp_path: Path) -> None:
    body = b'{"job":" urn:babel:a ","trace_id":"t","data":{},"meta":{"schema_version":1},"attempts":0}'
    async with gateway(tmp_path) as made, receiver() as server:
        route = made.router.route(QUEUE)
        assert await made.bindings["local"].publish(route.native, [Outgoing(body)]) == [None]
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: acked(pushes, 1))
    (post,) = server.posts
    assert "job" not in post.headers
    assert json.loads(post.body)["job"] == " urn:babel:a "


async def test_a_rate_counts_posts_and_not_their_messages(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver() as server:
        await publish(made, 8)
        async with pushing(made, QUEUE, server.url, per_second=1, max_messages=10) as pushes:
            await until(lambda: acked(pushes, 8))
    assert len(server.posts) == 1


async def test_a_push_continues_the_trace_of_its_message(tmp_path: Path) -> None:
    spans = Spans()
    async with gateway(tmp_path, tracing=spans.tracing) as made, receiver(always(answer(410))) as server:
        await publish(made)
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: counted(pushes, 1))
        (post,) = server.posts
    span = spans.named(f"push {QUEUE}")
    assert post.headers["traceparent"] == header(span)
    assert parent(spans.named(f"reject {QUEUE}")) == header(span)
    assert told(span)["http.response.status_code"] == 410
    assert told(span)["error.type"] == "status"


async def test_a_drain_ends_the_receives(tmp_path: Path) -> None:
    async with gateway(tmp_path) as made, receiver() as server:
        async with pushing(made, QUEUE, server.url) as pushes:
            await publish(made)
            await until(lambda: acked(pushes, 1))
            await made.drain()
            await publish(made)
            running = of(pushes)._running
            assert running is not None
            await asyncio.wait_for(asyncio.shield(running), 60)
        assert len(server.posts) == 1
        await has(made, (1, 0, 0))


async def test_a_push_that_waits_for_a_lease_to_end_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never(Backoff):
        def failed(self) -> float:
            raise AssertionError("nothing has failed")

    monkeypatch.setattr(pusher_module, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(pusher_module, "Backoff", Never)
    policy = Policy(lease_seconds=600, limits=QueueTerms(max_leases=1))
    async with gateway(tmp_path, policy) as made, receiver() as server:
        limits = made.rate_limits = RateLimits(made.router)
        made.counted.configure(limits)
        await publish(made, 2)
        (first,) = await made.receive(ANYONE, QUEUE)
        async with pushing(made, QUEUE, server.url) as pushes:
            await eventually(lambda: limits.refused["queue-leases"] > 1)
            await made.settle(ANYONE, QUEUE, Settlement([first.ack_token]))
            await until(lambda: acked(pushes, 1))


class Keyed(Unsettled):
    """Its broker keeps the order by the key in the payload, and sets failed messages back to their places."""

    async def receive(self, *given: Any, **more: Any) -> list[Message]:
        messages = await super().receive(*given, **more)
        return [replace(each, ordering_key=json.loads(each.body)["data"].get("key")) for each in messages]


async def publish_keyed(made: Gateway, *keys: str | None) -> None:
    """A message for each key, whose numbers are their order in the key."""
    numbers: Counter[str | None] = Counter()
    for key in keys:
        await made.publish(ANYONE, QUEUE, draft({"key": key, "n": numbers[key]}))
        numbers[key] += 1


def posted(server: Receiver, key: str | None) -> list[tuple[int, str]]:
    """The numbers of the key, with their attempts, as they were posted."""
    return [(post.data["n"], post.headers["attempts"]) for post in server.posts if post.data["key"] == key]


async def test_the_messages_of_a_key_are_posted_one_after_the_other(tmp_path: Path) -> None:
    running: Counter[str | None] = Counter()
    all_keys = asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        key = post.data["key"]
        running[key] += 1
        at_once.append((key, running[key]))
        if len(running) == 3 and running[None] == 2:
            all_keys.set()
        await all_keys.wait()
        await asyncio.sleep(0.02)
        running[key] -= 1
        return answer()

    at_once: list[tuple[str | None, int]] = []
    async with gateway(tmp_path, made_by=Keyed) as made, receiver(script) as server:
        await publish_keyed(made, "a", "a", "b", "b", "a", None, None)
        async with pushing(made, QUEUE, server.url, timeout_seconds=300) as pushes:
            await until(lambda: acked(pushes, 7))
    assert [posted(server, key) for key in ("a", "b")] == [[(n, "0") for n in range(3)], [(n, "0") for n in range(2)]]
    assert max(count for key, count in at_once if key is not None) == 1
    assert (None, 2) in at_once, "messages without a key wait for none"


async def test_what_is_behind_a_failed_message_of_its_key_comes_after_it(tmp_path: Path) -> None:
    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        is_first = post.data["key"] == "a" and post.headers["attempts"] in ("0", "1") and post.data["n"] == 1
        return answer(500 if is_first else 204)

    async with gateway(tmp_path, made_by=Keyed) as made, receiver(script) as server:
        await publish_keyed(made, *"aababaab")
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: counted(pushes, 10))
        await has(made, (0, 0, 0))
    assert posted(server, "a") == [(0, "0"), (1, "0"), (1, "1"), (1, "2"), (2, "0"), (3, "0"), (4, "0")]
    assert posted(server, "b") == [(n, "0") for n in range(3)]


async def test_those_behind_a_dead_letter_and_a_later_attempt_go_on(tmp_path: Path) -> None:
    """The order of a key is not kept over a back-off: the broker delivers those behind the message meanwhile."""

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(500 if post.data["n"] == 0 else 204)

    late = Policy(max_attempts=2, backoff_seconds=(0.1,))
    async with gateway(tmp_path, late, made_by=Keyed) as made, receiver(script) as server:
        await publish_keyed(made, "a", "a")
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: counted(pushes, 3))
        await has(made, (0, 0, 1))
    assert sorted(posted(server, "a")) == [(0, "0"), (0, "1"), (1, "0")]


async def test_a_list_has_no_message_of_a_key_before_an_earlier_one(tmp_path: Path) -> None:
    """A list that fails is posted again message by message, in the order of each key."""

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(500 if len(server.posts) == 1 else 204)

    async with gateway(tmp_path, made_by=Keyed) as made, receiver(script) as server:
        await publish_keyed(made, *"abaabb")
        async with pushing(made, QUEUE, server.url, concurrency=3, max_messages=4) as pushes:
            await until(lambda: acked(pushes, 6))
    lists = [[(each["data"]["key"], each["data"]["n"]) for each in json.loads(post.body)] for post in server.posts]
    assert lists[0] == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    for key in "ab":
        assert [n for several in lists[1:] for name, n in several if name == key] == [0, 1, 2]


class Unextended(Keyed):
    """Its broker is away for extends."""

    async def settle(self, *given: Any, **more: Any) -> list[SettleResult]:
        if given[2].extends:
            raise BrokerUnavailable("local", "it is away")
        return await super().settle(*given, **more)


async def test_what_has_lost_its_lease_while_it_waited_for_its_key_is_not_posted(tmp_path: Path) -> None:
    begun, handled = asyncio.Event(), asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        begun.set()
        await handled.wait()
        return answer()

    async with gateway(tmp_path, Policy(lease_seconds=1), made_by=Unextended) as made, receiver(script) as server:
        await publish_keyed(made, "a", "a")
        async with pushing(made, QUEUE, server.url, concurrency=2, timeout_seconds=300) as pushes:
            await begun.wait()
            for _ in range(2):
                (message,) = await made.receive(ANYONE, QUEUE, max_messages=1, wait_seconds=20, lease_seconds=300)
                await made.settle(ANYONE, QUEUE, Settlement(acks=[message.ack_token]))
            # The pusher counts a lease from when it has the message, which may be later than the broker does.
            leases, loop = of(pushes)._leases, asyncio.get_running_loop()
            await eventually(lambda: all(loop.time() - since >= leases.seconds for since in leases._since.values()))
            handled.set()
            await eventually(lambda: not of(pushes)._posting)
            assert of(pushes).in_flight == 0
    assert posted(server, "a") == [(0, "0")]


async def test_what_waits_for_its_key_goes_back_when_the_gateway_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pusher_module, "STOP_SECONDS", 0.1)
    never = asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        await never.wait()
        return b""

    async with gateway(tmp_path, made_by=Keyed) as made, receiver(script) as server:
        await publish_keyed(made, *"aaa")
        async with pushing(made, QUEUE, server.url):
            await server.arrived(1)
            await has(made, (0, 3, 0))
        await has(made, (3, 0, 0))
        left = await made.receive(ANYONE, QUEUE, max_messages=10)
    assert [message.attempts for message in left] == [0, 0, 0]
    assert len(server.posts) == 1


async def test_those_behind_a_message_that_was_held_come_after_it(tmp_path: Path) -> None:
    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(503, Retry_After="0") if len(server.posts) == 1 else answer()

    async with gateway(tmp_path, made_by=Keyed) as made, receiver(script) as server:
        await publish_keyed(made, *"aaa")
        async with pushing(made, QUEUE, server.url) as pushes:
            await until(lambda: acked(pushes, 3))
    assert posted(server, "a") == [(0, "0"), (0, "0"), (1, "0"), (2, "0")]
