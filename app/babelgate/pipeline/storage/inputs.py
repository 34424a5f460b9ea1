"""Describes what a task reads (split, options) and what it finds there (bodies, faults)."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

MAX_BODY_BYTES = 16 * 1024 * 1024
"""RabbitMQ's own maximum (https://www.rabbitmq.com/docs/configure, ``max_message_size``), the largest of the brokers'
defaults. Only the beginning of a larger body is kept, which bounds the memory of tasks."""
KEPT_BYTES = 65_536


class Split(NamedTuple):
    """A part of a file: the lines or row groups that begin in ``start`` to ``end``, in bytes; None: to its end."""

    url: str
    start: int
    end: int | None
    is_regular: bool


class ReadOptions(NamedTuple):
    """How to read a file. ``form``: as ``--format``; ``column``: of Parquet, None selects the only fitting one;
    ``max_bytes``: the largest body."""

    form: str = "auto"
    column: str | None = None
    max_bytes: int = MAX_BODY_BYTES


class Body(NamedTuple):
    """A body at ``at``: its offset in the unpacked file in bytes, or its row in a Parquet file or an export.

    ``size`` and ``sha256`` describe the whole body, also if ``content`` is only its beginning. ``fault``: reason and
    detail if no body could be read.
    """

    at: int
    content: bytes
    size: int
    sha256: str | None = None
    fault: tuple[str, str] | None = None


def truncated(body: Body, max_bytes: int) -> Body:
    """``body``; if it is larger than ``max_bytes``, its beginning with the fault ``too_large``."""
    if body.size <= max_bytes:
        return body
    whole = hashlib.sha256(body.content).hexdigest() if body.sha256 is None else body.sha256
    detail = f"It has {body.size} bytes, more than {max_bytes}; its beginning is kept."
    return body._replace(content=body.content[:KEPT_BYTES], sha256=whole, fault=body.fault or ("too_large", detail))


def fault_at(reason: str, detail: str, at: int = 0) -> Body:
    """A body-less entry for a place in a file where no body could be read."""
    return Body(at, b"", 0, fault=(reason, detail))


def first_line(error: Exception) -> str:
    """The first line of the text of ``error``, without a final full stop."""
    return str(error).partition("\n")[0].rstrip(".")
