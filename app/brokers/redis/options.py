"""The options that a route gives its Redis queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.brokers.redis.layouts.laravel import LaravelLayout
from app.brokers.redis.layouts.layout import Layout, RedisQueue
from app.brokers.redis.layouts.list import ListLayout
from app.errors import ConfigError

_LAYOUTS: Mapping[str, Layout] = {"list": ListLayout(), "laravel": LaravelLayout()}
_OPTIONS = {"list": ("layout", "frames", "reclaim_unleased_seconds"), "laravel": ("layout", "prefix")}


def queue_of(name: str, options: Mapping[str, Any]) -> RedisQueue:
    """The queue ``name`` with a route's options.

    ``layout``: ``list`` (the default) or ``laravel``. In the list layout, ``frames`` (default false) lets clients
    give headers, and ``reclaim_unleased_seconds`` (default null: never) returns what other clients have left in
    ``<q>:processing`` without a lease. In Laravel's, ``prefix`` (default ``queues:``) stands before the name.
    Raises ConfigError, ``key`` the option's name.
    """
    layout = options.get("layout", "list")
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise ConfigError(key="layout", reason="list or laravel is expected")
    for key in options:
        if key not in _OPTIONS[layout]:
            known = ", ".join(_OPTIONS[layout])
            raise ConfigError(key=key, reason=f"unknown in the layout {layout}; known are {known}")
    frames = options.get("frames", False)
    if not isinstance(frames, bool):
        raise ConfigError(key="frames", reason="true or false is expected")
    patience = options.get("reclaim_unleased_seconds")
    if patience is not None and (isinstance(patience, bool) or not isinstance(patience, int | float) or patience <= 0):
        raise ConfigError(key="reclaim_unleased_seconds", reason="a number of seconds above 0 is expected")
    prefix = options.get("prefix", "queues:") if layout == "laravel" else ""
    if not isinstance(prefix, str):
        raise ConfigError(key="prefix", reason="a text is expected")
    return RedisQueue(_LAYOUTS[layout], (prefix + name).encode("utf-8"), frames, patience)
