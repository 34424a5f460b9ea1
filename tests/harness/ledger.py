"""A ledger of the answers that the clients of a queue got for each message, and of contradictions in them."""

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

_COPIED = 1.0
"""Seconds from the delivery of a copy until the process that made it has settled the original."""

_STORED = 0.1
"""Seconds after which a broker that has read a settle has stored it, too, if it is not killed."""


@dataclass(eq=False, slots=True)
class Handed:
    """One delivery as its client saw it; times are seconds of the ledger's clock.

    ``asked``: its receive was sent; ``read``: the answer was there; ``leased_until``: the lease cannot end before;
    ``again``: when a later delivery of the message was read; ``sent``:
    the settles so far; ``asking``: those that have no answer yet; ``copying``: those of them that may write a copy;
    ``open``: not settled, and not known to be handed out again; ``settled_at``: when the answer came that ended it.
    """

    number: int
    token: str
    asked: float
    read: float
    leased_until: float
    again: float = math.inf
    sent: list[Verb] = field(default_factory=list)
    asking: int = 0
    copying: int = 0
    open: bool = True
    final: bool = False
    settled_at: float = -math.inf

    @property
    def outdated(self) -> bool:
        """Whether the message is known to have been handed out again."""
        return self.again < math.inf

    def expired(self, now: float) -> bool:
        """Whether it is open, and its lease may have ended."""
        return self.open and self.leased_until <= now


