"""Sends messages in batches until each has an outcome, with a rate limit, back-off and a circuit breaker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from babelgate.pipeline.send.gateway import TOO_LARGE, Busy, GatewayClient, GatewayRefusal, Outcome, Target

_BATCH_MESSAGES = 500
"""Messages per request; larger requests gain nothing, because the gateway publishes this many at once."""
_BATCH_BYTES = 1_048_576
_LONG_SECONDS = 1.0
_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 30.0

Clock = Callable[[], float]


class StoredMessage(NamedTuple):
    """A message to send, with its batch entry. ``tries``: requests that have carried it."""

    identity: str
    queue: str
    key: str
    entry: bytes
    tries: int = 0


class Sender:
    """Sends to one gateway, one request at a time. Not thread-safe."""

    def __init__(
        self,
        target: Target,
        settled: Callable[[StoredMessage, Outcome], None],
        *,
        rate: float | None,
        give_up_seconds: float,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """``settled`` is called once per message with its outcome; ``rate``: messages/s, None: no bound;
        ``before_waiting`` is called before each wait of 1 s or longer."""
        self.refused: GatewayRefusal | None = None
        """Set when the gateway refuses requests like these; nothing more is sent then."""
        self._settled = settled
        self._before_waiting = before_waiting
        self._gateway = GatewayClient(target)
        self._rate_limit = RateLimit(rate)
        self._circuit = CircuitBreaker(give_up_seconds)
        self._most = _BATCH_MESSAGES if rate is None else max(1, min(_BATCH_MESSAGES, int(rate)))
        self._batch: list[StoredMessage] = []
        self._bytes = 0
        self._most_bytes = _BATCH_BYTES
        self._in_progress: list[StoredMessage] = []
        self._trouble = Outcome("left", None)

    def add(self, message: StoredMessage) -> None:
        """Add a message to the batch. A full batch is sent first, which blocks until it has outcomes."""
        if self._batch and (
            self._batch[0].queue != message.queue
            or len(self._batch) >= self._most
            or self._bytes + len(message.entry) > self._most_bytes
        ):
            self._flush()
        self._batch.append(message)
        self._bytes += len(message.entry)

    def finish(self) -> None:
        """Send the rest, and retry messages whose key another request is using."""
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
        batch, self._batch, self._bytes = self._batch, [], 0
        self._deliver(batch)

    def _deliver(self, messages: Sequence[StoredMessage]) -> None:
        """Send messages of one queue until each has an outcome, its key is in use elsewhere, or the circuit opens."""
        pending = list(messages)
        while pending and not self._circuit.is_open and self.refused is None:
            self._wait(self._rate_limit.seconds(len(pending)))
            answer = self._gateway.send(pending[0].queue, [each.entry for each in pending])
            pending = [each._replace(tries=each.tries + 1) for each in pending]
            if isinstance(answer, list):
                pending = self._settle_results(pending, answer)
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
        """Send a request that is too large (413) in two halves. A single message that is too large is rejected."""
        if len(messages) == 1:
            self._settled(messages[0], Outcome("rejected", answer.http_status, answer.code))
            return
        self._most_bytes = min(self._most_bytes, sum(len(each.entry) for each in messages) // 2)
        middle = len(messages) // 2
        self._deliver(messages[:middle])
        self._deliver(messages[middle:])

    def _settle_results(self, messages: Sequence[StoredMessage], outcomes: Sequence[Outcome]) -> list[StoredMessage]:
        """Report final outcomes. Returns the messages to send again, after the back-off."""
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
    """Limits to ``rate`` messages/s; None: no limit. ``clock``: seconds, from any origin."""

    def __init__(self, rate: float | None, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._free_at = 0.0

    def seconds(self, count: int) -> float:
        """Count ``count`` messages as sent. Returns the seconds to wait before sending them."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        begin = max(now, self._free_at)
        self._free_at = begin + count / self._rate
        return begin - now


class CircuitBreaker:
    """Opens after ``give_up_seconds`` without any success, and stays open. Computes the back-off until then."""

    def __init__(self, give_up_seconds: float, clock: Clock = time.monotonic) -> None:
        self._give_up = give_up_seconds
        self._clock = clock
        self._failing_since: float | None = None
        self._failures = 0
        self.is_open = False

    def succeeded(self) -> None:
        """Reset after a success."""
        self._failing_since, self._failures = None, 0

    def failed(self, retry_after: float | None = None) -> float:
        """Count a failure. Returns the seconds to wait before the next attempt, randomised; 0 if the circuit opens.

        ``retry_after``: seconds that the gateway requests; a longer wait than is left opens the circuit.
        """
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + self._give_up - now
        requested = retry_after or 0.0
        if left <= 0 or requested > left:
            self.is_open = True
            return 0.0
        own = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0**self._failures) * random.uniform(0.5, 1.5)
        self._failures += 1
        # The last attempt is made when the time is over.
        return max(min(own, left), requested * random.uniform(1.0, 1.25))
