"""What one scope, such as an identity on a queue, may take and have: buckets of rates, and numbers at a time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

from babelgate.gateway.buckets import Bucket
from babelgate.gateway.limit_terms import RateTerms
from babelgate.gateway.shared_counts import SharedCount
from babelgate.gateway.shared_rates import SharedRates

Scope = Literal["identity", "queue", "identity-on-queue"]
Work = Literal["receives", "streams"]
Running = Literal[Work, "leases"]
Key = tuple[str, str]
UNITS = ("requests", "messages", "bytes")
AT_A_TIME: tuple[Running, ...] = ("receives", "streams", "leases")

_QUOTA_UNITS = (b"requests", b"messages", b"content-bytes")
"""The units in the fields of answers. The draft has no unit of messages."""


class Allowance:
    """The buckets of one scope, in the order of UNITS; None: no limit. ``says``: the beginning of a refusal.
    ``running``: the receives, streams and leases of this process. ``shares``: those of its share in what all processes
    may have; empty: it counts for itself. ``terms``: what is configured."""

    __slots__ = ("_limited", "_state", "buckets", "policy", "running", "says", "scope", "shares", "terms")

    def __init__(
        self,
        terms: RateTerms,
        scope: Scope,
        key: Key = ("", ""),
        shared: SharedRates | None = None,
        running: Counter[Running] | None = None,
    ) -> None:
        """``key``: identity and queue. ``shared``: None if this process counts for itself. ``running``: what the scope
        has already."""
        rates = terms.requests_per_second, terms.messages_per_second, terms.bytes_per_second
        self.buckets = tuple(
            None
            if rate is None
            else Bucket(rate, max(rate * terms.burst_seconds, 1.0))
            if shared is None
            else shared.bucket(f"{scope}-{unit}", key, rate, max(rate * terms.burst_seconds, 1.0))
            for rate, unit in zip(rates, UNITS, strict=True)
        )
        self._limited = [bucket for bucket in self.buckets if bucket is not None]
        policies = [
            _policy(f"{scope}-{unit}", bucket, quota_unit)
            for bucket, unit, quota_unit in zip(self.buckets, UNITS, _QUOTA_UNITS, strict=True)
            if bucket is not None
        ]
        states = [b"%b;r=%%d;t=%%d" % name for name, _ in policies]
        if terms.max_leases is not None:
            name = b'"%b-leases"' % scope.encode("ascii")
            policies.append((name, b'%b;q=%d;qu="leases"' % (name, terms.max_leases)))
            states.append(b"%b;r=%%d" % name)
        self.policy = b", ".join([described for _, described in policies])
        """Its part of the field RateLimit-Policy; empty: it has none."""
        self._state = b", ".join(states)
        identity, queue = key
        self.says = f"The queue {queue!r}" if scope == "queue" else f"The identity {identity!r}"
        if scope == "identity-on-queue":
            self.says += f", on the queue {queue!r},"
        self.scope = scope
        self.terms = terms
        self.running: Counter[Running] = Counter() if running is None else running
        self.shares: dict[Running, SharedCount] = {}
        for kind in AT_A_TIME if shared is not None else ():
            if shared is not None and (most := terms.most(kind)) is not None:
                self.shares[kind] = shared.count(f"{scope}-{kind}", key, most, self.running, kind)

    def allows(self, now: float, requests: int, size: int | None) -> bool:
        """Whether this number of ``requests``, and a message of ``size`` bytes if there is one, can be taken now."""
        of_requests, of_messages, of_bytes = self.buckets
        if of_requests is not None and requests and of_requests.wait(now, requests):
            return False
        if size is None:
            return True
        most = self.terms.max_message_bytes
        if most is not None and size > most:
            return False
        if of_messages is not None and of_messages.wait(now, 1):
            return False
        return of_bytes is None or not size or not of_bytes.wait(now, size)

    def take(self, now: float, requests: int, size: int | None) -> None:
        """Take them, whether or not they are there."""
        of_requests, of_messages, of_bytes = self.buckets
        if of_requests is not None and requests:
            of_requests.take(now, requests)
        if size is not None:
            if of_messages is not None:
                of_messages.take(now, 1)
            if of_bytes is not None and size:
                of_bytes.take(now, size)

    def state(self, now: float) -> bytes:
        """Its part of the field RateLimit."""
        values: list[int] = []
        for bucket in self._limited:
            values += bucket.state(now)
        if self.terms.max_leases is not None:
            values.append(max(self.terms.max_leases - self.total("leases"), 0))
        return self._state % tuple(values)

    def room(self, kind: Running) -> int | None:
        """How many receives, streams or leases this process may have beside those it has; None: any number."""
        most = self.terms.most(kind)
        if most is None:
            return None
        share = self.shares.get(kind)
        return (most if share is None else share.ceiling()) - self.running[kind]

    def total(self, kind: Running) -> int:
        """How many there are, as far as this process knows."""
        share = self.shares.get(kind)
        return self.running[kind] if share is None else share.total

    def is_busy_with(self, work: Work) -> bool:
        """Whether it has as many receives or streams as it may."""
        room = self.room(work)
        return room is not None and room <= 0

    def is_full(self, now: float) -> bool:
        """Whether nothing would be forgotten with it."""
        return not any(self.running.values()) and all(
            bucket is None or bucket.full_in(now) <= 0 for bucket in self.buckets
        )


def _policy(name: str, bucket: Bucket, unit: bytes) -> tuple[bytes, bytes]:
    """The name of a limit as a string of a structured field, and the item that describes it."""
    quoted = b'"%b"' % name.encode("ascii")
    window = math.ceil(bucket.capacity / bucket.rate)
    return quoted, b'%b;q=%d;w=%d;qu="%b"' % (quoted, bucket.capacity, window, unit)
