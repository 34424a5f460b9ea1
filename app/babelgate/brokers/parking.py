"""Parks messages whose delay is longer than the broker of their queue can delay: on another broker, until they are due.

A parked message is a record in a queue of the parking broker, which is named by the queue and its broker. The record
has everything of the message but its delay, which is that of the record. The gateway's mover
(:mod:`babelgate.gateway.parking`) publishes it to the queue when it is due.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace as with_fields

from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches, send_batches
from babelgate.brokers.binding import Binding, LastFailure, Lists, NativeQueue, Outcome, Outgoing, Purges, QueueStats
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, BrokerCapabilities
from babelgate.brokers.errors import for_each
from babelgate.brokers.ports import LeasingBroker
from babelgate.brokers.projection import NativeWrite, native_writes
from babelgate.errors import BabelgateError, BrokerError

PREFIX = "babelgate:parking:"
"""How the native names of parking queues begin. No queue of a client has such a name."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of bytes that it cannot read."""

Publish = Callable[[Sequence[Outgoing]], Awaitable[Sequence[Outcome]]]


@runtime_checkable
class RestoresCarried(Protocol):
    """A broker whose ``carried`` data of a delivery can be stored elsewhere: its class is ``carried_type``."""

    carried_type: type[Struct]


class ParkedRecord(Struct, frozen=True, omit_defaults=True):
    """What is stored of an :class:`Outgoing`; the fields of the same names. ``carried``: in MessagePack, which has
    bytes."""

    body: bytes
    headers: Mapping[str, str] = {}
    ordering_key: str | None = None
    dedup_id: str | None = None
    failure: LastFailure | None = None
    carried: bytes | None = None
    properties: Mapping[str, Any] = {}
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class ParkingPlace:
    """The queue ``native`` of the parking broker ``binding``, for the messages of one queue of another broker.

    ``max_delay_seconds`` and ``max_retry_delay_seconds``: those of the other broker. Longer delays are parked.
    """

    binding: Binding
    native: NativeQueue
    max_delay_seconds: float | None
    max_retry_delay_seconds: float | None

    def takes(self, message: Outgoing) -> bool:
        """Whether ``message`` is to be parked."""
        return self.max_delay_seconds is not None and message.delay_seconds > self.max_delay_seconds

    def takes_retry(self, delay_seconds: float) -> bool:
        """Whether a failed delivery, to be delivered again after ``delay_seconds``, is parked as a copy."""
        longest = self.max_retry_delay_seconds
        return longest is not None and delay_seconds > longest

    async def publish(self, messages: Sequence[Outgoing], binding: Binding, native: NativeQueue) -> Sequence[Outcome]:
        """Park those of ``messages`` with too long a delay, and publish the others to ``native`` of ``binding``.

        One outcome each, in order. Raises no BrokerError: the other broker may have taken its messages. A message that
        the other broker would refuse is refused now.
        """
        late = [at for at, message in enumerate(messages) if self.takes(message)]
        soon = [at for at, message in enumerate(messages) if not self.takes(message)]
        outcomes: list[Outcome] = [None] * len(messages)
        parked: list[tuple[int, Outgoing]] = []
        for at in late:
            outcomes[at] = refused = await _refusal(binding, native, messages[at])
            if refused is None:
                parked.append((at, _record(messages[at], binding)))
        maximum = self.binding.capabilities(self.native).max_batch
        cut = list(batches(parked, maximum, BATCH_BYTES, [len(record.body) for _, record in parked]))

        async def send(some: Sequence[tuple[int, Outgoing]]) -> Sequence[Outcome]:
            return await self.binding.publish(self.native, [record for _, record in some])

        for (at, _), outcome in zip(parked, await send_batches(cut, send), strict=True):
            outcomes[at] = outcome
        if soon:
            published = await for_each(binding.publish(native, [messages[at] for at in soon]), len(soon))
            for at, outcome in zip(soon, published, strict=True):
                outcomes[at] = outcome
        return outcomes

    async def projection(self, message: Outgoing, binding: Binding, native: NativeQueue) -> Sequence[NativeWrite]:
        """What :meth:`publish` writes to park ``message``. Raises as it would be refused."""
        if (refused := await _refusal(binding, native, message)) is not None:
            raise refused
        return await native_writes(self.binding, self.native, _record(message, binding))

    async def count(self) -> int | None:
        """The number of parked messages; None if the parking broker does not answer."""
        try:
            return total(await self.binding.stats(self.native))
        except BrokerError:
            return None

    async def purge(self) -> int:
        """Remove the parked messages but those that are being moved; returns the number removed. Raises BrokerError."""
        assert isinstance(self.binding, Purges)
        return await self.binding.purge(self.native)


