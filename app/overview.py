"""Queues and brokers as operators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from urllib.parse import urlsplit

from app.brokers.binding import Binding, Lists, Stats
from app.errors import BabelgateError, BrokerError, InvalidParameter, QueueNotFound
from app.model import BrokerInfo, QueueInfo
from app.routing import Route, Router


async def known_queues(router: Router, bindings: Mapping[str, Binding]) -> list[str]:
    """The configured exact names, and the queues that brokers can list, sorted."""
    names = set(router.configured())
    for binding in bindings.values():
        if isinstance(binding, Lists):
            try:
                listed = await binding.queues()
            except BrokerError:
                continue
            names.update(name for name in listed if _is_queue(router, binding, name))
    return sorted(names)


def _is_queue(router: Router, binding: Binding, native_name: str) -> bool:
    """Whether a queue of this name leads to the native queue of the same name."""
    try:
        route = router.route(native_name)
    except (QueueNotFound, InvalidParameter):
        return False
    return route.binding is binding and route.native.name == native_name


async def queue_info(route: Route, *, strict: bool) -> QueueInfo:
    """The queue with its counts; with a broker down, all unknown unless ``strict`` (raises BrokerError)."""
    try:
        stats = await route.binding.stats(route.native)
    except BrokerError:
        if strict:
            raise
        stats = Stats()
    return QueueInfo(route.queue, route.broker, route.native.name, stats, route.capabilities, asdict(route.policy))


async def broker_info(binding: Binding, url: str, required: bool) -> BrokerInfo:
    """The broker, asked for at most 2 s whether it is up and how it is set up."""
    detail, warnings = None, []
    try:
        await binding.ping()
        warnings = list(await binding.warnings())
    except BabelgateError as error:
        detail = error.detail
    return BrokerInfo(
        broker=binding.name,
        kind=urlsplit(url).scheme,
        url=url,
        required=required,
        up=detail is None,
        detail=detail,
        warnings=warnings,
        capabilities=binding.capabilities(binding.native_queue("any", {})),
    )
