"""The ends of links: senders, which wait for credit, and receivers, which give it for waiting receives."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from babelgate.brokers import amqp
from babelgate.brokers.artemis import engine
from babelgate.brokers.artemis.engine import lib
from babelgate.brokers.artemis.errors import ConnectionLost, NotSent, Refused
from babelgate.brokers.held import Holder

_DISCHARGE, _DECLARED = 0x32, 0x33
_DECLARE = amqp.described(amqp.VALUE, amqp.described(0x31, amqp.sequence([])))
"""https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transactions-v1.0-os.html"""

_AGAIN_SECONDS = 0.02
"""Pause before a drain is asked for again; the next ones are twice as long each."""

_REPEATED_AFTER_SECONDS = (0.0, 0.02, 0.05, 0.1)
"""Pauses before a drain that may have ended too early is repeated."""

_REPEATED_WITHIN_SECONDS = 0.5
"""Such a drain is not repeated any more after this time: over a slow network each one takes a round trip."""

LARGE_BYTES = 65_536
"""From this size on a message may be a large one for Artemis. By default these have 100 KiB and more
(``amqpMinLargeMessageSize``, https://artemis.apache.org/components/artemis/documentation/latest/large-messages.html).
Artemis sends it in parts, and always with the header that its producer wrote, whose ``delivery-count`` is 0
(``AMQPLargeMessageWriter``)."""

Settlement = asyncio.Future[None]
"""Done when the broker has settled; raises Refused, NotSent or ConnectionLost."""


class Arrived(Struct, frozen=True):
    """A received message: the ``number`` of its delivery on the connection, and its bytes."""

    number: int
    raw: bytes


class LinkOwner(Holder, Protocol):
    """The connection of a link, as links use it; see
    :class:`babelgate.brokers.artemis.connection.ArtemisConnection`."""

    generation: str

    def future(self) -> Settlement:
        """A new future."""

    def next_tag(self) -> bytes:
        """A delivery tag that was not used before."""

    def flush(self) -> None:
        """Write what the engine has at the end of this turn of the loop."""

    def detach(self, link: Link) -> None:
        """End ``link``."""


def fail(future: Settlement, error: Exception) -> None:
    """Let ``future`` raise ``error``, unless it is done; an error that is never retrieved is not logged."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class Link:
    """One end of a link. ``ended``: why it cannot be used any more."""

    def __init__(self, connection: LinkOwner, impl: Any) -> None:
        self.connection = connection
        self.impl = impl
        self.opened: Settlement = connection.future()
        self.ended: Exception | None = None
        self.used_at = 0.0

    def attached(self) -> None:
        """The broker has attached its end; one without a terminus it detaches right afterwards, with the reason."""
        terminus = lib.pn_link_remote_target if lib.pn_link_is_sender(self.impl) else lib.pn_link_remote_source
        if lib.pn_terminus_get_type(terminus(self.impl)) and not self.opened.done():
            self.opened.set_result(None)

    def detached(self, error: Exception) -> None:
        """The broker has ended the link, or the connection is lost."""
        self.ended = self.ended or error
        fail(self.opened, self.ended)

    def flowed(self) -> None:
        """The credit has changed."""

    def close(self) -> None:
        """End the link."""
        if self.ended is None:
            self.detached(ConnectionLost("closed"))
            self.connection.detach(self)


class SenderLink(Link):
    """Sends messages, as far as the broker gives credit; the others wait in ``waiting``."""

    def __init__(self, connection: LinkOwner, impl: Any) -> None:
        super().__init__(connection, impl)
        self.waiting: deque[tuple[bytes, Settlement]] = deque()
        self.users = 0
        """Callers that wait until it is attached."""
        self._sent: dict[Any, Settlement] = {}

    @property
    def busy(self) -> bool:
        """Whether callers wait until it is attached, or messages for credit or for an answer."""
        return bool(self.users or self.waiting or self._sent)

    def send(self, payloads: Sequence[bytes]) -> list[Settlement]:
        """Send ``payloads``, or queue them. Raises the error of an ended link."""
        if self.ended is not None:
            raise self.ended
        futures = [self.connection.future() for _ in payloads]
        self.waiting.extend(zip(payloads, futures, strict=True))
        self.flowed()
        return futures

    def withdraw(self, futures: set[Settlement]) -> set[Settlement]:
        """Take back what has not been sent of ``futures``."""
        back = {future for _, future in self.waiting if future in futures}
        if back:
            self.waiting = deque(each for each in self.waiting if each[1] not in back)
        return back

    def flowed(self) -> None:
        credit = lib.pn_link_credit(self.impl)
        while credit > 0 and self.waiting:
            payload, future = self.waiting.popleft()
            delivery = engine.send(self.impl, self.connection.next_tag(), payload)
            self._sent[delivery] = future
            credit -= 1
        self.connection.flush()

    def answered(self, delivery: Any) -> None:
        """The broker reported the state of a sent message. It has stored the message only when it has settled it."""
        if not lib.pn_delivery_settled(delivery) or (future := self._sent.pop(delivery, None)) is None:
            return
        outcome = lib.pn_delivery_remote_state(delivery)
        if not future.done():
            error = self._failure(outcome, delivery)
            if error is None:
                future.set_result(None)
            else:
                fail(future, error)
        lib.pn_delivery_settle(delivery)

    def _failure(self, outcome: int, delivery: Any) -> Exception | None:
        """Why a message with this outcome was not taken; None if it was."""
        if outcome == engine.ACCEPTED:
            return None
        if outcome == engine.REJECTED:
            return Refused(*engine.condition(lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))))
        return Refused("released", "the broker has given the message back")

    def detached(self, error: Exception) -> None:
        super().detached(error)
        for future in self._sent.values():
            fail(future, error)
        self._sent.clear()
        for _, future in self.waiting:
            fail(future, NotSent(str(error)))
        self.waiting.clear()


