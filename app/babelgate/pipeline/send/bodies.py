"""Prepares a stored body for sending: its queue, attempts, dead-letter block and idempotency key. Pure.

The result depends only on the body and the options of the command, so a restarted run sends the same bytes under the
same key.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from babelgate.envelope import Limits, Poison, Received, inspect
from babelgate.jsontext import JsonSyntaxError, JsonTooDeep, ObjectText, decode_object, parse_object, quote

_LIMITS = Limits()
_QUEUE = re.compile(r"[A-Za-z0-9._-]{1,120}", re.ASCII)
_DIGITS = 32


class Unsendable(Exception):
    """A body that cannot be sent. ``code``: the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Changes(NamedTuple):
    """The changes that the options request."""

    reset_attempts: bool = False
    drop_dead_letter: bool = False


def is_queue(name: str) -> bool:
    """Whether ``name`` is a queue name for sending: no dead-letter queue, and no ``.`` or ``..``, which URLs drop."""
    return _QUEUE.fullmatch(name) is not None and name not in (".", "..") and not name.endswith(".dlq")


def outgoing(body: bytes | None, queue: str, changes: Changes) -> bytes:
    """``body`` as sent to ``queue``, on one line. Raises Unsendable.

    ``meta.queue`` is set to ``queue``, because the gateway accepts no other. Other faults are left to the gateway.
    """
    if not body:
        raise Unsendable("no_body")
    if not queue:
        raise Unsendable("no_queue")
    if not is_queue(queue):
        raise Unsendable("invalid_queue")
    made = body if _is_unchanged(body, queue, changes) else _changed(body, queue, changes)
    # Valid JSON has line breaks only between tokens.
    return made.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in made or b"\r" in made else made


def _is_unchanged(body: bytes, queue: str, changes: Changes) -> bool:
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
    """The idempotency key of a message in a run, independent of its batch and task."""
    return f"{run}:{_digest(queue, identity)}"


def key_after(key: str) -> str:
    """The next key of a message whose outcome under ``key`` is unknown."""
    return f"{key.rpartition(':')[0]}:{_digest(key)}"


def entry(body: bytes, key: str, headers: str | None = None, ordering_key: str | None = None) -> bytes:
    """A line of an NDJSON batch. ``body``: from :func:`outgoing`; ``headers``: a JSON object on one line."""
    more = b"" if headers is None else b',"headers":%b' % headers.encode()
    if ordering_key is not None:
        more += b',"ordering_key":%b' % quote(ordering_key).encode()
    return b'{"envelope":%b,"idempotency_key":"%b"%b}' % (body, key.encode(), more)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]
