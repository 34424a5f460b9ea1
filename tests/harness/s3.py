"""A real S3 endpoint over HTTP, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
from moto.server import ThreadedMotoServer


@contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """An empty store; the variables by which its clients find it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        # What it holds outlives it, as long as the process does.
        httpx.post(f"{url}/moto-api/reset").raise_for_status()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "a secret key",
            "AWS_DEFAULT_REGION": "us-east-1",
            # Of the client of Delta Lake.
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.stop()
