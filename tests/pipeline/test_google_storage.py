"""Folders of Google Cloud Storage, which lists those only that a request asks for by a delimiter."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from babelgate.pipeline.storage.arrow_files import ArrowFiles

LANDING = "gs://anonymous@bucket/landing"
NAMES = (
    "landing/_spool.json",
    "landing/date=2026-01-01/hour=07/b.gz",
    "landing/date=2026-01-01/a.gz",
    "landing-2/c.gz",
)


class Store(BaseHTTPRequestHandler):
    """The objects :data:`NAMES`, as the JSON API describes and lists them.

    https://cloud.google.com/storage/docs/json_api/v1/objects
    """

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if asked.path.endswith("/o"):
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
            below = [name for name in NAMES if name.startswith(prefix)]
            inner = {name for name in below if delimiter and delimiter in name[len(prefix) :]}
            folders = sorted({prefix + name[len(prefix) :].partition("/")[0] + "/" for name in inner})
            self._answer(200, {"items": [described(each) for each in below if each not in inner], "prefixes": folders})
        elif (name := unquote(asked.path.rpartition("/o/")[2])) in NAMES:
            self._answer(200, described(name))
        else:
            self._answer(404, {"error": {"code": 404, "message": "not found"}})

    def _answer(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def described(name: str) -> dict[str, object]:
    at = "2026-01-01T00:00:00Z"
    return {"kind": "storage#object", "name": name, "bucket": "bucket", "size": "5", "timeCreated": at, "updated": at}


@pytest.fixture
def landed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ArrowFiles]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Of Google's library, for a server in place of its own.
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            yield ArrowFiles(LANDING)
        finally:
            server.shutdown()


def test_folders_that_are_no_objects_are_listed(landed: ArrowFiles) -> None:
    assert landed.is_object_store and landed.exists(LANDING) and not landed.exists(f"{LANDING}/date=2026-01-02")
    entries = [("_spool.json", False), ("date=2026-01-01", True)]
    assert [(each.url.removeprefix(f"{LANDING}/"), each.is_folder) for each in landed.list(LANDING)] == entries
    assert landed.folders(LANDING, "date=") == ["2026-01-01"]
    assert [each.url for each in landed.list(f"{LANDING}/date=2026-01-01")] == [
        f"{LANDING}/date=2026-01-01/{name}" for name in ("a.gz", "hour=07")
    ]


def test_all_files_below_are_found(landed: ArrowFiles) -> None:
    found = [(each.url.removeprefix(f"{LANDING}/"), each.size, each.modified_at) for each in landed.walk(LANDING)]
    names = ["_spool.json", "date=2026-01-01/a.gz", "date=2026-01-01/hour=07/b.gz"]
    assert found == [(name, 5, 1_767_225_600_000) for name in names]
    assert landed.size(LANDING) == 15
