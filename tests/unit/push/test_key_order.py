"""The posts of an ordering key: one at a time, in order, and back to the queue behind one that is back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from babelgate.push.key_order import KeyOrder, Turn


async def come(turn: Turn) -> Collection[str] | None:
    """What the turn returns when it has come; None while it has not."""
    waiting = asyncio.create_task(turn.come())
    for _ in range(5):
        await asyncio.sleep(0)
    if waiting.done():
        return waiting.result()
    waiting.cancel()
    return None


def end(turn: Turn, returned: Collection[str] = ()) -> None:
    turn.end(tuple(turn.keys), returned)


def is_returning(order: KeyOrder) -> bool:
    """Asks each time: mypy takes a property for constant."""
    return order.is_returning


async def test_the_posts_of_a_key_come_one_after_the_other() -> None:
    order = KeyOrder()
    first, other, second, third = (order.enter(keys) for keys in ("a", "b", "a", "a"))
    assert await come(order.enter(())) == set(), "a message without a key waits for none"
    assert await come(first) == await come(other) == set()
    assert await come(second) is None
    end(first)
    assert await come(second) == set()
    assert await come(third) is None
    end(second)
    assert await come(third) == set()
    end(third)
    end(third)
    assert await come(order.enter("a")) == set()


async def test_a_post_of_several_keys_waits_for_each() -> None:
    order = KeyOrder()
    one, two = order.enter("a"), order.enter("b")
    both = order.enter("abab")
    end(one)
    assert await come(both) is None
    end(two)
    assert await come(both) == set()


async def test_what_goes_back_does_not_wait_for_another_key() -> None:
    order = KeyOrder()
    failed, other, both = order.enter("a"), order.enter("b"), order.enter("ab")
    end(failed, "a")
    assert await come(both) == {"a"}
    both.end("a", ())
    assert not is_returning(order)
    assert await come(both) is None
    end(other)
    assert await come(both) == set()


async def test_what_is_behind_a_message_that_is_back_goes_back() -> None:
    order = KeyOrder()
    failed, behind, mixed = order.enter("a"), order.enter("a"), order.enter("ab")
    waiting = asyncio.create_task(behind.come())
    await asyncio.sleep(0)
    end(failed, "a")
    assert await waiting == {"a"}
    assert is_returning(order)
    received_meanwhile = order.enter("a")
    assert await come(received_meanwhile) == {"a"}
    end(behind)
    end(received_meanwhile)
    assert await come(mixed) == {"a"}
    assert is_returning(order)
    mixed.end("a", ())
    assert not is_returning(order)
    assert await come(order.enter("a")) == set(), "it comes again"
    assert await come(mixed) == set(), "the other key goes on"


async def test_a_failure_with_none_behind_it_holds_nothing() -> None:
    order = KeyOrder()
    end(order.enter("a"), "a")
    assert not order.is_returning
    assert await come(order.enter("a")) == set()
