"""A web server with a bundle of schemas."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Bundles:
    """What a server answers, and the requests that it got."""

    def __init__(self, port: int, body: bytes) -> None:
        self.url = f"http://127.0.0.1:{port}/schemas.json"
        self.status, self.body = 200, body
        self.etag: str | None = None
        self.location = ""
        self.headers: list[dict[str, str]] = []


@contextlib.contextmanager
def serve(body: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Bundles]:
    """``body``: of the bundle, until it is replaced."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.headers.append({name.lower(): value for name, value in self.headers.items()})
            same = made.etag is not None and self.headers["If-None-Match"] == made.etag
            self.send_response(304 if same else made.status)
            if made.etag is not None:
                self.send_header("ETag", made.etag)
            if made.location:
                self.send_header("Location", made.location)
            self.end_headers()
            if not same:
                with contextlib.suppress(OSError):
                    self.wfile.write(made.body)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        made = Bundles(server.server_port, body)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
