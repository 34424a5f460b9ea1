"""Ends and changes leases by receipt handle, in native batches that concurrent callers share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain, islice

from msgspec import Struct
from msgspec.structs import replace

from babelgate.brokers.batcher import Batcher, Budget
from babelgate.brokers.batching import batches, send_batches
from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.errors import failure_for_each
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.message import Entry, Read, numbered
from babelgate.brokers.sqs.publish import MAX_CALLS, MAX_ENTRIES, outcomes_of
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, LeaseLost, OutcomeUnknown, UnsupportedByBroker
from babelgate.runtime.cache import Cache, Recent

MAX_LEASE_SECONDS = 43_200
"""12 hours from the first receive, all extends included:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html"""

_PROOF_SECONDS = 30
"""The visibility that proves a lease before the message is deleted."""

_LATEST_BYTES = 64 * 1024 * 1024
_RECEIPT_BYTES = 1_600
"""Most bytes of a remembered receipt. Amazon's receipt handle has at most 1,024 characters:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-message-identifiers.html"""
_MAX_BATCHERS = 10_000
_COALESCED = 20
"""The most parts, of ten entries at most, of one batch of several callers."""

_BEYOND = "beyond the limit"
"""In Amazon's error of a visibility past the 12 hours: "Total VisibilityTimeout … is beyond the limit"."""


class ReceiptHandle(Struct, frozen=True):
    """What a handle holds: the id of the message, the receipt handle, the deadline of the lease in Unix ms, and the
    number of the receive.

    Extends move the deadline; the handle stays.
    """

    message_id: str
    receipt: str
    deadline: int
    count: int

    @property
    def handle(self) -> str:
        """The text form: deadline and number in hexadecimal, message id and receipt handle."""
        return f"{self.deadline:x} {self.count:x} {self.message_id} {self.receipt}"


class _Known(Struct):
    """What this process knows of a message: its latest ``receipt`` here, whether that lease was ``ended`` here, and how
    many receives so far were given back before a consumer got the message, which are no attempts."""

    receipt: ReceiptHandle
    ended: bool = False
    given_back: int = 0


def receipt_of(handle: str) -> ReceiptHandle | None:
    """The receipt in ``handle``; None for a malformed one."""
    parts = handle.split(" ", 3)
    try:
        return ReceiptHandle(parts[2], parts[3], int(parts[0], 16), int(parts[1], 16))
    except (ValueError, IndexError):
        return None


