"""Bodies of answers that are sent in parts, between which the event loop serves other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from starlette.types import Send

PART_BYTES = 262_144
"""Larger answers are sent in parts of this size."""


class Parts(NamedTuple):
    """A body of ``length`` bytes, generated while it is sent."""

    length: int
    parts: Iterable[bytes]


def json_list(head: bytes, texts: Sequence[bytes], tail: bytes) -> Parts:
    """A JSON document: ``head``, ``texts`` with commas between them, and ``tail``."""

    def parts() -> Iterator[bytes]:
        part, size = [head], 0
        for index, text in enumerate(texts):
            part += (b",", text) if index else (text,)
            size += len(text)
            if size > PART_BYTES:
                yield b"".join(part)
                part, size = [], 0
        yield b"".join((*part, tail))

    return Parts(len(head) + sum(map(len, texts)) + max(len(texts) - 1, 0) + len(tail), parts())


def cut(body: bytes, size: int = PART_BYTES) -> Iterator[bytes]:
    """``body`` in parts of ``size`` bytes."""
    return (body[at : at + size] for at in range(0, len(body), size))


async def send_parts(send: Send, parts: Iterable[bytes]) -> None:
    """Send ``parts`` as fast as the client reads, and let the event loop serve other requests between them."""
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(0)
