"""Pushes: each message is posted to a receiver, and settled by its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

from standardwebhooks import Webhook

from babelgate.gateway.routing import Policy
from babelgate.push.pushes import Pushes
from tests.harness.webhooks import SECRET, Post, answer, pushing, receiver
from tests.harness.world import LIMIT_SECONDS, Process, World, until


class TestPush:
    async def test_what_the_receiver_accepts_is_acked_and_pushed_once_and_in_order(self, world: World) -> None:
        process = await world.process()
        receipts = await process.publish_all([{"n": n} for n in range(5)])
        async with receiver() as server, pushing(process.gateway, world.queue, server.url, concurrency=1) as pushes:
            await server.arrived(5)
            await until(lambda: settled(pushes, world.queue, 5))
        assert await process.is_empty()
        assert process.in_order(post.data["n"] for post in server.posts) == [0, 1, 2, 3, 4]
        assert {post.id for post in server.posts} == {receipt.id for receipt in receipts}
        for post in server.posts:
            assert Webhook(SECRET).verify(post.body, dict(post.headers)) == json.loads(post.body)
            assert (post.headers["queue"], post.headers["attempts"]) == (world.queue, "0")
            assert "traceparent" in post.headers

    async def test_a_failure_comes_again_as_an_attempt_and_a_pause_as_none(self, world: World) -> None:
        said = [answer(503, Retry_After="0"), answer(500, b"out of order"), answer(200)]

        async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
            return said[len(server.posts) - 1]

        process = await world.process(policy=Policy(max_attempts=2))
        await process.publish({"n": 1})
        async with receiver(script) as server, pushing(process.gateway, world.queue, server.url) as pushes:
            await server.arrived(3)
            await until(lambda: settled(pushes, world.queue, 3))
        assert await process.is_empty()
        assert [post.headers["attempts"] for post in server.posts] == ["0", "0", "1"]
        assert len({post.id for post in server.posts}) == 1
        assert await process.dead() == []

    async def test_what_the_receiver_refuses_for_good_is_a_dead_letter(self, world: World) -> None:
        async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
            return answer(410, b"no such order")

        process = await world.process()
        await process.publish({"n": 1})
        async with receiver(script) as server, pushing(process.gateway, world.queue, server.url) as pushes:
            await until(lambda: settled(pushes, world.queue, 1))
        (letter,) = await process.dead()
        assert letter.reason == "failed"
        assert letter.error is not None
        assert letter.error.endswith("was answered with HTTP 410: no such order")
        assert len(server.posts) == 1
        assert await process.is_empty()


async def settled(pushes: Pushes, queue: str, count: int) -> bool:
    """Whether so many posts have ended."""
    return pushes.running[queue].state.outcomes.total() >= count


async def keys_are_pushed_in_order(world: World, process: Process, *, retried_in_place: bool) -> None:
    """The messages of an ordering key are posted one at a time, in their order, and the keys side by side.

    One post fails. ``retried_in_place``: those behind it wait for its next attempt, and none of them counts as tried.
    """
    running: Counter[str] = Counter()
    both = asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        key, n = post.data["key"], post.data["n"]
        running[key] += 1
        at_once.append(running[key])
        if running.total() == 2:
            both.set()
        if n == 0:
            # The first ones of both keys are in flight together, if nothing but their keys decides.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(both.wait(), LIMIT_SECONDS)
        await asyncio.sleep(0.02)
        running[key] -= 1
        return answer(500 if (key, n, post.headers["attempts"]) == ("a", 1, "0") else 200)

    at_once: list[int] = []
    for n in range(4):
        for key in "ab":
            await process.publish({"key": key, "n": n}, ordering_key=key)
    options = {"concurrency": 8, "timeout_seconds": 2 * LIMIT_SECONDS}
    async with receiver(script) as server, pushing(process.gateway, world.queue, server.url, **options) as pushes:
        await until(lambda: settled(pushes, world.queue, 9))
    assert set(at_once) == {1}
    posted = {key: [(p.data["n"], p.headers["attempts"]) for p in server.posts if p.data["key"] == key] for key in "ab"}
    assert posted["b"] == [(n, "0") for n in range(4)]
    first, last = [(0, "0"), (1, "0")], [(2, "0"), (3, "0")]
    assert posted["a"] == ([*first, (1, "1"), *last] if retried_in_place else [*first, *last, (1, "1")])
    assert await process.is_empty()