class Ledger:
    """Every message is a number. All calls come from one event loop, so that their order is the clients' own.

    ``owned``: deliveries belong to the process that received them, and a retry is a copy. Of such a broker a message
    that was out while a process or the broker ended (see :meth:`disturbance`) is *freed*: its lease may have ended
    early. One that was then being nacked or rejected, or whose lease ran out, is *forked* besides: it may be there
    twice. Neither may be lost, and every other message is held to all the rules. Where the broker ends, this goes
    for what is settled meanwhile, or was a moment before: it answers settles for as long as its connections last, and
    its queues end before these.

    ``copies``: a dead letter is a copy that the process makes which received the message. A message that was out while
    a process or the broker ended is *orphaned*: its reject may be refused. One that was being rejected is forked.

    ``failed``: how many answers were 5xx, by their code.

    ``acks_repeat``: a second ack is done again, also by another process. ``old_receipts``: the broker settles by the
    receipt of an earlier delivery, too.
    """

    def __init__(
        self,
        lease_seconds: float,
        *,
        owned: bool,
        copies: bool = False,
        old_receipts: bool = False,
        acks_repeat: bool = True,
        clock: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self.accepted: set[int] = set()
        self.settled: defaultdict[Verb, set[int]] = defaultdict(set)
        self.told: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.wrongs: list[str] = []
        self.wronged: dict[int, None] = {}
        self.now = clock
        self.last_delivery = clock()
        self._unix = unix
        self._lease = lease_seconds
        self.owned = owned
        self._copies = copies
        self._old_receipts = old_receipts
        self._acks_repeat = acks_repeat
        self._published: set[int] = set()
        self._refused: set[int] = set()
        self._doubtful: set[int] = set()
        self._rejected: set[int] = set()
        self._handed: defaultdict[int, list[Handed]] = defaultdict(list)
        self._freed: set[int] = set()
        self._orphaned: set[int] = set()
        self._forked: set[int] = set()
        self._shaking = 0
        self._broker_ends = 0
        self._calm_since = -math.inf
        self._began = clock()
        self._stories: defaultdict[int | None, list[str]] = defaultdict(list)

    @contextmanager
    def disturbance(self, *, of_broker: bool = False) -> Iterator[None]:
        """While it lasts processes end, the broker's among them when it is ``of_broker``."""
        self._tell(None, "the broker ends" if of_broker else "a gateway ends")
        self._shaking += 1
        self._broker_ends += of_broker
        if of_broker and self.owned:
            since = self.now() - _STORED
            settled = (one for each in self._handed.values() for one in each if one.settled_at > since)
            self._forked.update(one.number for one in settled)
        self._shake()
        try:
            yield
        finally:
            self._shake()
            self._shaking -= 1
            self._broker_ends -= of_broker
            self._calm_since = self.now()
            self._tell(None, "that is over")

    def story(self, number: int) -> str:
        """The answers about a message and the disturbances, with seconds since the start of the ledger."""
        told = self._stories[number] + self._stories[None]
        return "; ".join(sorted(told, key=lambda line: float(line.partition(" ")[0])))

    def _shake(self) -> None:
        out = [one for each in self._handed.values() for one in each if one.open or one.asking]
        if self._copies:
            self._orphaned.update(one.number for one in out)
            self._forked.update(one.number for one in out if "reject" in one.sent)
        if self.owned:
            self._freed.update(one.number for one in out)
            expired = (one for one in out if one.expired(self.now()))
            self._forked.update(one.number for one in (*expired, *(one for one in out if one.copying)))
            # The original may still be there for a moment when its copy is delivered.
            since = self.now() - _COPIED
            every = (one for each in self._handed.values() for one in each)
            self._forked.update(one.number for one in every if since < one.again < math.inf)

    def published(self, number: int, status: int | None) -> None:
        """The answer to a publish: a status, or None where there was none."""
        self._published.add(number)
        self.told[f"publish {status}"] += 1
        self._tell(number, f"publish {status}")
        if status == 201:
            self.accepted.add(number)
        elif status in (429, 503):
            self._refused.add(number)
        elif status not in (None, 504):
            self._wrong(number, f"its publish was answered with {status}")

    def handed(self, number: int, token: str, asked: float, expires_at: float) -> Handed:
        """A delivery was read. ``asked``: when its receive was sent; ``expires_at``: Unix seconds, as told with it.

        A lease counts from the reserve, which may have begun for somebody else, and before this receive: so it can end
        before one that counts from that.
        """
        now = self.last_delivery = self.now()
        self.told["delivery"] += 1
        left = expires_at - self._unix()
        self._tell(number, f"delivered, asked for {now - asked:.3f} s before, {left:.3f} s left, {token[-12:]}")
        if self._old_receipts and self._handed[number]:
            # A settle by an old receipt may do anything to the message.
            for several in (self._freed, self._forked, self._orphaned):
                several.add(number)
        if self._shaking or asked <= self._calm_since:
            if self.owned:
                self._freed.add(number)
            if self._copies:
                self._orphaned.add(number)
        if number in self._refused:
            self._wrong(number, "delivered, though its publish was refused")
        for old in self._handed[number]:
            if old.read < asked:
                if self.owned and self._shaking and old.expired(now):
                    self._forked.add(number)
                old.again, old.open = min(old.again, now), False
            # An answer that was on its way for longer than its lease may tell of what was before.
            if asked + self._lease <= old.read:
                continue
            if old.final:
                self._wrong(number, "delivered again after it was settled for good", self._forked)
            elif not set(old.sent) - {"extend"} and now < old.leased_until:
                left = old.leased_until - now
                self._wrong(number, f"delivered twice, {left:.3f} s before a lease ends", self._freed)
        until = min(asked + self._lease, now + left) - _ROUNDING
        delivery = Handed(number, token, asked, now, until)
        self._handed[number].append(delivery)
        return delivery

    def sending(self, handed: Handed, verb: Verb) -> Callable[[int | None], Outcome]:
        """A settle is about to be sent; the result takes the status of its answer (None: no answer)."""
        number, sent_at = handed.number, self.now()
        # Repeated, an ack that was done is done again; another verb may be told either.
        judged = not set(handed.sent) - {"extend", *(["ack"] if verb == "ack" else [])}
        stale = judged and handed.again < sent_at
        handed.sent.append(verb)
        self._tell(number, f"{verb} sent, {handed.token[-12:]}")
        if verb == "reject":
            self._rejected.add(number)
            if self._copies and self._shaking:
                self._forked.add(number)
        copying = verb in ("nack", "reject")
        handed.copying += copying
        handed.asking += 1
        if self.owned and self._shaking:
            self._freed.add(number)
            if copying:
                self._forked.add(number)

        def answered(status: int | None) -> Outcome:
            outcome: Outcome = "settled" if status == 200 else "lost" if status == 409 else "unknown"
            self.told[f"{'stale ' if stale else ''}{verb} {outcome}"] += 1
            self._tell(number, f"{'stale ' if stale else ''}{verb} {outcome} by {status}, {handed.token[-12:]}")
            left = handed.leased_until - self.now()
            handed.copying -= copying
            handed.asking -= 1
            if status not in (200, 409, 503, 504, None):
                self._wrong(number, f"its {verb} was answered with {status}")
            elif outcome == "settled" and stale:
                self._wrong(
                    number, f"{verb}: done by the token of a lease that somebody else has had since", self._forked
                )
            elif outcome == "lost" and judged and left > 0:
                pardoned = self._orphaned if verb == "reject" else self._freed
                if not self._acks_repeat and handed.sent.count("ack") > 1:
                    pardoned = {number}
                self._wrong(number, f"{verb}: lease lost {left:.3f} s before its end", self._freed | pardoned)
            if outcome == "settled":
                self.settled[verb].add(number)
                if verb == "extend":
                    handed.leased_until = sent_at + self._lease - _ROUNDING
                else:
                    handed.open, handed.final, handed.settled_at = False, verb != "nack", self.now()
                    if self.owned and self._broker_ends:
                        self._forked.add(number)
            elif outcome == "unknown" and verb == "ack":
                self._doubtful.add(number)
            return outcome

        return answered

    def verdict(self, dead: Sequence[int]) -> list[str]:
        """All contradictions; empty when all is well. Call it when the queue is empty.

        ``dead``: the numbers of the dead letters.
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
            self.wronged[number] = None

    def _tell(self, number: int | None, what: str) -> None:
        self._stories[number].append(f"{self.now() - self._began:08.3f} {what}")
