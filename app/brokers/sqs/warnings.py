"""Warns about the set-up of queues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from app.brokers.sqs.client import SqsClient
from app.brokers.sqs.queue import SqsQueue
from app.errors import BabelgateError

_MAX_WARNED = 50
"""How many of the queues in use are checked."""

_POLICY = (
    "The queue {queue} has a redrive policy: Amazon SQS itself moves a message to {target} at its receive number "
    "{count}, also before max_attempts of its route is reached."
)


async def warnings_of(client: SqsClient, queues: Sequence[SqsQueue]) -> list[str]:
    """Warnings about ``queues``, of which at most 50 are checked. Raises BrokerUnavailable."""
    found = await asyncio.gather(*(_of_queue(client, queue) for queue in queues[:_MAX_WARNED]))
    return [each for each in found if each is not None]


async def _of_queue(client: SqsClient, queue: SqsQueue) -> str | None:
    url = await client.existing_url(queue)
    if url is None:
        return None
    try:
        answer = await client.call("GetQueueAttributes", writes=False, QueueUrl=url, AttributeNames=["RedrivePolicy"])
        policy = json.loads(answer.get("Attributes", {}).get("RedrivePolicy", "{}"))
        count, target = int(policy["maxReceiveCount"]) + 1, str(policy["deadLetterTargetArn"]).rpartition(":")[2]
    except (BabelgateError, KeyError, ValueError):
        return None
    return _POLICY.format(queue=queue.name, target=target, count=count)
