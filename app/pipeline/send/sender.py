"""Sends messages in batches until each has its outcome: at a pace, again after trouble, as long as it is of use."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.pipeline.send.gateway import TOO_LARGE, Busy, GatewayClient, GatewayRefusal, Outcome, Target

_BATCH_MESSAGES = 500
"""So many the gateway publishes at once; beyond that a larger request gains nothing."""
_BATCH_BYTES = 1_048_576
_LONG_SECONDS = 1.0
_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 30.0

Clock = Callable[[], float]


class StoredMessage(NamedTuple):
    """One to send, as an entry of a batch; ``tries``: the requests that have carried it."""

    identity: str
    queue: str
    key: str
    entry: bytes
    tries: int = 0


class Sender:
    """Sends to one gateway, a request at a time. Not for several threads."""

    def __init__(
        self,
        target: Target,
        settled: Callable[[StoredMessage, Outcome], None],
        *,
        rate: float | None,
        give_up_seconds: float,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """``settled`` is told every message's outcome, once; ``rate``: messages a second; ``before_waiting`` is called
        before a wait of a second or longer."""
        self.refused: GatewayRefusal | None = None
        """The gateway takes no request like these; nothing more is sent."""
        self._settled = settled
        self._before_waiting = before_waiting
        self._gateway = GatewayClient(target)
        self._pace = RateLimit(rate)
        self._circuit = CircuitBreaker(give_up_seconds)
        self._most = _BATCH_MESSAGES if rate is None else max(1, min(_BATCH_MESSAGES, int(rate)))
        self._held: list[StoredMessage] = []
        self._bytes = 0
        self._most_bytes = _BATCH_BYTES
        self._in_progress: list[StoredMessage] = []
        self._trouble = Outcome("left", None)

    def add(self, message: StoredMessage) -> None:
        """Take a message; a full batch is sent."""
        if self._held and (
            self._held[0].queue != message.queue
            or len(self._held) >= self._most
            or self._bytes + len(message.entry) > self._most_bytes
        ):
            self._flush()
        self._held.append(message)
        self._bytes += len(message.entry)

    def finish(self) -> None:
        """Send the rest, and what was under way elsewhere."""
        self._flush()
        while self._in_progress:
            waiting, self._in_progress = self._in_progress, []
            self._wait(self._circuit.failed())
            for queue in dict.fromkeys(each.queue for each in waiting):
                self._deliver([each for each in waiting if each.queue == queue])

    def close(self) -> None:
        """Close the connection."""
        self._gateway.close()

    def _flush(self) -> None:
        held, self._held, self._bytes = self._held, [], 0
        self._deliver(held)

    def _deliver(self, messages: Sequence[StoredMessage]) -> None:
        """Send messages of one queue until each has its outcome, is under way elsewhere, or the time is over."""
        pending = list(messages)
        while pending and not self._circuit.is_open and self.refused is None:
            self._wait(self._pace.seconds(len(pending)))
            answer = self._gateway.send(pending[0].queue, [each.entry for each in pending])
            pending = [each._replace(tries=each.tries + 1) for each in pending]
            if isinstance(answer, list):
                pending = self._judge(pending, answer)
                continue
            self._trouble = Outcome("left", answer.http_status, answer.code)
            if isinstance(answer, Busy):
                self._wait(self._circuit.failed(answer.retry_after))
            elif answer.http_status == TOO_LARGE:
                self._divide(pending, answer)
                return
            else:
                self.refused = answer
        for each in pending:
            self._settled(each, self._trouble)

    def _divide(self, messages: Sequence[StoredMessage], answer: GatewayRefusal) -> None:
        """Send in two parts what is too large for whoever stands before the gateway, or for its own limit."""
        if len(messages) == 1:
            self._settled(messages[0], Outcome("rejected", answer.http_status, answer.code))
            return
        self._most_bytes = min(self._most_bytes, sum(len(each.entry) for each in messages) // 2)
        middle = len(messages) // 2
        self._deliver(messages[:middle])
        self._deliver(messages[middle:])

    def _judge(self, messages: Sequence[StoredMessage], outcomes: Sequence[Outcome]) -> list[StoredMessage]:
        """Tell of what is settled; what is to be sent again, after a while."""
        again: list[StoredMessage] = []
        before = len(messages)
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome.status != "left":
                self._settled(message, outcome)
                before -= 1
                continue
            self._trouble = outcome
            (self._in_progress if outcome.code == "idempotency_in_progress" else again).append(message)
        if before < len(messages):
            self._circuit.succeeded()
        if again:
            self._wait(self._circuit.failed())
        return again

    def _wait(self, seconds: float) -> None:
        if seconds >= _LONG_SECONDS:
            self._before_waiting()
        if seconds > 0:
            time.sleep(seconds)


class RateLimit:
    """At most ``rate`` messages a second; None: as fast as they are taken. ``clock``: seconds, from any beginning."""

    def __init__(self, rate: float | None, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._free_at = 0.0

    def seconds(self, count: int) -> float:
        """How long to wait before ``count`` messages are sent, which then count as sent."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        begin = max(now, self._free_at)
        self._free_at = begin + count / self._rate
        return begin - now


class CircuitBreaker:
    """Opens when nothing got through for ``give_up_seconds``, however often it was tried, and stays open."""

    def __init__(self, give_up_seconds: float, clock: Clock = time.monotonic) -> None:
        self._give_up = give_up_seconds
        self._clock = clock
        self._failing_since: float | None = None
        self._failures = 0
        self.is_open = False

    def succeeded(self) -> None:
        """Something got through."""
        self._failing_since, self._failures = None, 0

    def failed(self, retry_after: float | None = None) -> float:
        """Nothing did. How long to wait before the next try, in seconds, of which no two tasks wait the same; 0 when
        the circuit is open."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + self._give_up - now
        told = retry_after or 0.0
        if left <= 0 or told > left:
            self.is_open = True
            return 0.0
        own = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0**self._failures) * random.uniform(0.5, 1.5)
        self._failures += 1
        # The last try is made when the time is over.
        return max(min(own, left), told * random.uniform(1.0, 1.25))
