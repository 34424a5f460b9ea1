"""What the handlers of pages return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HTML = b"text/html; charset=utf-8"


class PageAnswer(NamedTuple):
    """An answer to a browser. ``cookies``: the values of its Set-Cookie fields."""

    status: int
    body: bytes
    content_type: bytes = HTML
    headers: Sequence[tuple[bytes, bytes]] = ()
    cookies: tuple[bytes, ...] = ()
