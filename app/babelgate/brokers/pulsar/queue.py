"""One queue as this process receives from it and settles its deliveries; it rests when no call uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.errors import translating
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.consumer import Handle, Taken, TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import translate
from babelgate.brokers.pulsar.receive import PermitReceiver
from babelgate.brokers.pulsar.settle import Publish, QueueSettler
from babelgate.brokers.pulsar.url import PulsarQueue
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks

_LINGER_SECONDS = 0.25
"""How long consumers are kept when no receive waits and nothing is leased, because most clients wait again."""

_throttled = LogThrottle(get_logger(__name__))


class ReceivingQueue:
    """One queue. When no receive waits any more, untaken messages are given back, and idle consumers end."""

    def __init__(self, client: PulsarClient, queue: PulsarQueue, publish: Publish) -> None:
        self._consumers = QueueConsumers(client, queue, self._rest_later)
        self._receiver = PermitReceiver(self._consumers)
        self._settler = QueueSettler(self._consumers, publish)
        self._timer: asyncio.TimerHandle | None = None
        self._background: BackgroundTasks[None] = BackgroundTasks()

    @property
    def is_idle(self) -> bool:
        """Whether it has no consumers and no waiting receive."""
        return not self._consumers.by_number and not self._consumers.waiting

    async def reserve(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`babelgate.brokers.pulsar.receive.PermitReceiver.reserve`."""
        try:
            return await self._receiver.reserve(limit, wait_seconds)
        finally:
            self._rest_later()

    def holds(self, text: str) -> bool:
        """Whether a consumer of this process still holds the delivery ``text``."""
        return self._consumers.found(Handle.read(text)) is not None

    async def ack(self, texts: Sequence[str]) -> list[Outcome]:
        """See :meth:`babelgate.brokers.pulsar.settle.QueueSettler.ack`."""
        try:
            return await self._settler.ack(texts)
        finally:
            self._rest_later()

    async def give_back(self, texts: Sequence[str]) -> list[Outcome]:
        """See :meth:`babelgate.brokers.pulsar.settle.QueueSettler.give_back`."""
        try:
            return await self._settler.give_back(texts)
        finally:
            self._rest_later()

    async def proofs(self, texts: Sequence[str], *, acked: bool = True) -> list[Outcome]:
        """See :meth:`babelgate.brokers.pulsar.settle.QueueSettler.proofs`."""
        return await self._settler.proofs(texts, acked=acked)

    async def backlog(self) -> int:
        """How many entries are not acknowledged, of all consumers. Raises BabelgateError."""
        with translating(translate, self._consumers.client.broker):
            await self._consumers.listen()
            return sum(counts.backlog for _, counts in await self._consumers.counts())

    @property
    def held(self) -> int:
        """How many entries the consumers here hold."""
        return sum(len(consumer.entries) for consumer in self._consumers.by_number.values())

    async def close(self) -> None:
        """End all consumers: what they hold is delivered again, uncounted. Waiting reserves end."""
        if self._timer is not None:
            self._timer.cancel()
        self._consumers.closed = True
        try:
            await self._background.cancel()
        finally:
            await self._consumers.close()

    def _rest_later(self) -> None:
        if (
            self._timer is None
            and not self._consumers.waiting
            and self._consumers.by_number
            and not self._consumers.closed
        ):
            self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        self._timer = None
        if self._consumers.waiting or self._consumers.closed:
            return
        ready = list(self._consumers.ready)
        for consumer in list(self._consumers.by_number.values()):
            mine = [each for each in ready if each.entry.consumer is consumer and each.is_held]
            if mine or not consumer.entries:
                # At once: until the task begins, a reserve could hand them out.
                for each in mine:
                    self._consumers.ready.remove(each)
                self._background.start(self._rested(consumer, mine))

    async def _rested(self, consumer: TopicConsumer, several: Sequence[Taken]) -> None:
        """Give back messages that arrived with no receive waiting, and end a consumer that holds nothing.

        What a lost consumer held is delivered again without this. An outage is logged for the calls that fail by it.
        """
        try:
            outcomes = await self._settler.returned(consumer, several)
        except BabelgateError as error:
            outcomes = [error] * len(several)
        held = [
            (each, error) for each, error in zip(several, outcomes, strict=True) if error is not None and each.is_held
        ]
        if held:
            refused = [error for _, error in held if not isinstance(error, BrokerUnavailable | OutcomeUnknown)]
            if refused:
                broker = self._consumers.client.broker
                _throttled.warning("messages were not given back", broker=broker, error=refused[0])
            self._consumers.ready.extend(each for each, _ in held)
            self._rest_later()
