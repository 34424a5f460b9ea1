"""The control API: JSON over HTTP below ``/control/``.

| request | does |
|---|---|
| `GET state` | options, defaults, clock and counters |
| `POST options`, `POST defaults` | change the emulator's settings, or those of new queues |
| `POST queue` `{name, settings}` | create the queue or change its settings |
| `DELETE queue` `{name}` | remove a queue |
| `POST advance` `{seconds}` | move the clock |
| `GET messages?entity=` | every stored message with all its fields |
| `POST inject` `{entity, messages}` | store messages: `{body}`, `{raw}` (both base64), or fields |
| `POST purge` `{entity}` | remove every message |
| `GET counts?queue=` | the counts of a queue |
| `GET entity?entity=` | links with their credit, and counters |
| `GET faults`, `POST faults`, `DELETE faults` | the faults that are on |
| `POST lose_lock` `{entity, token}` | end a lock, or all locks of an entity; counted as a failed delivery |
| `POST detach` `{entity, condition, description, kind}` | close links with an error |
| `POST disconnect` | drop every connection |
| `POST reset` | remove all queues and faults; settings as at first; the clock stays |
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tools.servicebus_emulator import atom
from tools.servicebus_emulator.broker import Broker
from tools.servicebus_emulator.codec import NULL, Value
from tools.servicebus_emulator.connection import Connection
from tools.servicebus_emulator.entity import Entity
from tools.servicebus_emulator.links import Link
from tools.servicebus_emulator.message import (
    ANNOTATIONS,
    APPLICATION_PROPERTIES,
    CONTENT_TYPE,
    DATA,
    HEADER,
    PROPERTIES,
    PROPERTY_NAMES,
    build,
)
from tools.servicebus_emulator.settings import Options, QueueSettings
from tools.servicebus_emulator.web import JSON, Call, Failure

PREFIX = "/control/"


class Control:
    """Answers requests; every call runs on the broker's event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._calls: dict[tuple[str, str], Callable[[Mapping[str, Any]], Any]] = {
            ("GET", "state"): self._state,
            ("POST", "options"): self._options,
            ("POST", "defaults"): self._defaults,
            ("POST", "queue"): self._queue,
            ("DELETE", "queue"): self._delete_queue,
            ("POST", "advance"): lambda given: broker.advance(float(given["seconds"])),
            ("GET", "messages"): self._messages,
            ("POST", "inject"): self._inject,
            ("POST", "purge"): self._purge,
            ("GET", "counts"): self._counts,
            ("GET", "entity"): self._entity_state,
            ("GET", "faults"): lambda given: [fault.json() for fault in broker.faults.all],
            ("POST", "faults"): self._add_fault,
            ("DELETE", "faults"): self._clear_faults,
            ("POST", "lose_lock"): self._lose_lock,
            ("POST", "detach"): self._detach,
            ("POST", "disconnect"): self._disconnect,
            ("POST", "reset"): self._reset,
        }

    def answer(self, call: Call) -> tuple[str, bytes]:
        """Answer a request of the control API or for a description."""
        if not call.path.startswith(PREFIX):
            return atom.describe(self._broker, call)
        action = self._calls.get((call.method, call.path[len(PREFIX) :]))
        if action is None:
            raise Failure(404, f"{call.method} {call.path} is unknown")
        told = action({**call.query, **call.json()})
        self._broker.flush()
        return JSON, json.dumps(told).encode()

    def _known(self, given: Mapping[str, Any], name: str = "entity") -> Entity:
        path = str(given[name])
        key = path.lower().removesuffix("/$deadletterqueue")
        queue = self._broker.queues.get(key)
        if queue is None:
            queue = self._broker.create(path[: len(key)])
        return queue.main if key == path.lower() else queue.dead

    def _state(self, given: Mapping[str, Any]) -> Any:
        broker = self._broker
        return {
            "now": broker.now(),
            "options": broker.options.json(),
            "defaults": broker.defaults.json(),
            "queues": sorted(queue.name for queue in broker.queues.values()),
            "connections": len(broker.peers),
            "counters": dict(broker.counts),
        }

    def _options(self, given: Mapping[str, Any]) -> Any:
        self._broker.set_options(given)
        return self._broker.options.json()

    def _defaults(self, given: Mapping[str, Any]) -> Any:
        self._broker.set_defaults(given)
        return self._broker.defaults.json()

    def _queue(self, given: Mapping[str, Any]) -> Any:
        queue = self._known(given, "name").queue
        self._broker.change(queue, given.get("settings") or {})
        return queue.settings.json()

    def _delete_queue(self, given: Mapping[str, Any]) -> Any:
        queue = self._broker.queues.get(str(given["name"]).lower())
        if queue is None:
            return False
        for entity in (queue.main, queue.dead):
            for link in self._links(entity):
                link.detach("amqp:not-found", "The messaging entity was deleted.")
        self._broker.delete(queue)
        return True

    def _messages(self, given: Mapping[str, Any]) -> Any:
        now = self._broker.now()
        return [message.native(now) for message in self._known(given).ordered()]

    def _inject(self, given: Mapping[str, Any]) -> Any:
        raws = [encoded(fields) for fields in given["messages"]]
        return [number for raw in raws for number in self._broker.accept(self._known(given), [raw], len(raw))]

    def _purge(self, given: Mapping[str, Any]) -> Any:
        entity = self._known(given)
        messages = list(entity.messages.values())
        for message in messages:
            entity.remove(message)
        return len(messages)

    def _counts(self, given: Mapping[str, Any]) -> Any:
        return atom.counts(self._known(given, "queue").queue)

    def _links(self, entity: Entity) -> list[Link]:
        return [
            link
            for peer in self._broker.peers
            if isinstance(peer, Connection)
            for link in list(peer.links.values())
            if link.entity is entity
        ]

    def _entity_state(self, given: Mapping[str, Any]) -> Any:
        entity = self._known(given)
        return {
            "path": entity.path,
            "settings": entity.queue.settings.json(),
            "links": [link.told() for link in self._links(entity)],
            "counters": dict(entity.counts),
            "locks": len(entity.tokens),
            "held": len(entity.held),
        }

    def _add_fault(self, given: Mapping[str, Any]) -> Any:
        faults = self._broker.faults
        return faults.add(given["kind"], given.get("entity"), given.get("operation"), given.get("times")).json()

    def _clear_faults(self, given: Mapping[str, Any]) -> Any:
        broker = self._broker
        broker.faults.clear(given.get("id"))
        for queue in broker.queues.values():
            for entity in (queue.main, queue.dead):
                if not broker.faults.hangs(entity.key):
                    held, entity.held = entity.held, []
                    for link, action in held:
                        if link.open:
                            action()
                            link.connection.touch()
                    broker.offer(entity)
        return True

    def _lose_lock(self, given: Mapping[str, Any]) -> Any:
        entity = self._known(given)
        wanted = given.get("token")
        found = [
            message
            for token, message in list(entity.tokens.items())
            if wanted is None or uuid.UUID(bytes_le=token) == uuid.UUID(wanted)
        ]
        for message in found:
            entity.unlock(message, counted=True)
        return len(found)

    def _detach(self, given: Mapping[str, Any]) -> Any:
        kind = given.get("kind")
        found = [link for link in self._links(self._known(given)) if kind is None or link.told()["role"] == kind]
        for link in found:
            link.detach(given.get("condition") or "amqp:link:detach-forced", given.get("description") or "Detached.")
        return len(found)

    def _reset(self, given: Mapping[str, Any]) -> Any:
        broker = self._broker
        broker.faults.clear()
        for name in list(broker.queues):
            self._delete_queue({"name": name})
        broker.set_defaults(QueueSettings().json())
        broker.set_options(Options().json())
        return True

    def _disconnect(self, given: Mapping[str, Any]) -> Any:
        peers = [peer for peer in self._broker.peers if isinstance(peer, Connection)]
        for peer in peers:
            peer.abort()
        return len(peers)


