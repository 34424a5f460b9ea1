"""Sends messages in native batches, several at once; those of one message group one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from babelgate.brokers.batching import batches, made_of_each, send_batches
from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.errors import too_large
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.errors import entry_error
from babelgate.brokers.sqs.message import Entry, numbered, size_of
from babelgate.brokers.sqs.queue import SqsQueue
from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from babelgate.runtime import turns

MAX_ENTRIES = 10
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html"""

MAX_CALLS = 4
"""Calls in flight of one publish or one settle. More do not raise the rate: the time goes into their CPU."""

_LEAST_SECONDS = 0.05


class _Made(NamedTuple):
    """The entry of the message at this position, with its size in bytes."""

    position: int
    entry: Entry
    size: int


async def publish(
    client: SqsClient,
    queue: SqsQueue,
    messages: Sequence[Outgoing],
    make: Callable[[SqsQueue, Outgoing], Entry],
    max_bytes: int,
) -> list[Outcome]:
    """Write ``messages``, each as ``make`` makes it; one outcome per message, in order.

    A FIFO queue gets at most one message of a group in a call. When it fails, no later message of the group is
    written, so that none overtakes it.
    """

    def made(message: Outgoing) -> tuple[Entry, int]:
        entry = make(queue, message)
        size = size_of(message, entry)
        if size > max_bytes:
            raise too_large(message, size - max_bytes, client.broker)
        return entry, size

    outcomes, entries = await made_of_each(client.broker, messages, made)
    ready = [_Made(position, *each) for position, each in entries.items()]
    if not ready:
        return outcomes
    until = asyncio.get_running_loop().time() + client.timeout_seconds
    url = await client.url(queue)
    sends = client.sends(queue)

    async def send(batch: Sequence[_Made]) -> list[Outcome]:
        try:
            async with asyncio.timeout_at(until - _LEAST_SECONDS):
                await sends.acquire()
        except TimeoutError:
            reason = f"the calls before this one took the {client.timeout_seconds:g} s of the whole publish"
            raise BrokerUnavailable(client.broker, reason) from None
        try:
            if sum(each.size for each in batch) > turns.LARGE_BYTES:
                # Encoding and signing 1 MiB takes the event loop up to 10 ms, and several calls begin at once.
                await turns.next_turn()
            return await _send(client, url, [each.entry for each in batch], until)
        finally:
            sends.release()

    if queue.fifo:
        await _send_in_order(client.broker, ready, send, max_bytes, outcomes)
        return outcomes
    parts = list(batches(ready, MAX_ENTRIES, max_bytes, [each.size for each in ready]))
    for each, outcome in zip(ready, await send_batches(parts, send, MAX_CALLS), strict=True):
        outcomes[each.position] = outcome
    return outcomes


async def _send_in_order(
    broker: str, ready: Sequence[_Made], send: Any, max_bytes: int, outcomes: list[Outcome]
) -> None:
    """Send in rounds. A round has the next message of each group whose messages were all written so far."""
    groups: dict[str, deque[_Made]] = {}
    for each in ready:
        groups.setdefault(each.entry["MessageGroupId"], deque()).append(each)
    while groups:
        heads = [waiting.popleft() for waiting in groups.values()]
        parts = list(batches(heads, MAX_ENTRIES, max_bytes, [each.size for each in heads]))
        results = await send_batches(parts, send, MAX_CALLS)
        for head, outcome in zip(heads, results, strict=True):
            outcomes[head.position] = outcome
            group = head.entry["MessageGroupId"]
            if outcome is not None:
                reason = "an earlier message of the same message group failed, so this one was not sent"
                for later in groups[group]:
                    outcomes[later.position] = BrokerUnavailable(broker, reason)
                groups[group].clear()
            if not groups[group]:
                del groups[group]


async def _send(client: SqsClient, url: str, made: Sequence[Entry], until: float) -> list[Outcome]:
    left = until - asyncio.get_running_loop().time()
    answer = await client.call("SendMessageBatch", seconds=left, QueueUrl=url, Entries=numbered(made))
    return outcomes_of(client.broker, answer, len(made))


def outcomes_of(broker: str, answer: Mapping[str, Any], count: int) -> list[Outcome]:
    """The outcomes of the ``count`` entries of a batch, by their ids."""
    missing = OutcomeUnknown(broker, "the answer does not name this entry of the batch")
    outcomes: list[Outcome] = [missing] * count
    for each in answer.get("Successful", ()):
        outcomes[int(each["Id"])] = None
    for each in answer.get("Failed", ()):
        outcomes[int(each["Id"])] = entry_error(each, broker)
    return outcomes
