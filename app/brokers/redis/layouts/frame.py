"""The frame in which the SDKs carry headers on a Redis list: a JSON object around the envelope's text.

``{"__bq_frame":1,"headers":{…},"body":"<envelope>"}``; an envelope never has the key ``__bq_frame``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from app.brokers.binding import NO_HEADERS

_KEY = "__bq_frame"
MARK = b'"__bq_frame"'
"""What the text of every frame holds."""


def frame(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The element for ``body`` with ``headers``: a frame, or the body itself when no header has a name and a value."""
    if not headers:
        return body
    kept = {name: value for name, value in headers.items() if name and value}
    if not kept:
        return body
    whole = {_KEY: 1, "headers": kept, "body": body.decode("utf-8")}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def unframe(element: bytes) -> tuple[bytes, Mapping[str, str]]:
    """Body and headers of a stored element. What is no frame is a body, whatever it is."""
    if MARK not in element or not element.startswith(b"{"):
        return element, NO_HEADERS
    try:
        whole = json.loads(element)
        if not whole.get(_KEY) or not isinstance(whole.get("body"), str):
            return element, NO_HEADERS
        body = whole["body"].encode("utf-8")
    except (ValueError, RecursionError):
        return element, NO_HEADERS
    headers = whole.get("headers")
    if not isinstance(headers, dict):
        return body, NO_HEADERS
    return body, {name: text for name, value in headers.items() if name and (text := _text(value))}


def _text(value: object) -> str:
    return "" if value is None else str(value)