def encoded(given: Mapping[str, Any]) -> bytes:
    """An encoded message of fields.

    ``raw`` is a whole encoded message, ``body`` the bytes of one data section, both base64. The standard properties go
    by their names; application properties and annotations are ``{name: {"type": ..., "value": ...}}``.
    """
    if "raw" in given:
        return base64.b64decode(given["raw"])
    sections: dict[int, Value] = {DATA: ("binary", base64.b64decode(given.get("body") or ""))}
    listed: list[Value] = [NULL] * len(PROPERTY_NAMES)
    for index, name in enumerate(PROPERTY_NAMES):
        value = given.get(name)
        if isinstance(value, Mapping):
            listed[index] = _value(value)
        elif value is not None:
            listed[index] = ("symbol" if CONTENT_TYPE <= index <= CONTENT_TYPE + 1 else "string", value)
    if any(value is not NULL for value in listed):
        sections[PROPERTIES] = ("list", listed)
    if given.get("ttl") is not None:
        sections[HEADER] = ("list", [NULL, NULL, ("uint", given["ttl"])])
    for member, code, kind in (
        ("application_properties", APPLICATION_PROPERTIES, "string"),
        ("annotations", ANNOTATIONS, "symbol"),
    ):
        if given.get(member):
            sections[code] = ("map", [((kind, name), _value(value)) for name, value in given[member].items()])
    return build(sections)


def _value(given: Mapping[str, Any]) -> Value:
    name, value = given["type"], given["value"]
    if name in ("binary", "decimal32", "decimal64", "decimal128"):
        return name, base64.b64decode(value)
    if name == "uuid":
        return name, uuid.UUID(value)
    return name, value
