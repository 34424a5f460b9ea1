"""Writes records anew that the broker would drop after another delivery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from app.brokers.kafka.errors import translate
from app.brokers.kafka.message import NO_KEY_OR_HEADERS, Written
from app.brokers.kafka.publish import KafkaProducer
from app.brokers.kafka.share_topic import ShareRecord
from app.errors import BabelgateError, BrokerRejected

_AT_ONCE = 8
"""The broker locks whole batches of a producer. Those of copies are small, so that the next load is."""

_AGAIN_SECONDS = 1.0


async def renewed(
    producer: KafkaProducer, broker: str, records: Sequence[ShareRecord], until: float
) -> AsyncIterator[tuple[ShareRecord, BabelgateError | None]]:
    """Each record, once a copy of it is confirmed at the end of its topic, or with the error of the last attempt.

    Value, key and headers are kept byte for byte; a copy is dated with the time of its write. What may pass is tried
    again until ``until``, a time of the loop. A copy whose write has no answer may be in the log twice.
    """
    loop = asyncio.get_running_loop()
    left = list(records)
    while left:
        several = left[:_AT_ONCE]
        failures: list[BabelgateError | None]
        try:
            results = await producer.send([_copy(each) for each in several])
            failures = [None if each is None else translate(each, broker, written=True) for each in results]
        except BabelgateError as error:
            failures = [error] * len(several)
        again = []
        for record, failure in zip(several, failures, strict=True):
            if failure is None or isinstance(failure, BrokerRejected) or loop.time() + _AGAIN_SECONDS > until:
                yield record, failure
            else:
                again.append(record)
        left = left[_AT_ONCE:] + again
        if again:
            await asyncio.sleep(_AGAIN_SECONDS)


def _copy(record: ShareRecord) -> Written:
    message = record.message
    headers = list(message.headers() or NO_KEY_OR_HEADERS)
    return Written(str(message.topic()), message.value(), message.key(), headers)
