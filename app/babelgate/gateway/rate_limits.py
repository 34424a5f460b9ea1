"""Rates of identities and queues: requests, published messages, and their bytes a second.

Three scopes have buckets of their own: an identity on all queues, a queue with all identities, and an identity on a
queue. An operation needs all of them. What one bucket refuses is taken from none.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from babelgate.errors import BabelgateError
from babelgate.gateway.authorization import Caller
from babelgate.gateway.buckets import Bucket, RateExceeded
from babelgate.gateway.limit_terms import RateTerms
from babelgate.gateway.names import is_queue_name
from babelgate.gateway.routing import Route, Router
from babelgate.runtime.cache import Recent

Scope = Literal["identity", "queue", "identity-on-queue"]
UNITS = ("requests", "messages", "bytes")
LIMITS = tuple(f"{scope}-{unit}" for scope in ("identity", "queue", "identity-on-queue") for unit in UNITS)
"""The names of all limits, in metrics and in the fields of answers."""

MAX_ALLOWANCES = 20_000
"""Scopes whose buckets are kept. The oldest of those with full buckets make room, which changes nothing. Beyond four
times as many, also those of others are forgotten, and start full again."""

_QUOTA_UNITS = (b"requests", b"messages", b"content-bytes")
"""The units in the fields of answers. The draft has no unit of messages."""

_Key = tuple[str, str]


class Allowance:
    """The buckets of one scope, in the order of UNITS; None: no limit. ``says``: the beginning of a refusal."""

    __slots__ = ("buckets", "policies", "says", "scope")

    def __init__(self, terms: RateTerms, scope: Scope, says: str) -> None:
        rates = terms.requests_per_second, terms.messages_per_second, terms.bytes_per_second
        self.buckets = tuple(
            None if rate is None else Bucket(rate, max(rate * terms.burst_seconds, 1.0)) for rate in rates
        )
        self.policies = tuple(
            None if bucket is None else _policy(f"{scope}-{unit}", bucket, quota_unit)
            for bucket, unit, quota_unit in zip(self.buckets, UNITS, _QUOTA_UNITS, strict=True)
        )
        self.says = says
        self.scope = scope

    def is_full(self, now: float) -> bool:
        """Whether nothing would be forgotten with it."""
        return all(bucket is None or bucket.full_in(now) <= 0 for bucket in self.buckets)


class Quota:
    """What one request has to keep to. Its scopes are shared with all other requests."""

    __slots__ = ("_allowances", "_clock", "_refused")

    def __init__(self, allowances: Sequence[Allowance], clock: Callable[[], float], refused: Counter[str]) -> None:
        self._allowances = allowances
        self._clock = clock
        self._refused = refused

    def check(self, requests: int = 0, messages: int = 0, size: int = 0) -> None:
        """Raise RateExceeded unless so many requests, messages and bytes can be taken now."""
        now = self._clock()
        longest, cause = 0.0, None
        for allowance in self._allowances:
            for index, amount in enumerate((requests, messages, size)):
                bucket = allowance.buckets[index]
                if bucket is not None and amount and (wait := bucket.wait(now, amount)) > longest:
                    longest, cause = wait, (allowance, index)
        if cause is not None:
            allowance, index = cause
            self._refused[f"{allowance.scope}-{UNITS[index]}"] += 1
            raise _refusal(allowance, index, longest)

    def allows(self, requests: int = 0, messages: int = 0, size: int = 0) -> bool:
        """Whether so many requests, messages and bytes can be taken now."""
        now = self._clock()
        return not any(
            bucket is not None and amount and bucket.wait(now, amount)
            for allowance in self._allowances
            for bucket, amount in zip(allowance.buckets, (requests, messages, size), strict=True)
        )

    def take(self, requests: int = 0, messages: int = 0, size: int = 0) -> None:
        """Take them, whether or not they are there."""
        now = self._clock()
        for allowance in self._allowances:
            for bucket, amount in zip(allowance.buckets, (requests, messages, size), strict=True):
                if bucket is not None and amount:
                    bucket.take(now, amount)

    def spend(self, requests: int = 0, messages: int = 0, size: int = 0) -> None:
        """Take them, or raise RateExceeded and take nothing."""
        self.check(requests, messages, size)
        self.take(requests, messages, size)

    def spend_on(self, bodies: Sequence[bytes]) -> tuple[int, RateExceeded | None]:
        """Take the first messages of a batch, as many as can be taken: their number, and why no more."""
        for index, body in enumerate(bodies):
            try:
                self.spend(0, 1, len(body))
            except RateExceeded as error:
                return index, error.without_frames()
        return len(bodies), None

    def fields(self) -> list[tuple[bytes, bytes]]:
        """The fields ``RateLimit`` and ``RateLimit-Policy`` of an answer:
        https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/"""
        now = self._clock()
        policies, states = [], []
        for allowance in self._allowances:
            for bucket, policy in zip(allowance.buckets, allowance.policies, strict=True):
                if bucket is not None and policy is not None:
                    name, described = policy
                    policies.append(described)
                    states.append(b"%b;r=%d;t=%d" % (name, bucket.left(now) + 1e-6, math.ceil(bucket.full_in(now))))
        return [(b"ratelimit-policy", b", ".join(policies)), (b"ratelimit", b", ".join(states))]


class RateLimits:
    """The rates of one process. ``identity``: the terms of identities without their own; None: no limit."""

    def __init__(
        self,
        router: Router,
        identity: RateTerms | None = None,
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_ALLOWANCES,
    ) -> None:
        """``clock``: seconds. ``most``: see MAX_ALLOWANCES."""
        self._router = router
        self._identity = identity
        self._clock = clock
        self._allowances: Recent[_Key, Allowance] = Recent(most, self._is_busy)
        self._most_busy = most * 4
        self.refused: Counter[str] = Counter()
        """How often each of LIMITS has refused something."""

    def of(self, caller: Caller, route: Route | None) -> Quota | None:
        """What an operation of ``caller`` on a queue, or on none, has to keep to; None: nothing."""
        found = []
        terms = self._identity if caller.limits is None else caller.limits
        name = caller.name
        if terms is not None and terms.has_rates:
            found.append(self._allowance((name, ""), terms, "identity", f"The identity {name!r}"))
        if route is not None and (queue_terms := route.policy.limits) is not None:
            queue = route.queue
            if queue_terms.has_rates:
                found.append(self._allowance(("", queue), queue_terms, "queue", f"The queue {queue!r}"))
            if queue_terms.per_identity is not None and queue_terms.per_identity.has_rates:
                says = f"The identity {name!r}, on the queue {queue!r},"
                found.append(self._allowance((name, queue), queue_terms.per_identity, "identity-on-queue", says))
        return Quota(found, self._clock, self.refused) if found else None

    def of_request(self, caller: Caller, queue: str) -> Quota | None:
        """The same for a request whose path names a queue, or none. One of a caller without a right on the queue costs
        the queue nothing."""
        route = None
        if is_queue_name(queue) and caller.rights(queue):
            try:
                route = self._router.route(queue)
            except BabelgateError:
                route = None
        return self.of(caller, route)

    def _allowance(self, key: _Key, terms: RateTerms, scope: Scope, says: str) -> Allowance:
        found = self._allowances.get(key)
        return found if found is not None else self._allowances.obtain(key, partial(Allowance, terms, scope, says))

    def _is_busy(self, allowance: Allowance) -> bool:
        return len(self._allowances) < self._most_busy and not allowance.is_full(self._clock())


def _policy(name: str, bucket: Bucket, unit: bytes) -> tuple[bytes, bytes]:
    """The name of a limit as a string of a structured field, and the item that describes it."""
    quoted = b'"%b"' % name.encode("ascii")
    window = math.ceil(bucket.capacity / bucket.rate)
    return quoted, b'%b;q=%d;w=%d;qu="%b"' % (quoted, bucket.capacity, window, unit)


def _refusal(allowance: Allowance, index: int, wait: float) -> RateExceeded:
    bucket = allowance.buckets[index]
    assert bucket is not None
    does = ("may make", "may publish", "may publish")[index] if allowance.scope != "queue" else "takes"
    reason = f"{allowance.says} {does} {bucket.rate:.15g} {UNITS[index]} a second."
    return RateExceeded(reason=reason, retry_after=math.ceil(wait))
