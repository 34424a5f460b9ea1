"""Limits of identities and queues: requests, published messages and their bytes a second, the size of a message, the
depth of a queue, and receives, streams and leases at a time.

Three scopes have buckets of their own: an identity on all queues, a queue with all identities, and an identity on a
queue. An operation needs all of them. What one bucket refuses is taken from none.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from babelgate.errors import BabelgateError, BodyTooLarge
from babelgate.gateway.allowances import UNITS, Allowance, Key, Scope, Work
from babelgate.gateway.authorization import Caller
from babelgate.gateway.buckets import RateExceeded
from babelgate.gateway.depths import Depths, QueueDepth, QueueFull
from babelgate.gateway.limit_terms import RateTerms
from babelgate.gateway.names import is_queue_name
from babelgate.gateway.routing import Route, Router
from babelgate.gateway.shared_counts import SharedCount
from babelgate.gateway.shared_rates import SharedRates
from babelgate.runtime.cache import Recent

_SCOPES: tuple[Scope, ...] = ("identity", "queue", "identity-on-queue")
LIMITS = (
    *(f"{scope}-{unit}" for scope in _SCOPES for unit in (*UNITS, "receives", "streams", "leases", "message-bytes")),
    "queue-depth",
)
"""The names of all limits, in metrics and in the fields of answers."""

MAX_ALLOWANCES = 20_000
"""Scopes whose buckets are kept. The oldest of those with full buckets make room, which changes nothing. Beyond four
times as many, also those of others are forgotten, and start full again."""


class ConcurrencyExceeded(BabelgateError):
    """{reason} Nothing was handed out. Repeat the request when one of them has ended."""

    code = "concurrency_exceeded"
    retryable = True


class Quota:
    """What one request has to keep to. Its scopes are shared with all other requests."""

    __slots__ = ("_allowances", "_clock", "_depth", "_most", "_refused")

    def __init__(
        self,
        allowances: Sequence[Allowance],
        clock: Callable[[], float],
        refused: Counter[str],
        depth: QueueDepth | None = None,
        most: int = 0,
    ) -> None:
        """``depth``: of the queue, if it has a limit, which is ``most``."""
        self._allowances = allowances
        self._clock = clock
        self._refused = refused
        self._depth = depth
        self._most = most

    def allows(self, requests: int = 0, size: int | None = None) -> bool:
        """Whether this number of ``requests``, and a message of ``size`` bytes, can be taken now."""
        depth = self._depth
        if size is not None and depth is not None and not (depth.is_known and depth.allows(self._most)):
            return False
        now = self._clock()
        for allowance in self._allowances:  # noqa: SIM110 (a generator takes longer)
            if not allowance.allows(now, requests, size):
                return False
        return True

    def take(self, requests: int = 0, size: int | None = None) -> None:
        """Take them, whether or not they are there."""
        now = self._clock()
        for allowance in self._allowances:
            allowance.take(now, requests, size)
        if size is not None and self._depth is not None:
            self._depth.take(1)

    def spend(self, requests: int = 0, size: int | None = None) -> None:
        """Take them, or raise RateExceeded, QueueFull or BodyTooLarge and take nothing."""
        if not self.allows(requests, size):
            self._refuse(requests, size)
        self.take(requests, size)

    async def publish(self, size: int) -> None:
        """Take a message, or raise what :meth:`spend` raises. Waits at most 2 s for the first count of a queue."""
        if self._depth is not None:
            await self._depth.know()
        self.spend(size=size)

    async def publish_many(self, bodies: Sequence[bytes]) -> list[BabelgateError | None]:
        """Take the messages of a batch: the error of each that is refused. After one that is beyond a rate, or that the
        queue has no room for, all are."""
        if self._depth is not None:
            await self._depth.know()
        errors: list[BabelgateError | None] = []
        for body in bodies:
            try:
                self.spend(size=len(body))
                errors.append(None)
            except BodyTooLarge as error:
                errors.append(error.without_frames())
            except (RateExceeded, QueueFull) as error:
                errors += [error.without_frames()] * (len(bodies) - len(errors))
                break
        return errors

    def enter(self, work: Work) -> Callable[[], None]:
        """Begin a receive or a stream; the function ends it. Raises ConcurrencyExceeded."""
        for allowance in self._allowances:
            if allowance.is_busy_with(work):
                self._refused[f"{allowance.scope}-{work}"] += 1
                count = allowance.total(work)
                raise ConcurrencyExceeded(reason=f"{allowance.says} has {count} {work} already.", retry_after=1)
        for allowance in self._allowances:
            allowance.running[work] += 1
        return partial(_leave, self._allowances, work)

    def has_place(self, work: Work) -> bool:
        """Whether another receive or stream can begin, and hand out something, without a wait for :meth:`know`."""
        return not any(allowance.is_busy_with(work) for allowance in self._allowances) and all(
            share.is_settled() for share in self._shares(work)
        )

    async def know(self, work: Work) -> None:
        """Wait for the share of this process in the receives or streams, and the leases, of all, for at most 0.5 s.
        A receive waits as long again for its leases, if they are limited."""
        if shares := self._shares(work):
            await shares[0].settle(shares)

    def _shares(self, work: Work) -> list[SharedCount]:
        return [share for each in self._allowances for kind, share in each.shares.items() if kind in (work, "leases")]

    def _refuse(self, requests: int, size: int | None) -> None:
        """Raise the error of a size, else of the rate that ends last, else of the depth."""
        now = self._clock()
        longest, cause = 0.0, None
        for allowance in self._allowances:
            most = allowance.terms.max_message_bytes
            if size is not None and most is not None and size > most:
                self._refused[f"{allowance.scope}-message-bytes"] += 1
                raise BodyTooLarge(actual=size, limit=most)
            for index, amount in enumerate(_amounts(requests, size)):
                bucket = allowance.buckets[index]
                if bucket is not None and amount and (wait := bucket.wait(now, amount)) > longest:
                    longest, cause = wait, (allowance, index)
        if cause is not None:
            allowance, index = cause
            self._refused[f"{allowance.scope}-{UNITS[index]}"] += 1
            raise _refusal(allowance, index, longest)
        if self._depth is not None:
            try:
                self._depth.check(self._most)
            except QueueFull:
                self._refused["queue-depth"] += 1
                raise

    def fields(self) -> list[tuple[bytes, bytes]]:
        """The fields ``RateLimit`` and ``RateLimit-Policy`` of an answer:
        https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/"""
        now = self._clock()
        told = [allowance for allowance in self._allowances if allowance.policy]
        if not told:
            return []
        policies, states = [each.policy for each in told], [each.state(now) for each in told]
        return [(b"ratelimit-policy", b", ".join(policies)), (b"ratelimit", b", ".join(states))]


class RateLimits:
    """The rates of one process. ``identity``: the terms of identities without their own; None: no limit."""

    def __init__(
        self,
        router: Router,
        identity: RateTerms | None = None,
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_ALLOWANCES,
        shared: SharedRates | None = None,
        counts_leases: bool = True,
    ) -> None:
        """``clock``: seconds. ``most``: see MAX_ALLOWANCES. ``shared``: None if each process counts for itself.
        ``counts_leases``: whether some terms have ``max_leases``."""
        self.counts_leases = counts_leases
        self.shared = shared
        self._router = router
        self._identity = identity
        self._clock = clock
        self._allowances: Recent[Key, Allowance] = Recent(most, self._is_busy)
        self._most_busy = most * 4
        self._depths = Depths(clock)
        self.refused: Counter[str] = Counter()
        """How often each of LIMITS has refused something."""

    def of(self, caller: Caller, route: Route | None) -> Quota | None:
        """What an operation of ``caller`` on a queue, or on none, has to keep to; None: nothing."""
        found = self.scopes(caller, route)
        if route is not None and (terms := route.policy.limits) is not None and terms.max_depth is not None:
            return Quota(found, self._clock, self.refused, self._depths.of(route), terms.max_depth)
        return Quota(found, self._clock, self.refused) if found else None

    def of_leases(self, caller: Caller, route: Route) -> Sequence[Allowance]:
        """The scopes whose leases are limited, of those that a receive of ``caller`` on a queue counts for."""
        if not self.counts_leases:
            return ()
        return [each for each in self.scopes(caller, route) if each.terms.max_leases is not None]

    def now(self) -> float:
        """The time of the buckets, in seconds."""
        return self._clock()

    def scopes(self, caller: Caller, route: Route | None) -> list[Allowance]:
        """What an operation of ``caller`` on a queue, or on none, counts for."""
        found = []
        terms = self._identity if caller.limits is None else caller.limits
        name = caller.name
        if terms is not None and terms.limits_anything:
            found.append(self._allowance((name, ""), terms, "identity"))
        if route is not None and (queue_terms := route.policy.limits) is not None:
            queue = route.queue
            if queue_terms.limits_anything:
                found.append(self._allowance(("", queue), queue_terms, "queue"))
            if queue_terms.per_identity is not None and queue_terms.per_identity.limits_anything:
                found.append(self._allowance((name, queue), queue_terms.per_identity, "identity-on-queue"))
        return found

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

    def configure(self, other: RateLimits, left: Iterable[Route] = ()) -> None:
        """Limit as ``other`` does from now on, which is not used itself. What runs stays counted, and buckets whose
        terms are the same stay as full as they are. ``left``: routes whose queues are elsewhere now."""
        self._depths.leave(left)
        self._identity = other._identity
        self.counts_leases = other.counts_leases

    async def close(self) -> None:
        """Stop counting; idempotent."""
        await self._depths.close()
        if self.shared is not None:
            await self.shared.close()

    def _allowance(self, key: Key, terms: RateTerms, scope: Scope) -> Allowance:
        found = self._allowances.get(key)
        if found is None:
            return self._allowances.obtain(key, partial(Allowance, terms, scope, key, self.shared))
        if found.terms is not terms:
            # A reload of the configuration has made them.
            if found.terms == terms:
                found.terms = terms
            else:
                before, found = found, Allowance(terms, scope, key, self.shared, found.running)
                for kind, share in found.shares.items():
                    if kind in before.shares:
                        share.follow(before.shares[kind])
                self._allowances[key] = found
        return found

    def _is_busy(self, allowance: Allowance) -> bool:
        return len(self._allowances) < self._most_busy and not allowance.is_full(self._clock())


def _amounts(requests: int, size: int | None) -> tuple[int, int, int]:
    """What is taken, in the order of UNITS. ``size``: of a message; None: there is none."""
    return (requests, 0, 0) if size is None else (requests, 1, size)


def _leave(allowances: Sequence[Allowance], work: Work) -> None:
    for allowance in allowances:
        allowance.running[work] -= 1


def _refusal(allowance: Allowance, index: int, wait: float) -> RateExceeded:
    bucket = allowance.buckets[index]
    assert bucket is not None
    does = ("may make", "may publish", "may publish")[index] if allowance.scope != "queue" else "takes"
    reason = f"{allowance.says} {does} {bucket.rate:.15g} {UNITS[index]} a second."
    return RateExceeded(reason=reason, retry_after=math.ceil(wait))
