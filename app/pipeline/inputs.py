"""What a task reads, and what it finds there."""

from __future__ import annotations

from typing import NamedTuple

MAX_BODY_BYTES = 64 * 1024 * 1024
"""A larger one is no message of any broker; of it only the beginning is kept."""
KEPT_BYTES = 65_536


class Split(NamedTuple):
    """A part of a file: lines, or row groups, that begin at ``start`` or later and before ``end``; None: to the end."""

    url: str
    start: int
    end: int | None
    is_regular: bool


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


def fault(reason: str, detail: str, at: int = 0) -> Body:
    """A place where no body could be read."""
    return Body(at, b"", 0, fault=(reason, detail))


def told(error: Exception) -> str:
    """The first line of what ``error`` says, as a part of a sentence."""
    return str(error).partition("\n")[0].rstrip(".")
