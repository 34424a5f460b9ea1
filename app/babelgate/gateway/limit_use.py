"""What the limits of a caller on a queue allow, and what of it is in use now, for people."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from babelgate.brokers.binding import QueueStats
from babelgate.gateway.allowances import AT_A_TIME, UNITS, Allowance, Scope
from babelgate.gateway.authorization import OPERATORS, Caller
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Route
from babelgate.gateway.shared_rates import SharedBucket


class LimitUse(Struct, frozen=True, kw_only=True):
    """One limit. ``name``: what it counts, such as ``messages`` or ``leases``. ``allowed``: a second for rates, else at
    a time. ``at_once``: of a rate, after a pause. ``now``: what may come now of a rate, and what there is of any other;
    None: unknown."""

    scope: Scope
    name: str
    allowed: float
    at_once: float | None = None
    now: float | None = None


async def limit_use(
    limits: RateLimits | None, caller: Caller, route: Route, stats: QueueStats | None = None
) -> Sequence[LimitUse]:
    """The limits of ``caller`` on a queue, in the order of their scopes. Those of the queue with all its callers only
    for callers that may manage or observe it.

    Waits at most 0.5 s for what other processes have, where numbers are shared. ``stats``: of the queue.
    """
    if limits is None:
        return []
    sees_all = not caller.rights(route.queue).isdisjoint(OPERATORS)
    found: list[LimitUse] = []
    allowances = [each for each in limits.scopes(caller, route) if sees_all or each.scope != "queue"]
    if limits.shared is not None:
        await limits.shared.counts.learn([share for each in allowances for share in each.shares.values()])
    for each in allowances:
        found += _of(each, limits.now())
    terms = route.policy.limits
    if sees_all and terms is not None and terms.max_depth is not None:
        counts = [] if stats is None else [each for each in (stats.depth, stats.delayed) if each is not None]
        found.append(
            LimitUse(scope="queue", name="depth", allowed=terms.max_depth, now=sum(counts) if counts else None)
        )
    return found


def _of(allowance: Allowance, now: float) -> list[LimitUse]:
    found: list[LimitUse] = []
    scope, terms = allowance.scope, allowance.terms
    for name, bucket in zip(UNITS, allowance.buckets, strict=True):
        if bucket is not None:
            if isinstance(bucket, SharedBucket):
                # The answer to this has what other processes have taken: the next look shows it.
                bucket.take(now, 0)
            left = int(bucket.left(now) + 1e-6)
            found.append(LimitUse(scope=scope, name=name, allowed=bucket.rate, at_once=bucket.capacity, now=left))
    for kind in AT_A_TIME:
        if (most := terms.most(kind)) is not None:
            found.append(LimitUse(scope=scope, name=kind, allowed=most, now=allowance.total(kind)))
    if terms.max_message_bytes is not None:
        found.append(LimitUse(scope=scope, name="message-bytes", allowed=terms.max_message_bytes))
    return found