def total(stats: QueueStats) -> int:
    """The number of messages of a parking queue, those that are being moved included."""
    return (stats.depth or 0) + (stats.delayed or 0) + (stats.in_flight or 0)


def restored(body: bytes, binding: Binding, broker: str) -> Outgoing:
    """The message of the record ``body``, without a delay, to publish by ``binding``.

    ``broker``: for whose queue it was parked. If that is another one now, the native parts and the properties of that
    broker are left out. Raises one of :data:`UNREADABLE` if it is no record.
    """
    record = msgspec.json.decode(body, type=ParkedRecord)
    carried: Any = None
    is_same = binding.name == broker
    if record.carried is not None and is_same and isinstance(binding, RestoresCarried):
        # A broker of another kind may have the name now.
        with contextlib.suppress(*UNREADABLE):
            carried = msgspec.msgpack.decode(record.carried, type=binding.carried_type)
    return Outgoing(
        record.body,
        record.headers,
        record.ordering_key,
        dedup_id=record.dedup_id,
        failure=record.failure,
        carried=carried,
        properties=record.properties if is_same else {},
        priority=record.priority,
        is_late=True,
    )


def parking_queue(binding: Binding, broker: str, queue: str) -> NativeQueue:
    """The parking queue on ``binding`` of the messages of ``queue``, which is on ``broker``."""
    return binding.native_queue(f"{PREFIX}{broker}:{queue}", {})


def parked_queue(native_name: str) -> tuple[str, str] | None:
    """The broker and the queue of which the parking queue ``native_name`` has messages; None for another queue."""
    if not native_name.startswith(PREFIX):
        return None
    broker, separator, queue = native_name.removeprefix(PREFIX).partition(":")
    return (broker, queue) if separator else None


def place_on(
    parking: Binding, queue: str, binding: Binding, capabilities: BrokerCapabilities
) -> tuple[ParkingPlace, BrokerCapabilities]:
    """The place on ``parking`` for the messages of ``queue``, which is on ``binding`` with these ``capabilities``; and
    the capabilities of the queue with it."""
    native = parking_queue(parking, binding.name, queue)
    longest = parking.capabilities(native).max_delay_seconds
    # A copy of a delivery has native parts, which not every binding can restore.
    retries = longest if isinstance(binding, RestoresCarried) else None
    own, own_retries = capabilities.max_delay_seconds, capabilities.max_retry_delay_seconds
    place = ParkingPlace(parking, native, own, own_retries if isinstance(binding, RestoresCarried) else None)
    return place, replace(
        capabilities,
        max_delay_seconds=_longer(own, longest),
        max_retry_delay_seconds=own_retries if retries is None else _longer(own_retries, retries),
    )


def cannot_park(binding: Binding) -> str | None:
    """Why ``binding`` cannot be a parking broker, as a part of a sentence; None if it can. No I/O."""
    capabilities = binding.capabilities(binding.native_queue("any", {}))
    longest = capabilities.max_delay_seconds
    if longest is not None and longest < MAX_DELAY_SECONDS:
        return f"itself delays by at most {longest:.15g} s"
    # Any gateway takes what another one has parked, and returns it without a change.
    if capabilities.lease_bound_to is not None or not capabilities.native_release:
        return "keeps no leases of its own"
    if not (isinstance(binding, LeasingBroker) and isinstance(binding, Purges) and isinstance(binding, Lists)):
        return "does not list its queues"
    return "does not list its queues alone" if binding.lists_foreign else None


def _longer(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


async def _refusal(binding: Binding, native: NativeQueue, message: Outgoing) -> Outcome:
    try:
        await native_writes(binding, native, with_fields(message, delay_seconds=0))
    except BabelgateError as error:
        return error.without_frames()
    return None


def _record(message: Outgoing, binding: Binding) -> Outgoing:
    carried: bytes | None = None
    if message.carried is not None and isinstance(binding, RestoresCarried):
        carried = msgspec.msgpack.encode(message.carried)
    record = ParkedRecord(
        message.body,
        message.headers,
        message.ordering_key,
        message.dedup_id,
        message.failure,
        carried,
        message.properties,
        message.priority,
    )
    # It is no envelope, so no binding reads it.
    return Outgoing(msgspec.json.encode(record), delay_seconds=message.delay_seconds, is_envelope=False)
