"""The nodes ``$management`` of entities and ``$cbs``: requests and their answers.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tools.servicebus_emulator.codec import NULL, Malformed, Value, decode, fields, plain
from tools.servicebus_emulator.entity import SESSION_LOCK_LOST, Entity
from tools.servicebus_emulator.faults import Refused
from tools.servicebus_emulator.links import path_of
from tools.servicebus_emulator.message import (
    ACTIVE,
    APPLICATION_PROPERTIES,
    DEFERRED,
    PROPERTIES,
    SCHEDULED,
    VALUE,
    Message,
    build,
    sections,
)

if TYPE_CHECKING:
    from tools.servicebus_emulator.broker import Broker

# The faults that apply to operations; the others have the faults of management.
FAULTS = {"update-disposition": "disposition", "schedule-message": "send"}
_VENDOR = "com.microsoft:"


class Request:
    """A request. ``operation`` is its name without the vendor's prefix."""

    def __init__(self, raw: bytes) -> None:
        self.id: Value = NULL
        self.reply_to = ""
        self.properties: dict[str, Any] = {}
        self.body: dict[str, Any] = {}
        for code, _, content in sections(raw):
            if code == PROPERTIES:
                listed = decode(raw, content)[0][1]
                self.id = listed[0] if listed else NULL
                self.reply_to = (listed[4][1] or "") if len(listed) > 4 else ""
            elif code == APPLICATION_PROPERTIES:
                self.properties = plain(decode(raw, content)[0])
            elif code == VALUE:
                found = plain(decode(raw, content)[0])
                self.body = found if isinstance(found, dict) else {}
        self.operation = str(self.properties.get("operation", "")).removeprefix(_VENDOR)

    def reply(self, names: tuple[str, str], status: int, text: str, condition: str | None, body: Value) -> bytes:
        """The answer; ``names`` are those of the status and its description."""
        properties: list[tuple[Value, Value]] = [
            (("string", names[0]), ("int", status)),
            (("string", names[1]), ("string", text)),
        ]
        if condition is not None:
            properties.append((("string", "errorCondition"), ("symbol", condition)))
        return build(
            {
                PROPERTIES: ("list", [NULL, NULL, NULL, NULL, NULL, self.id]),
                APPLICATION_PROPERTIES: ("map", properties),
                VALUE: body,
            }
        )


def put_token(broker: Broker, request: Request) -> bytes:
    """Accept a token, unless a fault refuses it."""
    broker.counts["tokens"] += 1
    audience = path_of(str(request.properties.get("name", ""))).lower()
    if broker.faults.hit("refuse_tokens", audience):
        status, text = 401, "InvalidToken: The token is refused."
    else:
        status, text = 202, "Accepted"
    return request.reply(("status-code", "status-description"), status, text, None, NULL)


def answer(entity: Entity, request: Request) -> bytes:
    """Carry out a request."""
    names = ("statusCode", "statusDescription")
    try:
        if entity.broker.faults.hit("throttle", entity.key, "management"):
            raise Refused("com.microsoft:server-busy", "The entity is being throttled.", 503)
        operation = _OPERATIONS.get(request.operation)
        if operation is None:
            raise Refused("amqp:not-implemented", f"Unknown operation {request.operation}.", 501)
        if entity.queue.settings.disabled and request.operation != "peek-message":
            raise Refused("com.microsoft:entity-disabled", f"The entity '{entity.path}' is disabled.", 403)
        body = operation(entity, request)
    except Refused as refused:
        return request.reply(names, refused.status, refused.description, refused.condition, NULL)
    except (KeyError, TypeError, AttributeError, Malformed) as error:
        return request.reply(names, 400, f"Bad request: {error!r}", "com.microsoft:argument-error", NULL)
    if body is None:
        return request.reply(names, 204, "NoContent", None, NULL)
    return request.reply(names, 200, "OK", None, body)


def _locked(entity: Entity, request: Request) -> list[Message]:
    if entity.sessionful:
        _session_id(entity, request)
    return [entity.locked(token.bytes_le) for token in request.body["lock-tokens"]]


def _renew_lock(entity: Entity, request: Request) -> Value:
    messages = _locked(entity, request)
    until = entity.broker.now() + int(entity.queue.settings.lock_seconds * 1000)
    for message in messages:
        message.locked_until = until
        entity.broker.store.save(message)
    return fields(expirations=("array", ("timestamp", [until] * len(messages))))


def _update_disposition(entity: Entity, request: Request) -> Value:
    status = request.body["disposition-status"]
    settle: dict[str, Callable[[Message], None]] = {
        "completed": entity.complete,
        "abandoned": entity.abandon,
        "defered": entity.defer,
        "suspended": lambda message: entity.dead_letter(
            message, request.body.get("deadletter-reason"), request.body.get("deadletter-description")
        ),
    }
    if status not in settle:
        raise Refused("com.microsoft:argument-error", f"Unknown disposition {status}.")
    for message in _locked(entity, request):
        settle[status](message)
    return ("map", [])


