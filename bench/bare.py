"""The baseline: an ASGI application that reads the body and answers."""

from __future__ import annotations

from typing import Any

ANSWER = b'{"id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","queue":"bench","broker":"local","attempts":0}'


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read, answer."""
    if scope["type"] != "http":
        return
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})