class Coordinator(SenderLink):
    """Declares transactions, which are empty: the broker answers when it has stored all that the session did before.

    Artemis does not answer a disposition, and knows no settle mode "second" (``ProtonServerSenderContext``).
    """

    def declare(self, answered: Settlement) -> None:
        """Declare a transaction; ``answered`` is done when the broker has answered."""
        if self.ended is not None:
            fail(answered, self.ended)
            return
        self.waiting.append((_DECLARE, answered))
        self.flowed()

    def _failure(self, outcome: int, delivery: Any) -> Exception | None:
        if outcome == engine.ACCEPTED:
            return None
        if outcome != _DECLARED:
            return super()._failure(outcome, delivery)
        # It is ended by a rollback, whose answer is not needed.
        transaction = amqp.items(declared := engine.read_data(_data_of(delivery)), 0)
        identity = declared[transaction[0] : amqp.end_of(declared, transaction[0])]
        self.send([amqp.described(amqp.VALUE, amqp.described(_DISCHARGE, amqp.sequence([identity, amqp.TRUE])))])
        return None


def _data_of(delivery: Any) -> Any:
    return lib.pn_disposition_data(lib.pn_delivery_remote(delivery))


class ReceiverLink(Link):
    """Receives messages, as many as it has given credit for.

    ``arrived``: the deliveries that were not taken yet. ``outstanding``: the number of those that are not settled.
    ``received``: the number of messages so far.
    ``copying``: it looks at messages, so that nothing is to be settled. ``abandoned``: see :meth:`abandon`.
    """

    def __init__(self, connection: LinkOwner, impl: Any, *, copying: bool) -> None:
        super().__init__(connection, impl)
        self.copying = copying
        self.arrived: list[Arrived] = []
        self.outstanding = 0
        self.abandoned = False
        self.received = 0
        self._last_was_large = False
        self._uncounted = 0
        """Deliveries that the broker counts, and the engine does not: see :meth:`flowed`."""
        self._late_end = False
        """Whether the broker may still have to end a drain whose credit is used."""
        self.on_arrival: Callable[[Arrived], None] | None = None
        """Takes each message instead of :attr:`arrived`."""
        self._woken: Settlement | None = None

    @property
    def address(self) -> str:
        """The address that the broker has attached it to."""
        return engine.text(lib.pn_terminus_get_address(lib.pn_link_remote_source(self.impl)))

    @property
    def credit(self) -> int:
        """The messages that the broker may still send, one of which a part has arrived included."""
        credit: int = lib.pn_link_credit(self.impl) - self._uncounted
        return credit

    def give(self, credit: int) -> None:
        """Give credit for ``credit`` more messages."""
        lib.pn_link_flow(self.impl, credit)
        self.connection.flush()

    async def drained(self, credit: int, enough_at: float = math.inf) -> None:
        """Give ``credit`` for the stored messages; ends when the broker has sent them and returned the unused credit.

        Artemis ends a drain in another thread. Where messages have used all the credit, that may come so late that it
        ends the next drain before that has sent anything, whose own end is late then: so that one is repeated if it
        brings too few, with pauses. It may also end a drain behind any large message: so a drain whose last message
        was large is repeated, until the loop's time ``enough_at``. While a broker that is busy has not noted the end of
        a large message, it ends each drain at once: so where all messages are wanted, a drain that brings none behind a
        large one is repeated with pauses, too.
        """
        wanted = self.received + self.credit + credit
        pauses = iter(_REPEATED_AFTER_SECONDS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self.received < wanted:
            self._check()
            before = self.received
            await self._drain(wanted - self.received - self.credit)
            if self.received < wanted:
                if self.received > before and self._last_was_large:
                    if loop.time() < enough_at:
                        pauses = iter(_REPEATED_AFTER_SECONDS)
                        continue
                    return
                is_quick = loop.time() - began < _REPEATED_WITHIN_SECONDS
                may_be_early = (self._late_end and is_quick) or (self._last_was_large and math.isinf(enough_at))
                pause = next(pauses, None) if may_be_early else None
                if pause is None:
                    self._late_end = False
                    return
                await asyncio.sleep(pause)
            else:
                self._late_end = True

    async def _drain(self, credit: int) -> None:
        lib.pn_link_drain(self.impl, credit)
        self.connection.flush()
        loop = asyncio.get_running_loop()
        pause = _AGAIN_SECONDS
        while self.credit > 0:
            await self._changed(loop.time() + pause, self._drain_again)
            pause *= 2

    async def pull(self, limit: int, until: float) -> list[Arrived]:
        """At most ``limit`` messages, as soon as there is one; none at the loop's time ``until``.

        The broker drains the link: it sends its messages, and returns the unused credit. Without a message the
        link gives credit for one, which it takes back at the end of the wait.
        """
        await self.drained(limit, enough_at=until)
        if not self.arrived and asyncio.get_running_loop().time() < until:
            await self._one(until)
        return self.take()

    async def _one(self, until: float) -> None:
        """Give credit for one message; returns when it has arrived, or at the loop's time ``until``."""
        self._check()
        self.give(1)
        loop = asyncio.get_running_loop()
        while self.credit > 0 and not self.arrived and loop.time() < until:
            await self._changed(until, self.wake)
        if self.credit > 0:
            await self.drained(0, enough_at=until)

    def _drain_again(self) -> None:
        """Ask again: Artemis ignores a drain until the thread that answered the one before has noted its end
        (``ProtonServerSenderContext.flushDrain``)."""
        if self.ended is None:
            self._late_end = True
            lib.pn_link_drain(self.impl, 0)
            self.connection.flush()
        self.wake()

    def wake(self) -> None:
        """Let the waiting caller look again."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def flowed(self) -> None:
        """The broker has ended a drain, maybe after a part of a large message. Then it has given back its credit, too,
        sends no more of it until there is new credit, and counts it twice until the end of another drain
        (``TransportImpl.processSenderFlow`` of proton-j)."""
        if lib.pn_link_drained(self.impl):
            self._uncounted = lib.pn_link_queued(self.impl)
            if self._uncounted:
                self.give(self._uncounted)
        self.wake()

    def abandon(self) -> None:
        """Give back what has arrived, and what still arrives; the link ends when no delivery is left."""
        if self.ended is None:
            self.abandoned = True
            self.connection.give_back([each.number for each in self.take()])
            if not self.outstanding:
                self.close()
            else:
                lib.pn_link_drain(self.impl, 0)
                self.connection.flush()

    def count(self, raw: bytes) -> None:
        """Count a message that has arrived."""
        self.received += 1
        self._last_was_large = len(raw) >= LARGE_BYTES

    def take(self) -> list[Arrived]:
        """The messages that have arrived."""
        taken, self.arrived = self.arrived, []
        return taken

    def detached(self, error: Exception) -> None:
        super().detached(error)
        self.wake()

    def _check(self) -> None:
        if self.ended is not None:
            raise self.ended

    async def _changed(self, until: float, late: Callable[[], None]) -> None:
        """Wait for :meth:`wake`; call ``late``, which wakes, at the loop's time ``until``. Raises the error of an ended
        link."""
        self._check()
        self._woken = self.connection.future()
        timer = self._woken.get_loop().call_at(until, late)
        try:
            await self._woken
        finally:
            timer.cancel()
        self._check()
