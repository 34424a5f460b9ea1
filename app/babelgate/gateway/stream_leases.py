"""Prolongs the leases of a stream, each where its message was handed out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping

from babelgate.errors import BabelgateError
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.open_streams import StreamLease
from babelgate.gateway.outages import is_silence
from babelgate.gateway.queue_runtime import QueueRuntime
from babelgate.gateway.routing import Route


async def prolonged(
    gateway: Gateway, route: Route, due: Mapping[str, StreamLease], lease_seconds: float, now: float
) -> AsyncIterator[tuple[str, int | BabelgateError]]:
    """The handle and the outcome of each lease of ``due`` that was prolonged for ``lease_seconds`` from ``now``, the
    loop's time. After a call without an answer there is none for the same broker: each could take the whole time-out.
    """
    current, former = gateway.queue_runtimes.of(route), gateway.former
    calls = defaultdict[tuple[QueueRuntime, float], list[str]](list)
    for handle, held in due.items():
        runtime = former.holder(current, held.lease) or current if former.is_used else current
        longest = runtime.route.capabilities.max_lease_seconds
        calls[runtime, held.extension(now, lease_seconds, longest)].append(handle)
    silent: set[QueueRuntime] = set()
    for (runtime, seconds), handles in calls.items():
        if runtime in silent:
            continue
        outcomes = await runtime.prolong(handles, seconds)
        for each in zip(handles, outcomes, strict=True):
            yield each
        if is_silence(outcomes[-1]):
            silent.add(runtime)