class SqsSettler:
    """Settles the messages of one broker.

    A handle of a message that this process has received again is lost. After the deadline that this process knows, the
    lease may have been extended by another one: only a change of the visibility, which Amazon refuses for a message
    that is not in flight, proves it.
    """

    def __init__(self, client: SqsClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._latest: Cache[str, _Known] = Cache(_LATEST_BYTES, _RECEIPT_BYTES)
        self._batchers: Recent[tuple[str, str], Batcher[Sequence[Entry], Sequence[Outcome]]] = Recent(
            _MAX_BATCHERS, lambda each: each.busy
        )

    def delivery(self, found: Read, lease_seconds: int, received_at: int) -> Delivery:
        """The delivery of a message that was received at ``received_at`` (Unix ms), hidden for ``lease_seconds``.

        Amazon counts every receive. Those that this process has given back are taken off. The message has expired where
        the receive before was one of this process, whose lease has passed its deadline without a settle here.
        """
        deadline = received_at + lease_seconds * 1000
        receipt = ReceiptHandle(found.message_id, found.receipt, deadline, found.count)
        given_back, expired = 0, False
        if (before := self._latest.get(found.message_id)) is not None:
            given_back = before.given_back
            follows = found.count == before.receipt.count + 1
            expired = follows and not before.ended and before.receipt.deadline <= received_at
        self._remember(_Known(receipt, given_back=given_back))
        count = max(found.count - given_back, 1)
        return Delivery(
            found.body,
            receipt.handle,
            deadline,
            found.headers,
            count,
            count > 1,
            found.carried,
            expired=expired,
            unsupported_version=found.version,
            ordering_key=found.carried.group if found.carried is not None else None,
        )

    async def ack(self, queue: SqsQueue, handles: Sequence[str]) -> list[Outcome]:
        """Delete the messages, after a proof of the leases whose deadline has passed.

        Amazon may delete or keep a message whose lease ended meanwhile, and says in both cases that it has done it.
        """

        async def delete(receipts: Sequence[ReceiptHandle]) -> list[Outcome]:
            return await self._call("DeleteMessageBatch", queue, [{"ReceiptHandle": each.receipt} for each in receipts])

        now = self._clock()

        async def prove_and_delete(receipts: Sequence[ReceiptHandle]) -> list[Outcome]:
            late = [each for each in receipts if each.deadline <= now]
            proofs = await self._change(queue, [(each.receipt, _PROOF_SECONDS) for each in late]) if late else ()
            lost = {each: proof for each, proof in zip(late, proofs, strict=True) if proof is not None}
            alive = [each for each in receipts if each not in lost]
            done = dict(zip(alive, await delete(alive) if alive else (), strict=True))
            answered = self._clock()
            for each in alive:
                end = now + _PROOF_SECONDS * 1000 if each.deadline <= now else each.deadline
                if done[each] is None and answered > end:
                    done[each] = OutcomeUnknown(self._client.broker, "its answer came after the end of the lease")
            return [lost.get(each) or done.get(each) for each in receipts]

        return await self._each(handles, prove_and_delete)

    async def release(
        self, queue: SqsQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> list[Outcome]:
        """Show the messages again after ``delay_seconds``, rounded up to whole seconds.

        Unless it ``failed``, the receive is no attempt, also where its lease has to end by itself.
        """
        seconds = whole_seconds(delay_seconds)
        if not failed:
            # Before the message is visible: the next receive needs it.
            for handle in handles:
                self._end(handle, given_back=True)

        async def show(receipts: Sequence[ReceiptHandle]) -> list[Outcome]:
            outcomes = await self._change(queue, [(each.receipt, seconds) for each in receipts])
            return [_explain(each, "delay_too_long", "/delay_seconds") for each in outcomes]

        outcomes = await self._each(handles, show)
        for handle, outcome in zip(handles, outcomes, strict=True):
            if outcome is None:
                self._end(handle, given_back=False)
        return outcomes

    async def extend(self, queue: SqsQueue, handles: Sequence[str], lease_seconds: float) -> list[int | BabelgateError]:
        """Hide the messages for ``lease_seconds`` from now, rounded up to whole seconds; the new deadlines."""
        seconds = max(whole_seconds(lease_seconds), 1)
        deadline = self._clock() + seconds * 1000

        async def hide(receipts: Sequence[ReceiptHandle]) -> list[Outcome]:
            outcomes = await self._change(queue, [(each.receipt, seconds) for each in receipts])
            return [_explain(each, "lease_too_long", "/lease_seconds") for each in outcomes]

        outcomes = await self._each(handles, hide)
        for handle, outcome in zip(handles, outcomes, strict=True):
            if outcome is None and (found := receipt_of(handle)) is not None:
                known = self._latest.get(found.message_id)
                given_back = 0 if known is None else known.given_back
                self._remember(_Known(replace(found, deadline=deadline), given_back=given_back))
        return [deadline if each is None else each for each in outcomes]

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        for batcher in list(self._batchers.values()):
            await batcher.idle()

    async def _each(
        self, handles: Sequence[str], act: Callable[[Sequence[ReceiptHandle]], Awaitable[Sequence[Outcome]]]
    ) -> list[Outcome]:
        """One outcome per handle: LeaseLost for those that are malformed or outdated. A repeated handle acts once."""
        receipts = [self._current(handle) for handle in handles]
        unique = list(dict.fromkeys(each for each in receipts if each is not None))
        outcomes = dict(zip(unique, await act(unique) if unique else (), strict=True))
        return [LeaseLost() if each is None else outcomes[each] for each in receipts]

    def _current(self, handle: str) -> ReceiptHandle | None:
        """The receipt in ``handle`` as it is known here; None for a malformed one, or that of an earlier receive."""
        found = receipt_of(handle)
        if found is None or (known := self._latest.get(found.message_id)) is None:
            return found
        if known.receipt.receipt == found.receipt:
            return known.receipt
        return found if found.count > known.receipt.count else None

    def _remember(self, known: _Known) -> None:
        # Forgotten and kept again, because the oldest receive is to be forgotten first, not the oldest message.
        message_id = known.receipt.message_id
        self._latest.forget(message_id)
        self._latest.keep(message_id, known)

    def _end(self, handle: str, given_back: bool) -> None:
        """Note that the lease of ``handle`` ends here, once."""
        found = receipt_of(handle)
        known = self._latest.get(found.message_id) if found is not None else None
        if found is not None and known is not None and known.receipt.receipt == found.receipt and not known.ended:
            known.ended = True
            known.given_back += given_back

    async def _change(self, queue: SqsQueue, changes: Sequence[tuple[str, int]]) -> list[Outcome]:
        """Set the visibility of messages: receipt handle and seconds each."""
        entries = [{"ReceiptHandle": receipt, "VisibilityTimeout": seconds} for receipt, seconds in changes]
        return await self._call("ChangeMessageVisibilityBatch", queue, entries)

    async def _call(self, operation: str, queue: SqsQueue, entries: Sequence[Entry]) -> list[Outcome]:
        """One outcome per entry. Shares native batches with other callers."""

        def make() -> Batcher[Sequence[Entry], Sequence[Outcome]]:
            budget = Budget(self._client.broker, self._client.timeout_seconds)
            return Batcher(partial(self._write, operation, queue), _COALESCED, budget=budget)

        batcher = self._batchers.obtain((operation, queue.key), make)
        parts = list(batches(entries, MAX_ENTRIES))
        results = await asyncio.gather(*(batcher.submit(part) for part in parts))
        outcomes: list[Outcome] = []
        for part, result in zip(parts, results, strict=True):
            outcomes += failure_for_each(result, len(part)) if isinstance(result, BabelgateError) else result
        return outcomes

    async def _write(self, operation: str, queue: SqsQueue, parts: Sequence[Sequence[Entry]]) -> list[list[Outcome]]:
        url = await self._client.url(queue)

        async def write(several: Sequence[Entry]) -> list[Outcome]:
            answer = await self._client.call(operation, QueueUrl=url, Entries=numbered(several))
            return outcomes_of(self._client.broker, answer, len(several))

        calls = list(batches(chain.from_iterable(parts), MAX_ENTRIES))
        outcomes = iter(await send_batches(calls, write, MAX_CALLS))
        return [list(islice(outcomes, len(part))) for part in parts]


def whole_seconds(seconds: float) -> int:
    """``seconds`` rounded up: SQS counts whole seconds, and a message must not come too early."""
    return -int(-seconds // 1)


def _explain(outcome: Outcome, code: str, pointer: str) -> Outcome:
    if outcome is None or _BEYOND not in str(outcome):
        return outcome
    reason = "Amazon SQS hides a message for at most 12 hours after it was received, all extends included."
    return UnsupportedByBroker(code=code, pointer=pointer, reason=reason, maximum=MAX_LEASE_SECONDS)
