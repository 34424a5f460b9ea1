"""What a task reads, and what it finds there."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

MAX_BODY_BYTES = 16 * 1024 * 1024
"""RabbitMQ's own maximum (https://www.rabbitmq.com/docs/configure, ``max_message_size``), the largest of the brokers'
defaults. Of a larger body only the beginning is kept: what tasks hold in memory has a bound."""
KEPT_BYTES = 65_536


class Split(NamedTuple):
    """A part of a file: lines, or row groups, that begin at ``start`` or later and before ``end``; None: to the end."""

    url: str
    start: int
    end: int | None
    is_regular: bool


class ReadOptions(NamedTuple):
    """How to read. ``form``: as the command's ``--format``; ``column``: of Parquet, None for the only fitting one;
    ``max_bytes``: of a body."""

    form: str = "auto"
    column: str | None = None
    max_bytes: int = MAX_BODY_BYTES


class Body(NamedTuple):
    """A body at ``at``: its offset in the unpacked file in bytes, or its row in a Parquet file or an export.

    ``size`` and ``sha256`` are those of the whole body where ``content`` is only its beginning. ``fault``: reason and
    detail where this is no body.
    """

    at: int
    content: bytes
    size: int
    sha256: str | None = None
    fault: tuple[str, str] | None = None


def truncated(body: Body, max_bytes: int) -> Body:
    """``body``, or its beginning and a fault where it is too large."""
    if body.size <= max_bytes:
        return body
    whole = hashlib.sha256(body.content).hexdigest() if body.sha256 is None else body.sha256
    detail = f"It has {body.size} bytes, more than {max_bytes}; its beginning is kept."
    return body._replace(content=body.content[:KEPT_BYTES], sha256=whole, fault=body.fault or ("too_large", detail))


def fault_at(reason: str, detail: str, at: int = 0) -> Body:
    """A place where no body could be read."""
    return Body(at, b"", 0, fault=(reason, detail))


def first_line(error: Exception) -> str:
    """The first line of what ``error`` says, as a part of a sentence."""
    return str(error).partition("\n")[0].rstrip(".")
