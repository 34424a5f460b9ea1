"""One AMQP connection: feeds bytes to proton's engine and passes the engine's events to links and deliveries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from babelgate.brokers import amqp
from babelgate.brokers.artemis import engine
from babelgate.brokers.artemis.engine import lib
from babelgate.brokers.artemis.errors import ConnectionLost, Refused
from babelgate.brokers.artemis.links import Arrived, Coordinator, Link, ReceiverLink, SenderLink, Settlement, fail
from babelgate.brokers.artemis.url import ArtemisSettings
from babelgate.brokers.held import Held, State

_IDLE_MS = 60_000
"""How long the broker may be silent before the connection counts as lost. The broker sends a frame each half of it, and
asks for the same: https://activemq.apache.org/components/artemis/documentation/latest/connection-ttl.html"""

_MAX_FRAME = 65_536
_TAG_BYTES = 8

_QUEUE = amqp.symbol("queue")
"""The capability by which Artemis makes a queue of the type anycast. Its default is multicast, which drops a message
without a subscriber: https://activemq.apache.org/components/artemis/documentation/latest/amqp.html"""

_NOT_ESTABLISHED = b"amqp:connection-establishment-failed"
_TEMPORARY_QUEUE = amqp.symbol("temporary-queue")
_SELECTOR = "apache.org:selector-filter:string"

AnyLink = TypeVar("AnyLink", bound=Link)


