"""One client's connection: feeds its bytes to the engine and passes the engine's events to the broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import cproton  # type: ignore[import-untyped]

from tools.servicebus_emulator import engine, management
from tools.servicebus_emulator.broker import Broker
from tools.servicebus_emulator.codec import Malformed
from tools.servicebus_emulator.engine import lib
from tools.servicebus_emulator.entity import Entity
from tools.servicebus_emulator.faults import Refused
from tools.servicebus_emulator.links import (
    CBS,
    MANAGEMENT,
    Incoming,
    Link,
    Outgoing,
    Replies,
    error_info,
    path_of,
    refuse,
    wanted_session,
)
from tools.servicebus_emulator.message import batched

_FRAME = 65536
_WINDOW = 64 * 1024 * 1024
_BUSY = ("com.microsoft:server-busy", "The request was terminated because the entity is being throttled.")


class Connection(asyncio.Protocol):
    """Implements the broker's :class:`Peer`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.links: dict[Any, Link] = {}
        self.doomed = False
        self._ended = False
        self._socket: asyncio.Transport | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._collector = lib.pn_collector()
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, _FRAME)
        lib.pn_sasl_allowed_mechs(lib.pn_sasl(self._transport), b"ANONYMOUS PLAIN")
        lib.pn_sasl_set_allow_insecure_mechs(lib.pn_sasl(self._transport), True)
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_connection_set_container(self._connection, b"service-bus-emulator")
        lib.pn_transport_bind(self._transport, self._connection)
        self._handlers: dict[int, Callable[[Any], None]] = {
            cproton.PN_CONNECTION_REMOTE_OPEN: self._connection_opens,
            cproton.PN_CONNECTION_REMOTE_CLOSE: self._connection_closes,
            cproton.PN_SESSION_REMOTE_OPEN: self._session_opens,
            cproton.PN_SESSION_REMOTE_CLOSE: self._session_closes,
            cproton.PN_LINK_REMOTE_OPEN: self._link_opens,
            cproton.PN_LINK_REMOTE_CLOSE: self._link_closes,
            cproton.PN_LINK_REMOTE_DETACH: self._link_closes,
            cproton.PN_LINK_FLOW: self._flow,
            cproton.PN_DELIVERY: self._delivery,
        }

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._socket = cast(asyncio.Transport, transport)
        self.broker.peers.add(self)
        self.broker.counts["connections"] += 1

    def data_received(self, data: bytes) -> None:
        """A client has sent bytes."""
        while data and not self._ended:
            taken = engine.push(self._transport, data)
            self._events()
            if taken <= 0 and not self._ended:
                if lib.pn_transport_capacity(self._transport) <= 0:
                    break
                continue
            data = data[taken:]
        self.touch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._end()

    def touch(self) -> None:
        """There may be bytes to send."""
        if not self._ended:
            self.broker.touch(self)

    def write_out(self) -> None:
        """Send what the engine has, after a commit."""
        if self._ended or self._socket is None:
            return
        if self.doomed:
            self.abort()
            return
        while data := engine.pull(self._transport):
            self._socket.write(data)
        if data is None:
            self._socket.close()
            self._end()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._socket is not None:
            self._socket.abort()
        self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.broker.peers.discard(self)
        if self._tick is not None:
            self._tick.cancel()
        for link in list(self.links.values()):
            link.closed()
        lib.pn_transport_unbind(self._transport)
        lib.pn_connection_release(self._connection)
        lib.pn_collector_release(self._collector)
        for part in (self._transport, self._collector):
            lib.pn_decref(part)
        self.broker.touch()

    # The engine's events.

    def _events(self) -> None:
        while not self._ended and (event := engine.next_event(self._collector)) is not None:
            handler = self._handlers.get(lib.pn_event_type(event))
            if handler is not None:
                handler(event)
            if not self._ended:
                lib.pn_collector_pop(self._collector)

    def _connection_opens(self, event: Any) -> None:
        lib.pn_connection_open(self._connection)
        self._keep_alive()

    def _keep_alive(self) -> None:
        now = time.monotonic_ns() // 1_000_000
        due = lib.pn_transport_tick(self._transport, now)
        if due:
            self._tick = asyncio.get_running_loop().call_later(max(1, due - now) / 1000, self._keep_alive)
        self.touch()

    def _connection_closes(self, event: Any) -> None:
        lib.pn_connection_close(self._connection)

    def _session_opens(self, event: Any) -> None:
        session = lib.pn_event_session(event)
        lib.pn_session_set_incoming_capacity(session, _WINDOW)
        lib.pn_session_open(session)

    def _session_closes(self, event: Any) -> None:
        lib.pn_session_close(lib.pn_event_session(event))

    def _link_opens(self, event: Any) -> None:
        impl = lib.pn_event_link(event)
        receives = bool(lib.pn_link_is_sender(impl))
        terminus = lib.pn_link_remote_source(impl) if receives else lib.pn_link_remote_target(impl)
        address = engine.text(lib.pn_terminus_get_address(terminus))
        try:
            link = self._link(impl, address, receives)
        except Refused as refused:
            refuse(impl, refused.condition, refused.description)
            return
        self.links[impl] = link
        self._unless_hung(link, link.attach)

    def _link(self, impl: Any, address: str, receives: bool) -> Incoming | Outgoing | Replies:
        path = path_of(address)
        broker = self.broker
        if path.lower() == CBS:
            return (Replies if receives else Incoming)(self, impl, path, None, "tokens")
        managed = path.lower().endswith(MANAGEMENT)
        entity = broker.entity(path[: -len(MANAGEMENT)] if managed else path)
        if broker.faults.hit("unauthorized", entity.key):
            raise Refused("amqp:unauthorized-access", f"Unauthorized access. 'Send/Listen' claim(s) on {entity.path}.")
        if broker.faults.hit("throttle", entity.key, "attach"):
            raise Refused(*_BUSY)
        broker.counts["attaches"] += 1
        if managed:
            return (Replies if receives else Incoming)(self, impl, path, entity, "management")
        if entity.queue.settings.disabled:
            raise Refused("com.microsoft:entity-disabled", f"The entity '{entity.path}' is disabled.")
        if receives:
            return Outgoing(self, impl, path, entity, wanted_session(impl))
        if entity.dead:
            raise Refused("amqp:not-allowed", "Cannot create a message sender on a sub-queue.")
        return Incoming(self, impl, path, entity, "entity")

    def _link_closes(self, event: Any) -> None:
        impl = lib.pn_event_link(event)
        link = self.links.get(impl)
        if link is not None:
            link.closed()
        lib.pn_link_close(impl)

    def _flow(self, event: Any) -> None:
        link = self.links.get(lib.pn_event_link(event))
        if isinstance(link, Replies):
            link.flow()
        elif isinstance(link, Outgoing):
            link.draining = bool(lib.pn_link_get_drain(link.impl))
            self.broker.offer(link.entity)

    def _delivery(self, event: Any) -> None:
        delivery = lib.pn_event_delivery(event)
        link = self.links.get(lib.pn_delivery_link(delivery))
        if isinstance(link, Incoming):
            if lib.pn_delivery_readable(delivery) and not lib.pn_delivery_partial(delivery):
                self._unless_hung(link, lambda: self._transfer(link, delivery))
            elif lib.pn_delivery_aborted(delivery):
                lib.pn_delivery_settle(delivery)
        elif isinstance(link, Outgoing):
            if lib.pn_delivery_updated(delivery):
                self._unless_hung(link, lambda: self._disposition(link, delivery))
        elif lib.pn_delivery_updated(delivery):
            lib.pn_delivery_settle(delivery)

    def _unless_hung(self, link: Link, action: Callable[[], None]) -> None:
        entity = link.entity
        if entity is not None and self.broker.faults.all and self.broker.faults.hangs(entity.key):
            entity.held.append((link, action))
        else:
            action()

    # Transfers and dispositions.

    def _transfer(self, link: Incoming, delivery: Any) -> None:
        raw = engine.receive(link.impl, delivery)
        link.top_up()
        if link.kind != "entity":
            engine.accept(delivery)
            self._request(link, raw)
            return
        entity, faults = link.entity, self.broker.faults
        assert entity is not None
        entity.counts["transfers"] += 1
        if faults.hit("drop_before_send", entity.key):
            self.abort()
            return
        try:
            if faults.hit("throttle", entity.key, "send"):
                raise Refused(*_BUSY)
            self.broker.accept(entity, batched(raw) or [raw], len(raw))
        except Refused as refused:
            engine.reject(delivery, refused.condition, refused.description)
        except Malformed as error:
            engine.reject(delivery, "amqp:decode-error", str(error))
        else:
            if faults.hit("drop_after_send", entity.key):
                self.doomed = True
            engine.accept(delivery)

    def _request(self, link: Incoming, raw: bytes) -> None:
        request = management.Request(raw)
        replies = [
            other
            for other in self.links.values()
            if isinstance(other, Replies) and other.kind == link.kind and other.address.lower() == link.address.lower()
        ]
        entity, faults = link.entity, self.broker.faults
        if entity is None:
            answer = management.put_token(self.broker, request)
        else:
            entity.counts[request.operation] += 1
            fault = management.FAULTS.get(request.operation, "management")
            if faults.hit(f"drop_before_{fault}", entity.key, request.operation):
                self.abort()
                return
            answer = management.answer(entity, request)
            if faults.hit(f"drop_after_{fault}", entity.key, request.operation):
                self.doomed = True
        # The SDK's reply-to is the address of the node; other clients name the target of their link.
        replies.sort(key=lambda reply: reply.target != request.reply_to)
        for reply in replies[:1]:
            reply.reply(answer)

    def _disposition(self, link: Outgoing, delivery: Any) -> None:
        outcome: int = lib.pn_delivery_remote_state(delivery)
        settled: bool = lib.pn_delivery_settled(delivery)
        if not settled and outcome not in (engine.ACCEPTED, engine.REJECTED, engine.RELEASED, engine.MODIFIED):
            return
        entity, faults = link.entity, self.broker.faults
        entity.counts["dispositions"] += 1
        if faults.hit("drop_before_disposition", entity.key):
            self.abort()
            return
        failed = undeliverable = False
        if outcome == engine.MODIFIED:
            remote = lib.pn_delivery_remote(delivery)
            failed = bool(lib.pn_disposition_is_failed(remote))
            undeliverable = bool(lib.pn_disposition_is_undeliverable(remote))
        try:
            self._settle(entity, delivery, outcome, undeliverable)
        except Refused as refused:
            engine.reject(delivery, refused.condition, refused.description)
        else:
            engine.echo(delivery, outcome, failed=failed, undeliverable=undeliverable)
        if faults.hit("drop_after_disposition", entity.key):
            self.doomed = True

    @staticmethod
    def _settle(entity: Entity, delivery: Any, outcome: int, undeliverable: bool) -> None:
        message = entity.locked(engine.tag(delivery))
        if outcome == engine.ACCEPTED:
            entity.complete(message)
        elif outcome == engine.REJECTED:
            info = error_info(delivery)
            entity.dead_letter(message, info.get("DeadLetterReason"), info.get("DeadLetterErrorDescription"))
        elif undeliverable:
            entity.defer(message)
        elif outcome == engine.MODIFIED:
            # Microsoft's clients for Go, Java and Node abandon without delivery-failed, and the service counts that.
            entity.abandon(message)
        else:
            entity.release(message)
