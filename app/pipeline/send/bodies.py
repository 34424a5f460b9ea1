"""A stored body as it is sent: its queue, its attempts and its dead-letter block, and the key that it is sent under.

All of it is a function of the body and of what the command was told, so that a run that is started again sends the same
bytes under the same key. Pure.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from app.envelope import Limits, Poison, Received, inspect
from app.jsontext import JsonSyntaxError, JsonTooDeep, ObjectText, decode_object, parse_object, quote

_LIMITS = Limits()
_QUEUE = re.compile(r"[A-Za-z0-9._-]{1,120}", re.ASCII)
_DIGITS = 32


class Unsendable(Exception):
    """A body that no request can carry. ``code``: why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Changes(NamedTuple):
    """What a message loses on its way."""

    reset_attempts: bool = False
    drop_dead_letter: bool = False


def is_queue(name: str) -> bool:
    """Whether a gateway has queues of that name: not a dead-letter queue's, nor what clients take out of a path."""
    return _QUEUE.fullmatch(name) is not None and name not in (".", "..") and not name.endswith(".dlq")


def outgoing(body: bytes | None, queue: str, changes: Changes) -> bytes:
    """``body`` as it goes to ``queue``, on one line. Its ``meta.queue`` becomes that queue, because the gateway takes
    no other; what else is wrong with it is the gateway's to say. Raises Unsendable.
    """
    if not body:
        raise Unsendable("no_body")
    if not queue:
        raise Unsendable("no_queue")
    if not is_queue(queue):
        raise Unsendable("invalid_queue")
    made = body if _stays(body, queue, changes) else _changed(body, queue, changes)
    # Valid JSON has line breaks between its tokens only.
    return made.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in made or b"\r" in made else made


def _stays(body: bytes, queue: str, changes: Changes) -> bool:
    try:
        received: Received = inspect(body, _LIMITS)
    except Poison:
        return False
    if received.queue != queue or (changes.reset_attempts and received.attempts != 0):
        return False
    return not (changes.drop_dead_letter and b'"dead_letter"' in body)


def _changed(body: bytes, queue: str, changes: Changes) -> bytes:
    try:
        frame = decode_object(body)
        _move(frame, queue)
    except JsonSyntaxError:
        raise Unsendable("invalid_json") from None
    except (JsonTooDeep, RecursionError):
        raise Unsendable("too_deep") from None
    if changes.drop_dead_letter:
        frame.remove("dead_letter")
    attempts = frame.by_name().get("attempts")
    if changes.reset_attempts and attempts is not None:
        attempts.raw = "0"
        frame.remove("attempts", but=attempts)
    return str(frame).encode()


def _move(frame: ObjectText, queue: str) -> None:
    meta = frame.by_name().get("meta")
    if meta is None or not isinstance(meta.value, dict) or not isinstance(meta.value.get("queue"), str):
        return
    if meta.value["queue"] != queue:
        inner = parse_object(meta.raw)
        named = inner.by_name()["queue"]
        named.raw = quote(queue)
        inner.remove("queue", but=named)
        meta.raw = str(inner)


def key_of(run: str, queue: str, identity: str) -> str:
    """The idempotency key of a message in a run, whatever batch and task it comes to."""
    return f"{run}:{_digest(queue, identity)}"


def key_after(key: str) -> str:
    """The key under which a message is published again whose fate under ``key`` nobody knows."""
    return f"{key.rpartition(':')[0]}:{_digest(key)}"


def entry(body: bytes, key: str) -> bytes:
    """A line of a batch. ``body``: as :func:`outgoing` makes it."""
    return b'{"envelope":%b,"idempotency_key":"%b"}' % (body, key.encode())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]
