"""A route's options, and what they make of a queue."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.redis.binding import RedisBinding, connect
from babelgate.brokers.redis.layouts.layout import RedisQueue
from babelgate.clock import now_ms
from babelgate.errors import ConfigError


@pytest.fixture
def binding() -> RedisBinding:
    return connect("cache", "redis://127.0.0.1:1", {}, now_ms)


def queue(binding: RedisBinding, **options: Any) -> RedisQueue:
    made = binding.native_queue("orders", options).options
    assert isinstance(made, RedisQueue)
    return made


def test_the_list_layout_is_the_default(binding: RedisBinding) -> None:
    made = queue(binding)
    assert (made.key, made.dead_key, made.entry) == (b"orders", b"orders.dlq", b"list:orders")
    assert not made.frames and made.reclaim_unleased_seconds is None


def test_the_laravel_layout(binding: RedisBinding) -> None:
    assert queue(binding, layout="laravel").key == b"queues:orders"
    assert queue(binding, layout="laravel", prefix="app:").dead_key == b"app:orders.dlq"


def test_headers_need_frames(binding: RedisBinding) -> None:
    def headers(**options: Any) -> bool:
        return binding.capabilities(binding.native_queue("orders", options)).headers

    assert headers(frames=True)
    assert not headers() and not headers(layout="laravel")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"layout": "streams"}, "layout"),
        ({"layout": 1}, "layout"),
        ({"frame": True}, "frame"),
        ({"frames": "yes"}, "frames"),
        ({"layout": "laravel", "frames": True}, "frames"),
        ({"layout": "laravel", "reclaim_unleased_seconds": 1}, "reclaim_unleased_seconds"),
        ({"prefix": "x:"}, "prefix"),
        ({"layout": "laravel", "prefix": None}, "prefix"),
        ({"reclaim_unleased_seconds": 0}, "reclaim_unleased_seconds"),
        ({"reclaim_unleased_seconds": True}, "reclaim_unleased_seconds"),
        ({"reclaim_unleased_seconds": "60"}, "reclaim_unleased_seconds"),
    ],
    ids=str,
)
def test_what_is_refused(binding: RedisBinding, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        binding.native_queue("orders", options)
    assert refused.value.key == key
