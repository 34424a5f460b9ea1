"""A cache forgets its oldest entries, and counts no less than it takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from importlib import import_module

import pytest

from babelgate.runtime.cache import PLAIN_BYTES, Cache, Recent
from tests.harness.caches import CACHES, Remembered, bounds
from tests.harness.garbage import set_aside

BOUNDS = bounds()
_NOISE = 2_000
"""Bytes of the measuring itself."""


def test_the_oldest_entries_are_forgotten_first() -> None:
    cache: Cache[str, int] = Cache(3 * (PLAIN_BYTES + 1))
    for number, key in enumerate("abcd"):
        cache.keep(key, number)
    assert [cache.get(key) for key in "abcd"] == [None, 1, 2, 3]
    assert (len(cache), cache.size) == (3, cache.max_bytes)


def test_a_longer_key_takes_the_room_of_others() -> None:
    cache: Cache[str, int] = Cache(1_000, 100)
    for key in "abcd":
        cache.keep(key, 0)
    cache.keep("x" * 700, 1)
    assert [key in cache for key in "abcd"] == [False, False, False, True]
    assert cache.size == 901


def test_room_is_made_by_ending_the_oldest_that_are_not_busy() -> None:
    ended: list[str] = []
    kept: Recent[str, str] = Recent(3, lambda each: each == "a", ended.append)
    for name in "abcd":
        kept[name] = name
    assert (ended, list(kept)) == (["b"], ["c", "a", "d"])
    assert kept.obtain("c", lambda: pytest.fail("it is made again")) == "c"
    assert kept.obtain("e", lambda: "e") == "e"
    assert (ended, list(kept)) == (["b", "d"], ["c", "a", "e"])


def test_a_name_that_is_set_again_takes_the_room_of_none() -> None:
    kept: Recent[str, int] = Recent(2)
    for number, name in enumerate("abab"):
        kept[name] = number
    assert list(kept.items()) == [("a", 2), ("b", 3)]


def test_busy_ones_stay_beyond_the_bound_and_few_of_them_are_looked_at() -> None:
    looked_at: list[int] = []

    def is_busy(number: int) -> bool:
        looked_at.append(number)
        return True

    kept: Recent[int, int] = Recent(4, is_busy, lambda _: pytest.fail("a busy one was ended"))
    for number in range(100):
        kept[number] = number
    looked_at.clear()
    kept[100] = 100
    assert (len(kept), len(looked_at)) == (101, 8)


def test_an_entry_that_is_too_large_is_not_kept_and_costs_no_other() -> None:
    cache: Cache[str, int] = Cache(1_000, 100)
    cache.keep("a", 0)
    cache.keep("x" * 901, 1)
    assert ("a" in cache, len(cache), cache.size) == (True, 1, 101)


def test_a_value_is_replaced_and_counted_once() -> None:
    cache: Cache[str, int] = Cache(1_000, 100)
    cache.keep("a", 0)
    cache.keep("a", 1)
    assert (cache.get("a"), cache.size) == (1, 101)


def test_what_is_forgotten_is_not_counted() -> None:
    cache: Cache[str, int] = Cache(1_000, 100)
    for key in "ab":
        cache.keep(key, 0)
    cache.forget("a")
    cache.forget("a")
    assert (cache.get("a"), cache.size, list(cache)) == (None, 101, ["b"])
    cache.clear()
    assert (len(cache), cache.size) == (0, 0)
    cache.keep("c", 1)
    assert cache.get("c") == 1


def test_every_cache_of_the_source_is_on_the_list() -> None:
    """A dict that grows with what a caller sends is a leak; a Cache or lru_cache has to be on the list, with bounds."""
    assert sorted(BOUNDS) == sorted(cache.place for cache in CACHES)


@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.place)
def test_an_entry_takes_no_more_than_it_counts(cache: Remembered) -> None:
    bound = BOUNDS[cache.place]
    count = min(bound.entries, 500)
    # What the first entry loads is not the entry's.
    cache.entry(count)
    if bound.counting is not None:
        assert _taken(bound.counting.keep, cache, count) <= bound.counting.size + _NOISE
        return
    module, _, name = cache.place.rpartition(".")
    remembered = getattr(import_module(module), name)
    remembered.cache_clear()
    taken = _taken(remembered, cache, count)
    assert remembered.cache_info().currsize == count
    remembered.cache_clear()
    assert taken <= count * cache.entry_bytes + _NOISE


def _taken(remember: Callable[..., object], cache: Remembered, count: int) -> int:
    """The bytes that ``count`` entries take."""
    set_aside()
    tracemalloc.start()
    try:
        for number in range(count):
            remember(*cache.entry(number))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
