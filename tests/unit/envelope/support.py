"""What the tests of the envelope codec share: a full envelope, and short ways to read and to break it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from babelgate.envelope import Limits, Publication, read_publication
from babelgate.errors import EnvelopeError

LIMITS = Limits()
NOW = 1_749_132_727_000
TRACE = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
FULL: dict[str, Any] = {
    "job": "urn:babel:orders:created",
    "trace_id": TRACE,
    "data": {"order_id": 1042},
    "meta": {"id": "m-1", "queue": "orders", "lang": "php", "schema_version": 1, "created_at": 5},
    "attempts": 2,
}


def read(body: Any, limits: Limits = LIMITS) -> Publication:
    if not isinstance(body, bytes):
        body = body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()
    return read_publication(body, "orders", limits, lambda: NOW)


def compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def problems(body: Any, limits: Limits = LIMITS) -> list[tuple[str, str]]:
    with pytest.raises(EnvelopeError) as refused:
        read(body, limits)
    assert all(problem.detail for problem in refused.value.problems)
    return [(problem.code, problem.pointer) for problem in refused.value.problems]


def changed(pointer: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(FULL))
    *path, name = pointer.split("/")[1:]
    (document[path[0]] if path else document)[name] = value
    return document


def without(*pointers: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(FULL))
    for pointer in pointers:
        *path, name = pointer.split("/")[1:]
        del (document[path[0]] if path else document)[name]
    return document


def is_uuid4(text: str) -> bool:
    parsed = uuid.UUID(text)
    return str(parsed) == text and parsed.version == 4 and parsed.variant == uuid.RFC_4122
