"""Folders of Google Cloud Storage, which lists those only that a request asks for by a delimiter."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import pytest

from babelgate import __version__
from babelgate.pipeline.journal.commits import Commit, CommitContent, DamagedFile
from babelgate.pipeline.journal.ingest_unchanged import ingested_already
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader, run_id

AT = 1_767_225_600_000
LANDING = "gs://anonymous@bucket/landing"
NAMES = (
    "landing/_spool.json",
    "landing/date=2026-01-01/hour=07/b.gz",
    "landing/date=2026-01-01/a.gz",
    "landing-2/c.gz",
)


class Server(ThreadingHTTPServer):
    """``listed``: the prefix of each listing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Store)
        self.listed: list[str] = []


class Store(BaseHTTPRequestHandler):
    """The objects :data:`NAMES`, as the JSON API describes and lists them.

    https://cloud.google.com/storage/docs/json_api/v1/objects
    """

    server: Server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if asked.path.endswith("/o"):
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
            # Arrow asks without it whether there is a folder, and reads the first entry only.
            if "includeTrailingDelimiter" in query:
                self.server.listed.append(prefix)
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
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Of Google's library, for a server in place of its own.
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture
def landed(server: Server) -> ArrowFiles:
    return ArrowFiles(LANDING)


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
    assert found == [(name, 5, AT) for name in names]
    assert landed.size(LANDING) == 15


def test_what_has_landed_is_listed_once_whatever_is_damaged(server: Server, tmp_path: Path) -> None:
    store = DatasetReader.without_spark(str(tmp_path))
    store.publish(["journal_gaps"], run_id("gaps", [], {}), {})

    def commit(*sizes: int) -> None:
        damaged = [
            DamagedFile(f"gs://anonymous@bucket/{name}", size, AT, "truncated_file", __version__)
            for name, size in zip(NAMES[1:3], sizes, strict=True)
        ]
        made = Commit(
            batch="one",
            committed_at=AT,
            folder=None,
            corrupt_folder=None,
            dates={},
            content=CommitContent(damaged=damaged),
        )
        store.files.write(f"{store.folder('journal')}/_batches/one.json", msgspec.json.encode(made))

    commit(5, 5)
    assert ingested_already(LANDING, str(tmp_path)) is not None
    assert server.listed == ["landing/"], "neither again nor for each damaged file"
    commit(5, 4)
    assert ingested_already(LANDING, str(tmp_path)) is None, "a damaged file has changed"
