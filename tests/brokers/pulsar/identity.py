"""Identities of clients of a guarded Pulsar server: JSON Web Tokens, and a provider that grants them by OAuth 2.0."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

SECRET_KEY = b"a key of thirty-two bytes or more"
"""That of the server's AuthenticationProviderToken, and of the provider."""


def token(subject: str, lasts_seconds: float | None = None, key: bytes = SECRET_KEY) -> str:
    """A JSON Web Token. ``lasts_seconds``: from now on, negative for one that has expired; None: without an end."""
    claims: dict[str, Any] = {"sub": subject}
    if lasts_seconds is not None:
        claims["exp"] = time.time() + lasts_seconds

    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    head = encoded(json.dumps({"alg": "HS256"}).encode()) + "." + encoded(json.dumps(claims).encode())
    return head + "." + encoded(hmac.new(key, head.encode(), hashlib.sha256).digest())


class TokenProvider:
    """Grants tokens to the client ``shop``. ``url``: that of the issuer. ``asked``: the requests for tokens so far."""

    def __init__(self, port: int, lasts_seconds: float) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.lasts_seconds = lasts_seconds
        self.asked: list[dict[str, str]] = []

    def answer(self, request: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """The status and the content of the answer to a request for a token."""
        self.asked.append(request)
        if (request.get("client_id"), request.get("client_secret")) != ("shop", "a secret"):
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        made = token("shop", self.lasts_seconds)
        return 200, {"access_token": made, "token_type": "Bearer", "expires_in": self.lasts_seconds}


@contextmanager
def token_provider(lasts_seconds: float = 3600) -> Iterator[TokenProvider]:
    """A running provider."""

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/.well-known/openid-configuration"
            self._reply(200 if found else 404, {"token_endpoint": f"{provider.url}/token"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._reply(*provider.answer(dict(parse_qsl(body.decode()))))

        def _reply(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Requests) as server:
        provider = TokenProvider(server.server_port, lasts_seconds)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield provider
        server.shutdown()
        serving.join()
