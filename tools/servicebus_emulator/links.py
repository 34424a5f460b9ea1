"""Links of a connection, seen from the broker: what a client sends on, and what it receives on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tools.servicebus_emulator import engine
from tools.servicebus_emulator.codec import Value
from tools.servicebus_emulator.engine import lib
from tools.servicebus_emulator.entity import SESSION_LOCK_LOST, Entity, Session
from tools.servicebus_emulator.message import Message

if TYPE_CHECKING:
    from tools.servicebus_emulator.connection import Connection

MANAGEMENT = "/$management"
CBS = "$cbs"
SESSION_FILTER = "com.microsoft:session-filter"
_CREDIT = 1000
# Ticks of 100 ns between the years 1 and 1970.
_TICKS_TO_1970 = 621355968000000000


def path_of(address: str) -> str:
    """The path of an address, which may be a URL."""
    _, separator, rest = address.partition("://")
    return (rest.partition("/")[2] if separator else address).strip("/")


class Link:
    """A link; ``entity`` is None for the node of tokens."""

    def __init__(self, connection: Connection, impl: Any, address: str, entity: Entity | None, kind: str) -> None:
        self.connection = connection
        self.impl = impl
        self.address = address
        self.entity = entity
        self.kind = kind
        self.name = engine.text(lib.pn_link_name(impl))
        self.open = True

    def answer(self, **properties: Value) -> None:
        """Answer the attach."""
        impl = self.impl
        lib.pn_terminus_copy(lib.pn_link_source(impl), lib.pn_link_remote_source(impl))
        lib.pn_terminus_copy(lib.pn_link_target(impl), lib.pn_link_remote_target(impl))
        lib.pn_link_set_snd_settle_mode(impl, lib.pn_link_remote_snd_settle_mode(impl))
        lib.pn_link_set_rcv_settle_mode(impl, lib.pn_link_remote_rcv_settle_mode(impl))
        if self.entity is not None:
            lib.pn_link_set_max_message_size(impl, self.entity.queue.settings.max_message_size)
        pairs = [(("symbol", f"com.microsoft:{name.replace('_', '-')}"), value) for name, value in properties.items()]
        engine.write(lib.pn_link_properties(impl), ("map", pairs))
        lib.pn_link_open(impl)

    def detach(self, condition: str, description: str) -> None:
        """Close the link with an error; an attach that is not answered yet is refused."""
        if self.open:
            self.closed()
            refuse(self.impl, condition, description)
            self.connection.touch()

    def attach(self) -> None:
        """Answer the attach, or refuse it."""
        raise NotImplementedError

    def told(self) -> dict[str, Any]:
        """The link as the control API reports it."""
        raise NotImplementedError

    def closed(self) -> None:
        """The link is no more."""
        self.open = False
        self.connection.links.pop(self.impl, None)
        if self.entity is not None:
            self.entity.held = [item for item in self.entity.held if item[0] is not self]


def refuse(impl: Any, condition: str, description: str) -> None:
    """Close a link with an error; without a source and a target if it is not open."""
    engine.set_condition(lib.pn_link_condition(impl), condition, description)
    for terminus in (lib.pn_link_source(impl), lib.pn_link_target(impl)):
        if not engine.is_open(impl):
            lib.pn_terminus_set_type(terminus, engine.NO_TERMINUS)
    lib.pn_link_open(impl)
    lib.pn_link_close(impl)


class Incoming(Link):
    """A link on which a client sends messages or requests."""

    def attach(self) -> None:
        """Answer the attach and give credit."""
        size = self.entity.queue.settings.max_batch_size if self.entity is not None else 1048576
        self.answer(max_message_batch_size=("ulong", size))
        lib.pn_link_flow(self.impl, _CREDIT)

    def top_up(self) -> None:
        """Give credit again when half of it is used."""
        if lib.pn_link_credit(self.impl) < _CREDIT // 2:
            lib.pn_link_flow(self.impl, _CREDIT // 2)

    def told(self) -> dict[str, Any]:
        """The link as the control API reports it."""
        return {"role": "sender", "kind": self.kind, "name": self.name}


class Replies(Link):
    """A link on which a client receives answers to requests."""

    def __init__(self, connection: Connection, impl: Any, address: str, entity: Entity | None, kind: str) -> None:
        super().__init__(connection, impl, address, entity, kind)
        self.target = engine.text(lib.pn_terminus_get_address(lib.pn_link_remote_target(impl)))
        self._pending: deque[bytes] = deque()
        self._sent = 0

    def attach(self) -> None:
        """Answer the attach."""
        self.answer()

    def reply(self, raw: bytes) -> None:
        """Send an answer as soon as there is credit."""
        self._pending.append(raw)
        self.flow()

    def flow(self) -> None:
        """The credit changed."""
        while self._pending and lib.pn_link_credit(self.impl) > 0:
            self._sent += 1
            engine.send(self.impl, self._sent.to_bytes(4, "big"), self._pending.popleft(), settled=True)
        self.connection.touch()

    def told(self) -> dict[str, Any]:
        """The link as the control API reports it."""
        return {"role": "replies", "kind": self.kind, "name": self.name, "credit": lib.pn_link_credit(self.impl)}


class Outgoing(Link):
    """A link on which a client receives messages of an entity."""

    entity: Entity

    def __init__(
        self, connection: Connection, impl: Any, address: str, entity: Entity, wanted: list[str | None]
    ) -> None:
        super().__init__(connection, impl, address, entity, "entity")
        self.session: Session | None = None
        self.held: dict[bytes, Message] = {}
        self.deletes = lib.pn_link_remote_snd_settle_mode(impl) == engine.SETTLED_BY_SENDER
        self.draining = False
        self._wanted = wanted

    def attach(self) -> None:
        """Answer the attach, later if the client waits for a session; may refuse it."""
        entity, broker = self.entity, self.entity.broker
        if not entity.sessionful:
            if self._wanted:
                text = "A sessionful message receiver cannot be created on an entity that does not require sessions."
                self.detach("amqp:not-allowed", text)
                return
            self.answer()
            entity.receivers.append(self)
            return
        if not self._wanted:
            text = (
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
            )
            self.detach("amqp:not-allowed", text)
            return
        identifier = self._wanted[0]
        now = broker.now()
        if identifier is None:
            session = entity.free_session(now)
            if session is None:
                entity.waiting.append(self)
                broker.at(now + self._patience(), self._wait_ends)
                broker.touch()
                return
        else:
            session = entity.session(identifier)
            if session.holder is not None:
                text = f"The requested session '{identifier}' cannot be accepted. It may be locked by another receiver."
                self.detach("com.microsoft:session-cannot-be-locked", text)
                return
        entity.lock_session(session, self, now)
        self.accept(session)

    def _patience(self) -> int:
        properties = engine.read(lib.pn_link_remote_properties(self.impl))
        if properties[0] == "map":
            for key, value in properties[1]:
                if key[1] == "com.microsoft:timeout" and isinstance(value[1], int):
                    return value[1]
        return int(self.entity.broker.options.session_wait_seconds * 1000)

    def _wait_ends(self) -> None:
        if self in self.entity.waiting:
            self.entity.waiting.remove(self)
            self.detach("com.microsoft:timeout", "The operation did not complete within the allotted timeout.")

    def accept(self, session: Session) -> None:
        """The session is the link's own: answer the attach."""
        self.session = session
        ticks = session.locked_until * 10_000 + _TICKS_TO_1970
        self.answer(locked_until_utc=("long", ticks))
        self.entity.receivers.append(self)
        self.connection.touch()

    def answer(self, **properties: Value) -> None:
        """Answer the attach; a session is named in the source's filter."""
        if self.session is not None:
            source = lib.pn_link_source(self.impl)
            super().answer(**properties)
            engine.write(
                lib.pn_terminus_filter(source),
                ("map", [(("symbol", SESSION_FILTER), ("string", self.session.id))]),
            )
        else:
            super().answer(**properties)

    def refuse(self, condition: str, description: str) -> None:
        """Refuse the attach that waits."""
        self.detach(condition, description)

    def lose_session(self) -> None:
        """The lock of the session has ended."""
        self.session = None
        self.detach(SESSION_LOCK_LOST, "The session lock has expired on the message session.")

    def credit(self) -> int:
        """The credit that the client gave and that is not used."""
        credit: int = lib.pn_link_credit(self.impl)
        return credit

    def deliver(self, message: Message, tag: bytes) -> None:
        """Transfer a message."""
        engine.send(self.impl, tag, message.wire(), settled=self.deletes)
        self.connection.touch()

    def end_drain(self) -> None:
        """Consume the credit that is left, if the client asked for it, and report that."""
        if self.draining:
            self.draining = False
            lib.pn_link_drained(self.impl)
            self.entity.counts["drains"] += 1
            self.connection.touch()

    def closed(self) -> None:
        """The link is gone: its session is free; its messages stay locked, unless the options release them."""
        super().closed()
        entity = self.entity
        if self in entity.receivers:
            entity.receivers.remove(self)
        if self in entity.waiting:
            entity.waiting.remove(self)
        if self.session is not None and self.session.holder is self:
            entity.release_session(self.session, counted=False)
        for message in list(self.held.values()):
            message.holder = None
            if entity.broker.options.release_on_disconnect:
                entity.unlock(message, counted=False)
        self.held.clear()

    def told(self) -> dict[str, Any]:
        """The link as the control API reports it."""
        return {
            "role": "receiver",
            "kind": self.kind,
            "name": self.name,
            "credit": self.credit(),
            "unsettled": len(self.held),
            "session": self.session.id if self.session is not None else None,
            "waiting": self in self.entity.waiting,
        }


def wanted_session(impl: Any) -> list[str | None]:
    """The session that a client asks for: empty for none, ``[None]`` for the next available one."""
    found = engine.read(lib.pn_terminus_filter(lib.pn_link_remote_source(impl)))
    if found[0] == "map":
        for key, value in found[1]:
            if str(key[1]) == SESSION_FILTER:
                content = value[1][1] if value[0] == "described" else value
                return [content[1]]
    return []


def error_info(delivery: Any) -> dict[str, str | None]:
    """The info map of the error in a client's outcome."""
    condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
    info = engine.read(lib.pn_condition_info(condition))
    if info[0] != "map":
        return {}
    return {str(key[1]): None if value[1] is None else str(value[1]) for key, value in info[1]}