class ArtemisConnection(asyncio.Protocol):
    """A connection with one session: the :class:`babelgate.brokers.held.Holder` of the deliveries on its links.

    All methods are for the event loop's thread. All frames of one turn of the loop are one write.
    """

    def __init__(
        self, settings: ArtemisSettings, host: str, lost: Callable[[ArtemisConnection, Exception], None]
    ) -> None:
        """``lost`` is called once, when the connection has ended."""
        self.generation = os.urandom(4).hex()
        self.error: Exception | None = None
        """Why the connection has ended; None while it is open."""
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self.opened: Settlement = self.future()
        self.server_version: str | None = None
        self.ended: Settlement = self.future()
        self._links: dict[Any, Link] = {}
        self._held: Held[tuple[Any, ReceiverLink]] = Held()
        self._number = 0
        self._tag = 0
        self._socket: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._flushing = False
        self.heard = 0
        """How often bytes have arrived."""
        self._collector = lib.pn_collector()
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        lib.pn_transport_set_max_frame(self._transport, _MAX_FRAME)
        lib.pn_transport_set_idle_timeout(self._transport, _IDLE_MS)
        sasl = lib.pn_sasl(self._transport)
        lib.pn_sasl_allowed_mechs(sasl, settings.mechanism.encode())
        # TLS is below the engine, which does not know of it.
        lib.pn_sasl_set_allow_insecure_mechs(sasl, True)
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_connection_set_container(self._connection, f"babelgate-{self.generation}".encode())
        lib.pn_connection_set_hostname(self._connection, host.encode())
        if settings.username:
            lib.pn_connection_set_user(self._connection, settings.username.encode())
        if settings.password:
            lib.pn_connection_set_password(self._connection, settings.password.encode())
        lib.pn_transport_bind(self._transport, self._connection)
        lib.pn_connection_open(self._connection)
        self._session = lib.pn_session(self._connection)
        lib.pn_session_open(self._session)
        self._barrier: Settlement | None = None
        impl = lib.pn_sender(self._session, b"coordinator")
        lib.pn_terminus_set_type(lib.pn_link_target(impl), engine.COORDINATOR)
        self._coordinator = self._attach(Coordinator(self, impl))

    def future(self) -> Settlement:
        """A new future of this connection's loop."""
        return self._loop.create_future()

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._keep_alive()
        self._write()

    def data_received(self, data: bytes) -> None:
        self.heard += 1
        while data and self.error is None:
            taken = engine.push(self._transport, data)
            self._events()
            if taken < 0:
                break
            data = data[taken:]
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionLost(str(exc) if exc else "the broker has closed the connection"))

    def flush(self) -> None:
        """Write what the engine has at the end of this turn of the loop."""
        if not self._flushing and self.error is None:
            self._flushing = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._flushing = False
        self._pull()
        # The engine writes transfers before dispositions, and a barrier has to follow these.
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            if self.error is None:
                self._coordinator.declare(barrier)
                self._pull()
            else:
                fail(barrier, self.error)

    def _pull(self) -> None:
        """Write what the engine has."""
        if self.error is not None or self._socket is None:
            return
        while data := engine.pull(self._transport):
            self._socket.write(data)
        self._events()
        if data is None:
            self._end(ConnectionLost("the connection has ended"))

    def _keep_alive(self) -> None:
        """Send and expect signs of life."""
        if self._tick is not None:
            self._tick.cancel()
        if self.error is None:
            now = time.monotonic_ns() // 1_000_000
            due = lib.pn_transport_tick(self._transport, now)
            if due:
                self._tick = self._loop.call_later(max(1, due - now) / 1000, self._keep_alive)
            self.flush()

    async def close(self, seconds: float) -> None:
        """Close by AMQP's handshake, after which the broker has taken back all deliveries; at most ``seconds``."""
        if self.error is None:
            lib.pn_connection_close(self._connection)
            self.flush()
            await asyncio.wait((self.ended,), timeout=seconds)
        self._end(ConnectionLost("closed"))

    def abort(self, reason: str) -> None:
        """Drop the connection at once."""
        self._end(ConnectionLost(reason))

    def _end(self, error: Exception) -> None:
        if self.error is not None:
            return
        self.error = error
        if self._tick is not None:
            self._tick.cancel()
        if self._socket is not None:
            self._socket.abort()
        for link in list(self._links.values()):
            link.detached(error)
        self._links.clear()
        self._held.clear()
        fail(self.opened, error)
        if not self.ended.done():
            self.ended.set_result(None)
        # The engine is freed in another turn: this one may be in the middle of its events.
        self._loop.call_soon(self._free)
        self._lost(self, error)

    def _free(self) -> None:
        lib.pn_transport_unbind(self._transport)
        lib.pn_connection_release(self._connection)
        lib.pn_collector_release(self._collector)
        for part in (self._transport, self._collector):
            lib.pn_decref(part)

    # Links.

    def sender(self, address: str) -> SenderLink:
        """Attach a sender to the queue ``address``. Raises ConnectionLost."""
        impl = lib.pn_sender(self._session, self._name())
        target = lib.pn_link_target(impl)
        lib.pn_terminus_set_address(target, address.encode())
        engine.set_data(lib.pn_terminus_capabilities(target), _QUEUE)
        return self._attach(SenderLink(self, impl))

    def receiver(self, address: str | None, *, copying: bool = False, selector: str | None = None) -> ReceiverLink:
        """Attach a receiver to the queue ``address``; None: to a new one of its own, see :meth:`ReceiverLink.address`.

        ``copying``: it looks at messages, and takes none. ``selector``: a JMS selector. Raises ConnectionLost.
        """
        impl = lib.pn_receiver(self._session, self._name())
        source = lib.pn_link_source(impl)
        if address is None:
            lib.pn_terminus_set_dynamic(source, True)
            engine.set_data(lib.pn_terminus_capabilities(source), _TEMPORARY_QUEUE)
        else:
            lib.pn_terminus_set_address(source, address.encode())
            engine.set_data(lib.pn_terminus_capabilities(source), _QUEUE)
        if copying:
            engine.copying(source)
        if selector is not None:
            chosen = amqp.named(_SELECTOR, amqp.string(selector))
            engine.set_data(lib.pn_terminus_filter(source), amqp.mapping({amqp.symbol("selector"): chosen}))
        return self._attach(ReceiverLink(self, impl, copying=copying))

    def _name(self) -> bytes:
        """The name of a new link. A connection that has ended has no engine to attach one."""
        if self.error is not None:
            raise self.error
        self._tag += 1
        return f"{self.generation}-{self._tag}".encode()

    def _attach(self, link: AnyLink) -> AnyLink:
        self._links[link.impl] = link
        lib.pn_link_open(link.impl)
        self.flush()
        return link

    def detach(self, link: Link) -> None:
        """End ``link``; the broker takes back its unsettled deliveries."""
        if self._links.pop(link.impl, None) is not None:
            self._held.returned(self._held.where(lambda held: held[1] is link))
            lib.pn_link_close(link.impl)
            lib.pn_link_free(link.impl)
            self.flush()

    def next_tag(self) -> bytes:
        """A delivery tag that was not used before."""
        self._tag += 1
        return self._tag.to_bytes(_TAG_BYTES, "big")

    # Deliveries.

    def state(self, number: int) -> State:
        """The state of a delivery."""
        return self._held.state(number)

    def accept(self, numbers: Sequence[int]) -> None:
        """Write that held deliveries are done. The broker does not answer it; see :meth:`barrier`."""
        self._settle(self._held.acked(numbers), engine.ACCEPTED)

    def give_back(self, numbers: Sequence[int], *, failed: bool = False) -> None:
        """Return held deliveries to their places in the queue: as ``released``, or as ``modified`` with
        delivery-failed, which the broker counts."""
        self._settle(self._held.returned(numbers), engine.MODIFIED if failed else engine.RELEASED)

    def _settle(self, ended: Sequence[tuple[Any, ReceiverLink]], outcome: int) -> None:
        for delivery, receiver in ended:
            receiver.outstanding -= 1
            engine.settle(delivery, outcome)
            if receiver.abandoned and not receiver.outstanding:
                receiver.close()
        self.flush()

    async def barrier(self) -> None:
        """Wait for a round trip: the broker has processed and stored all earlier frames. Calls in one turn of
        the loop share it. Raises ConnectionLost or Refused."""
        if self._barrier is None:
            if self.error is not None:
                raise self.error
            self._barrier = self.future()
            self.flush()
        await asyncio.shield(self._barrier)

    # The engine's events.

    def _events(self) -> None:
        collector = self._collector
        while self.error is None and (event := engine.next_event(collector)) is not None:
            handle = _HANDLERS.get(lib.pn_event_type(event))
            if handle is not None:
                handle(self, event)
            lib.pn_collector_pop(collector)

    def _connection_opened(self, event: Any) -> None:
        # A broker that refuses the login opens its end with this property, and closes it with the reason.
        properties = engine.read_data(lib.pn_connection_remote_properties(self._connection))
        if _NOT_ESTABLISHED not in properties and not self.opened.done():
            self.server_version = _version(properties)
            self.opened.set_result(None)
        # The broker has said how often it wants to hear from this end.
        self._keep_alive()

    def _connection_closed(self, event: Any) -> None:
        name, description = engine.condition(lib.pn_connection_remote_condition(self._connection))
        self._end(ConnectionLost(description or name or "closed by the broker", name))

    def _session_closed(self, event: Any) -> None:
        name, description = engine.condition(lib.pn_session_remote_condition(self._session))
        self._end(ConnectionLost(description or name or "the broker has ended the session", name))

    def _transport_failed(self, event: Any) -> None:
        name, description = engine.condition(lib.pn_transport_condition(self._transport))
        self._end(ConnectionLost(description or name, name))

    def _link_opened(self, event: Any) -> None:
        link = self._links.get(lib.pn_event_link(event))
        if link is not None:
            link.attached()

    def _link_closed(self, event: Any) -> None:
        link = self._links.get(lib.pn_event_link(event))
        if link is not None:
            name, description = engine.condition(lib.pn_link_remote_condition(link.impl))
            error = Refused(name, description) if name else ConnectionLost("the broker has ended the link")
            link.detached(error)
            self.detach(link)

    def _flowed(self, event: Any) -> None:
        link = self._links.get(lib.pn_event_link(event))
        if link is not None:
            link.flowed()

    def _delivery(self, event: Any) -> None:
        delivery = lib.pn_event_delivery(event)
        link = self._links.get(lib.pn_delivery_link(delivery))
        if isinstance(link, SenderLink):
            link.answered(delivery)
        elif link is not None and lib.pn_delivery_readable(delivery) and not lib.pn_delivery_partial(delivery):
            self._receive(cast(ReceiverLink, link), delivery)

    def _receive(self, link: ReceiverLink, delivery: Any) -> None:
        raw = engine.receive(link.impl, delivery)
        link.count(raw)
        if link.copying or link.abandoned:
            engine.settle(delivery, engine.RELEASED)
            self.flush()
        else:
            self._number += 1
            self._held.hold(self._number, (delivery, link))
            link.outstanding += 1
        arrived = Arrived(self._number, raw)
        if link.on_arrival is not None:
            link.on_arrival(arrived)
        elif not link.abandoned:
            link.arrived.append(arrived)
            link.wake()


_HANDLERS: dict[int, Callable[[ArtemisConnection, Any], None]] = {
    engine.CONNECTION_REMOTE_OPEN: ArtemisConnection._connection_opened,
    engine.CONNECTION_REMOTE_CLOSE: ArtemisConnection._connection_closed,
    engine.SESSION_REMOTE_CLOSE: ArtemisConnection._session_closed,
    engine.TRANSPORT_ERROR: ArtemisConnection._transport_failed,
    engine.LINK_REMOTE_OPEN: ArtemisConnection._link_opened,
    engine.LINK_REMOTE_CLOSE: ArtemisConnection._link_closed,
    engine.LINK_REMOTE_DETACH: ArtemisConnection._link_closed,
    engine.LINK_FLOW: ArtemisConnection._flowed,
    engine.DELIVERY: ArtemisConnection._delivery,
}


def _version(properties: bytes) -> str | None:
    with contextlib.suppress(amqp.Malformed):
        pairs = amqp.decode(properties) if properties else ()
        return next((f"Artemis {value}" for key, value in pairs if key == "version"), None)
    return None
