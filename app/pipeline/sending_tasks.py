"""The task that sends: messages in, requests to the gateway, lines of the ledger, and counts out.

A task that Spark runs a second time sends everything once more, under the same keys: the gateway answers what it
answered the first time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from app.pipeline.sending_bodies import Changes, Unsendable, entry, key_after, key_of, outgoing
from app.pipeline.sending_http import Busy, Gateway, Outcome, Refused, Target
from app.pipeline.sending_ledger import Line, Pieces
from app.pipeline.sending_pace import Circuit, Pace

COUNTS = {"status": "string", "code": "string", "detail": "string", "n": "bigint"}
"""What a task returns. ``detail``: of a gateway that takes no request, in words."""
STOPPED = "stopped"
"""The status of the row that tells of it."""

_BATCH_MESSAGES = 500
"""So many the gateway publishes at once; beyond that a larger request gains nothing."""
_BATCH_BYTES = 1_048_576
_FLUSH_BEFORE_SECONDS = 1.0


class Sending(NamedTuple):
    """What every task of a run is told. ``rate``: messages a second of this task; ``pieces``: URL of its folder."""

    run: str
    target: Target
    changes: Changes
    pieces: str
    rate: float | None
    give_up_seconds: float


class Message(NamedTuple):
    """One to send, as an entry of a batch."""

    identity: str
    queue: str
    key: str
    entry: bytes
    tries: int = 0


def send(batches: Iterable[Any], sending: Sending) -> Iterator[Any]:
    """For ``mapInArrow``: rows (identity, target_queue, was, under, body) are sent; rows of COUNTS are returned.

    ``was`` and ``under``: what the ledger tells of the message, its status and its key; null where it tells nothing.
    """
    import pyarrow as pa

    from app.pipeline.arrow import schema

    task = _Task(sending)
    try:
        for batch in batches:
            for identity, queue, was, under, body in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                key = under or key_of(sending.run, queue, identity)
                task.add(identity, queue, key_after(key) if was == "unknown" else key, body)
        task.finish()
    finally:
        task.close()
    rows = [{"status": status, "code": code, "n": n} for (status, code), n in task.counts.items()]
    if task.refused is not None:
        http_status, code, detail = task.refused
        rows.append({"status": STOPPED, "code": code, "detail": detail, "n": http_status})
    yield pa.RecordBatch.from_pylist(rows, schema=schema(COUNTS))


class _Task:
    def __init__(self, sending: Sending) -> None:
        self.counts: Counter[tuple[str, str | None]] = Counter()
        self.refused: Refused | None = None
        self._sending = sending
        self._gateway = Gateway(sending.target)
        self._pieces = Pieces(sending.pieces)
        self._pace = Pace(sending.rate)
        self._circuit = Circuit(sending.give_up_seconds)
        self._held: list[Message] = []
        self._bytes = 0
        self._most = _BATCH_MESSAGES if sending.rate is None else max(1, min(_BATCH_MESSAGES, int(sending.rate)))
        self._in_progress: list[Message] = []
        self._trouble: Outcome | None = None

    def add(self, identity: str, queue: str, key: str, body: bytes | None) -> None:
        """Take a message; a full batch is sent."""
        try:
            text = entry(outgoing(body, queue, self._sending.changes), key)
        except Unsendable as error:
            self._settle(Message(identity, queue, key, b""), Outcome("rejected", None, error.code))
            return
        if self._held and (
            self._held[0].queue != queue or len(self._held) >= self._most or self._bytes + len(text) > _BATCH_BYTES
        ):
            self._flush()
        self._held.append(Message(identity, queue, key, text))
        self._bytes += len(text)

    def finish(self) -> None:
        """Send the rest, and what was under way elsewhere."""
        self._flush()
        while self._in_progress:
            waiting, self._in_progress = self._in_progress, []
            # No other message gets through meanwhile, which is no trouble of the gateway's until the time is over.
            self._wait(self._circuit.failed())
            for queue in dict.fromkeys(each.queue for each in waiting):
                self._deliver([each for each in waiting if each.queue == queue])

    def close(self) -> None:
        """Write down what is known."""
        self._pieces.flush()
        self._gateway.close()

    def _flush(self) -> None:
        held, self._held, self._bytes = self._held, [], 0
        self._deliver(held)

    def _deliver(self, messages: Sequence[Message]) -> None:
        """Send messages of one queue until each has its outcome, is under way elsewhere, or the time is over."""
        pending = list(messages)
        while pending and not self._circuit.is_open and self.refused is None:
            self._wait(self._pace.seconds(len(pending)))
            answer = self._gateway.send(pending[0].queue, [each.entry for each in pending])
            pending = [each._replace(tries=each.tries + 1) for each in pending]
            if isinstance(answer, Refused):
                self.refused = answer
                self._trouble = Outcome("left", answer.http_status, answer.code)
            elif isinstance(answer, Busy):
                self._trouble = Outcome("left", answer.http_status, answer.code)
                self._wait(self._circuit.failed(answer.retry_after))
            else:
                pending = self._judge(pending, answer)
        for each in pending:
            self._settle(each, self._trouble or Outcome("left", None))

    def _judge(self, messages: Sequence[Message], outcomes: Sequence[Outcome]) -> list[Message]:
        """Settle what is settled; what is to be sent again, after a while."""
        again, retry_after = [], None
        settled = False
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome.code == "idempotency_in_progress":
                self._in_progress.append(message)
                self._trouble = outcome
            elif outcome.status == "left":
                again.append(message)
                self._trouble = outcome
                retry_after = 1.0
            else:
                self._settle(message, outcome)
                settled = True
        if settled:
            self._circuit.succeeded()
        if again:
            self._wait(self._circuit.failed(retry_after))
        return again

    def _settle(self, message: Message, outcome: Outcome) -> None:
        self.counts[outcome.status, outcome.code] += 1
        at = time.time_ns() // 1_000_000
        identity, queue, key, _, tries = message
        status, http_status, code = outcome
        self._pieces.add(Line(self._sending.run, identity, key, queue, status, code, http_status, tries, at))

    def _wait(self, seconds: float) -> None:
        if seconds >= _FLUSH_BEFORE_SECONDS:
            self._pieces.flush()
        if seconds > 0:
            time.sleep(seconds)
