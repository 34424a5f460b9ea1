"""What the clients of a queue were told, message by message, and what of it cannot be true."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["ack", "nack", "reject", "extend"]
Outcome = Literal["settled", "lost", "unknown"]
"""What became of a settle: 200; 409; no answer, 503 or 504."""

_ROUNDING = 0.005
"""Seconds that a lease may seem short: brokers count milliseconds on a clock of their own."""


@dataclass(eq=False, slots=True)
class Handed:
    """One delivery as its client saw it; times are seconds of the ledger's clock.

    ``asked``: its receive was sent; ``read``: the answer was there; ``leased_until``: the lease cannot end before;
    ``again``: when a later delivery of the message was read; ``sent``: the settles so far; ``copying``: those that may
    write a copy and have no answer yet; ``open``: not settled, and not known to be handed out again.
    """

    number: int
    token: str
    asked: float
    read: float
    leased_until: float
    again: float = math.inf
    sent: list[Verb] = field(default_factory=list)
    copying: int = 0
    open: bool = True
    final: bool = False

    @property
    def outdated(self) -> bool:
        """Whether the message is known to have been handed out again."""
        return self.again < math.inf


class Ledger:
    """Every message is a number. All calls come from one event loop, so that their order is the clients' own.

    ``owned``: deliveries belong to the process that received them, and a retry is a copy. Of such a broker a message
    that was out while a process or the broker ended (see :meth:`disturbance`) is *freed*: its lease may have ended
    early. One that was then being nacked or rejected, or whose lease ran out, is *forked* besides: it may be there
    twice. Neither may be lost, and every other message is held to all the rules.
    """

    def __init__(self, lease_seconds: float, *, owned: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.accepted: set[int] = set()
        self.settled: defaultdict[Verb, set[int]] = defaultdict(set)
        self.told: Counter[str] = Counter()
        self.wrongs: list[str] = []
        self.now = clock
        self.last_delivery = clock()
        self._lease = lease_seconds
        self._owned = owned
        self._published: set[int] = set()
        self._refused: set[int] = set()
        self._doubtful: set[int] = set()
        self._rejected: set[int] = set()
        self._handed: defaultdict[int, list[Handed]] = defaultdict(list)
        self._freed: set[int] = set()
        self._forked: set[int] = set()
        self._shaking = 0
        self._calm_since = -math.inf

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """While it lasts processes end."""
        self._shaking += 1
        self._shake()
        try:
            yield
        finally:
            self._shake()
            self._shaking -= 1
            self._calm_since = self.now()

    def _shake(self) -> None:
        out = [one for each in self._handed.values() for one in each if one.open] if self._owned else []
        self._freed.update(one.number for one in out)
        self._forked.update(one.number for one in out if one.copying or one.leased_until <= self.now())

    def published(self, number: int, status: int | None) -> None:
        """The answer to a publish: a status, or None where there was none."""
        self._published.add(number)
        self.told[f"publish {status}"] += 1
        if status == 201:
            self.accepted.add(number)
        elif status in (429, 503):
            self._refused.add(number)
        elif status not in (None, 504):
            self._wrong(number, f"its publish was answered with {status}")

    def handed(self, number: int, token: str, asked: float) -> Handed:
        """A delivery was read. ``asked``: when its receive was sent."""
        now = self.last_delivery = self.now()
        self.told["delivery"] += 1
        if self._owned and (self._shaking or asked <= self._calm_since):
            self._freed.add(number)
        if number in self._refused:
            self._wrong(number, "delivered, though its publish was refused")
        for old in self._handed[number]:
            if old.read < asked:
                old.again, old.open = min(old.again, now), False
            # An answer that was on its way for longer than its lease may tell of what was before.
            if asked + self._lease <= old.read:
                continue
            if old.final:
                self._wrong(number, "delivered again after it was settled for good", self._forked)
            elif not set(old.sent) - {"extend"} and now < old.leased_until:
                left = old.leased_until - now
                self._wrong(number, f"delivered twice, {left:.3f} s before a lease ends", self._freed)
        delivery = Handed(number, token, asked, now, asked + self._lease - _ROUNDING)
        self._handed[number].append(delivery)
        return delivery

    def sending(self, handed: Handed, verb: Verb) -> Callable[[int | None], Outcome]:
        """A settle is about to be sent; the result takes the status of its answer (None: no answer)."""
        number, sent_at = handed.number, self.now()
        # Repeated, an ack that was done is done again; another verb may be told either.
        judged = not set(handed.sent) - {"extend", *(["ack"] if verb == "ack" else [])}
        stale = judged and handed.again < sent_at
        handed.sent.append(verb)
        if verb == "reject":
            self._rejected.add(number)
        copying = verb in ("nack", "reject")
        handed.copying += copying
        if self._owned and self._shaking and copying:
            self._forked.add(number)

        def answered(status: int | None) -> Outcome:
            outcome: Outcome = "settled" if status == 200 else "lost" if status == 409 else "unknown"
            self.told[f"{'stale ' if stale else ''}{verb} {outcome}"] += 1
            left = handed.leased_until - self.now()
            handed.copying -= copying
            if status not in (200, 409, 503, 504, None):
                self._wrong(number, f"its {verb} was answered with {status}")
            elif outcome == "settled" and stale:
                self._wrong(
                    number, f"{verb}: done by the token of a lease that somebody else has had since", self._forked
                )
            elif outcome == "lost" and judged and left > 0:
                self._wrong(number, f"{verb}: lease lost {left:.3f} s before its end", self._freed)
            if outcome == "settled":
                self.settled[verb].add(number)
                if verb == "extend":
                    handed.leased_until = sent_at + self._lease - _ROUNDING
                else:
                    handed.open, handed.final = False, verb != "nack"
            elif outcome == "unknown" and verb == "ack":
                self._doubtful.add(number)
            return outcome

        return answered

    def verdict(self, dead: Sequence[int]) -> list[str]:
        """All that cannot be true, ``dead`` being the numbers of the dead letters; none when all is well.

        To be asked when the queue is empty.
        """
        buried = Counter(dead)
        acked, rejected = self.settled["ack"], self.settled["reject"]
        for number in self.accepted - acked - rejected - self._doubtful - buried.keys():
            self._wrong(number, "accepted, delivered and lost" if number in self._handed else "accepted and lost")
        for number in rejected - buried.keys():
            self._wrong(number, "rejected, and not among the dead letters")
        for number in buried.keys() - self._rejected:
            self._wrong(number, "among the dead letters, though nobody rejected it")
        for number in buried.keys() & acked:
            self._wrong(number, "acked, and among the dead letters", self._forked)
        for number, times in buried.items():
            if times > 1:
                self._wrong(number, f"{times} times among the dead letters", self._forked)
        for number in self._handed.keys() - self._published:
            self._wrong(number, "delivered and never published")
        return self.wrongs

    def _wrong(self, number: int, what: str, pardoned: Container[int] = ()) -> None:
        if number in pardoned:
            self.told["pardoned"] += 1
        else:
            self.wrongs.append(f"message {number}: {what}")