def _schedule(entity: Entity, request: Request) -> Value:
    raws = [item["message"] for item in request.body["messages"]]
    numbers = entity.broker.accept(entity, raws, sum(map(len, raws)), schedules=True)
    return fields(sequence_numbers=("array", ("long", numbers)))


def _cancel(entity: Entity, request: Request) -> Value:
    for message in _numbered(entity, request, SCHEDULED):
        entity.remove(message)
    return ("map", [])


def _numbered(entity: Entity, request: Request, state: int) -> list[Message]:
    found = []
    for number in request.body["sequence-numbers"]:
        message = entity.messages.get(number)
        if message is None or message.state != state or message.token is not None:
            text = f"Failed to find message with sequence number {number}."
            raise Refused("com.microsoft:message-not-found", text, 404)
        found.append(message)
    return found


def _peek(entity: Entity, request: Request) -> Value | None:
    wanted = int(request.body["message-count"])
    session = request.body.get("session-id")
    now = entity.broker.now()
    found: list[Value] = []
    for message in entity.ordered(int(request.body["from-sequence-number"])):
        if len(found) >= wanted:
            break
        if (session is None or message.session == session) and not (message.expires and message.expires <= now):
            found.append(fields(message=("binary", message.wire(peeked=True))))
    return fields(messages=("list", found)) if found else None


def _receive_deferred(entity: Entity, request: Request) -> Value:
    found: list[Value] = []
    deletes = request.body.get("receiver-settle-mode") == 0
    session = entity.sessions.get(request.body.get("session-id") or "") if entity.sessionful else None
    for message in _numbered(entity, request, DEFERRED):
        if deletes:
            found.append(fields(message=("binary", message.wire())))
            entity.remove(message)
        else:
            token = entity.lock(message, entity.broker.now(), session)
            told = {"lock_token": ("uuid", uuid.UUID(bytes_le=token)), "message": ("binary", message.wire())}
            found.append(fields(**told))
    return fields(messages=("list", found))


def _session_id(entity: Entity, request: Request) -> str:
    identifier = request.body["session-id"]
    session = entity.sessions.get(identifier)
    if session is None or session.holder is None:
        raise Refused(SESSION_LOCK_LOST, f"The lock of session '{identifier}' is not held.", 410)
    return str(identifier)


def _renew_session_lock(entity: Entity, request: Request) -> Value:
    until = entity.renew_session(entity.session(_session_id(entity, request)))
    return fields(expiration=("timestamp", until))


def _set_session_state(entity: Entity, request: Request) -> Value:
    session = entity.session(_session_id(entity, request))
    state = request.body["session-state"]
    session.state = None if state is None else bytes(state)
    session.updated = entity.broker.now()
    entity.broker.store.save_session(entity.queue, session)
    return ("map", [])


def _get_session_state(entity: Entity, request: Request) -> Value:
    state = entity.session(_session_id(entity, request)).state
    return fields(session_state=NULL if state is None else ("binary", state))


def _message_sessions(entity: Entity, request: Request) -> Value | None:
    # A time after the year 9999 asks for all sessions with messages or a state.
    after = int(request.body["last-updated-time"])
    everything = after > 253402300799999
    busy = {message.session for message in entity.messages.values() if message.state == ACTIVE}
    names = sorted(
        session.id
        for session in entity.sessions.values()
        if (everything and (session.id in busy or session.state is not None))
        or (not everything and session.updated > after)
    )
    skip, top = int(request.body["skip"]), int(request.body["top"])
    page = names[skip : skip + top]
    if not page:
        return None
    listed: list[tuple[Value, Value]] = [
        (("string", "skip"), ("int", skip + len(page))),
        (("string", "sessions-ids"), ("array", ("string", page))),
    ]
    return ("map", listed)


def _batch_delete(entity: Entity, request: Request) -> Value | None:
    before = int(request.body["enqueued-time-utc"])
    found = [
        message
        for message in entity.ordered()
        if message.state == ACTIVE and message.token is None and message.enqueued <= before
    ][: int(request.body["message-count"])]
    for message in found:
        entity.remove(message)
    return fields(message_count=("int", len(found))) if found else None


_OPERATIONS: dict[str, Callable[[Entity, Request], Value | None]] = {
    "renew-lock": _renew_lock,
    "update-disposition": _update_disposition,
    "schedule-message": _schedule,
    "cancel-scheduled-message": _cancel,
    "peek-message": _peek,
    "receive-by-sequence-number": _receive_deferred,
    "renew-session-lock": _renew_session_lock,
    "set-session-state": _set_session_state,
    "get-session-state": _get_session_state,
    "get-message-sessions": _message_sessions,
    "batch-delete-messages": _batch_delete,
}
