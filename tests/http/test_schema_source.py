"""Schemas at a URL: read at the start and again, with an old bundle where the new one cannot be used or read."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
import time

import httpx
import pytest
import yaml
from click.testing import CliRunner

from babelgate.cli.main import cli
from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.gateway.schema_checks import SchemaChecks
from babelgate.schemas.files import MAX_BYTES, read_bundle
from babelgate.schemas.source import BundleNotRead, BundleSource
from babelgate.server.job_schemas import SchemaRefresh, job_schemas
from babelgate.server.server import uvicorn_config
from tests.harness.bundles import serve
from tests.harness.local import authorities, certify, eventually
from tests.harness.sockets import serving
from tests.harness.ways import Served

JOB = "urn:babel:shop:order.placed"


def bundle(**members):
    return json.dumps({"files": {"order.json": {"$id": JOB, **members}}}).encode()


@pytest.fixture
def bundles():
    with serve(bundle(type="object")) as made:
        yield made


def configured(state, url):
    path = state / "babelgate.yaml"
    file = {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}
    queues = {"orders": {"broker": "local", "schema": "enforce"}}
    schemas = {"url": url, "refresh_seconds": 1}
    config = {"state_dir": str(state), "auth": "none", "brokers": {"local": file}, "queues": queues}
    path.write_text(yaml.safe_dump(config | {"schemas": schemas}))
    return settings.load(path, {})


def until(check):
    limit = time.monotonic() + 90
    while not check():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_new_bundle_replaces_the_old_one_unless_it_cannot_be_used(tmp_path, bundles):
    loaded = configured(tmp_path, bundles.url)
    with (
        serving(uvicorn_config(Served(loaded).build, loaded)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", timeout=60, verify=authorities()) as client,
    ):

        def publishes(data):
            return client.post("/queues/orders/messages", json={"job": JOB, "data": data}).status_code == 201

        def failures():
            line = next(each for each in client.get("/metrics").text.splitlines()
                        if each.startswith("babelgate_schema_failures "))  # fmt: skip
            return float(line.split()[-1])

        assert (publishes({}), failures()) == (True, 0)
        bundles.etag, bundles.body = '"2"', bundle(required=["total"])
        until(lambda: not publishes({}))
        until(lambda: any(each.get("if-none-match") == '"2"' for each in bundles.headers))
        assert publishes({"total": 1})
        for bad in (bundle(type="nope"), b"{", b"[]"):
            bundles.etag, bundles.body = None, bad
            until(lambda: failures() == 1)
            assert (publishes({}), publishes({"total": 1})) == (False, True)
            bundles.body = bundle(required=["total"])
            until(lambda: failures() == 0)
        assert client.get("/readyz?verbose").json()["schemas"] == {"schemas": 1}
        bundles.status = 500
        until(lambda: failures() == 1)
        ready = client.get("/readyz?verbose")
        assert (ready.status_code, ready.json()["schemas"]) == (200, {"schemas": 1, "error": "the status is 500"})
        assert client.get("/readyz").json() == {"status": "ok"}
        assert (publishes({}), publishes({"total": 1})) == (False, True)


def test_a_start_without_the_network_uses_the_bundle_that_was_kept(tmp_path):
    with serve(bundle(type="object")) as bundles:
        loaded = configured(tmp_path, bundles.url)
        assert [each.text for each in job_schemas(loaded)] == [b'{"$id": "%s", "type": "object"}' % JOB.encode()]
        bundles.body = bundle(type="nope")
        assert [each.schema["type"] for each in job_schemas(loaded)] == ["object"]
    again = job_schemas(loaded)
    assert [each.schema["type"] for each in again] == ["object"]
    assert again.source is not None and again.source.digest
    with pytest.raises(ConfigError) as refused:
        job_schemas(configured(tmp_path, bundles.url + "2"))
    assert refused.value.key == "schemas.url"


def test_a_first_bundle_that_cannot_be_used_is_refused_at_the_start(tmp_path, bundles):
    bundles.body = bundle(type="nope")
    with pytest.raises(ConfigError, match=r"order\.json at /type"):
        job_schemas(configured(tmp_path, bundles.url))


def babelgate(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "babelgate", *arguments], capture_output=True, text=True, timeout=100, check=False
    )


def test_the_command_refuses_it_before_there_are_workers(tmp_path, bundles):
    bundles.body = bundle(type="nope")
    configured(tmp_path, bundles.url)
    path = str(tmp_path / "babelgate.yaml")
    done = babelgate("serve", "--config", path, "--port", "0", "--workers", "2")
    assert done.returncode != 0
    assert "schemas.url" in done.stderr and "order.json at /type" in done.stderr, done.stderr
    assert len(bundles.headers) == 1
    assert babelgate("check-config", "--offline", "--config", path).returncode == 0
    assert len(bundles.headers) == 1, "a check connects to nothing"


def test_what_is_not_followed_and_not_read(tmp_path, bundles):
    source = BundleSource(bundles.url, tmp_path)
    bundles.status, bundles.location = 302, bundles.url + "2"
    with pytest.raises(BundleNotRead, match="302"):
        source.fetch()
    assert len(bundles.headers) == 1
    bundles.status, bundles.body = 200, b" " * (MAX_BYTES + 1)
    with pytest.raises(BundleNotRead, match="more than"):
        source.fetch()
    bundles.body = bundle()
    (tmp_path / "token").write_text("secret\n")
    assert BundleSource(bundles.url, tmp_path, bearer_file=tmp_path / "token").fetch() == (bundle(), None)
    assert bundles.headers[-1]["authorization"] == "Bearer secret"
    assert source.at(bundle(), None).fetch() is None
    with pytest.raises(BundleNotRead):
        BundleSource(bundles.url, tmp_path, bearer_file=tmp_path / "none").fetch()


def test_the_token_is_never_quoted(tmp_path, bundles):
    for text in ("SECRET\nSECRET2\n", "SECRET SECRET2", "SECRET\x00", "SECR\u00c9T", "\n"):
        (tmp_path / "token").write_text(text)
        with pytest.raises(BundleNotRead, match="no token of one line") as refused:
            BundleSource(bundles.url, tmp_path, bearer_file=tmp_path / "token").fetch()
        assert "SECR" not in repr(refused.value) and refused.value.__cause__ is None
    assert bundles.headers == []


def test_an_etag_may_have_any_character_of_a_header(tmp_path, bundles):
    bundles.etag = '"\u00fc"'
    source = BundleSource(bundles.url, tmp_path)
    read = source.fetch()
    assert read == (bundle(type="object"), bundles.etag)
    assert source.at(*read).fetch() is None
    assert bundles.headers[-1]["if-none-match"] == bundles.etag


def test_the_time_of_a_read_includes_a_slow_head(tmp_path, monkeypatch):
    monkeypatch.setattr("babelgate.schemas.source.FETCH_SECONDS", 1.0)

    def trickle():
        connection = listener.accept()[0]
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while not done.wait(0.1):
                connection.sendall(b"x")

    done = threading.Event()
    # A read without a bound ends here, and fails the test.
    timer = threading.Timer(30, done.set)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle)
        thread.start()
        timer.start()
        try:
            with pytest.raises(BundleNotRead, match="not read within 1 s"):
                BundleSource(f"http://127.0.0.1:{listener.getsockname()[1]}/", tmp_path).fetch()
        finally:
            done.set()
            timer.cancel()
            thread.join()


async def test_a_reload_that_read_an_older_bundle_does_not_keep_it_in_use(tmp_path, bundles):
    checks = SchemaChecks(lambda event: None)
    older = checks.schemas = job_schemas(configured(tmp_path, bundles.url))
    refresh = SchemaRefresh(checks)
    await refresh.start()
    try:
        bundles.etag, bundles.body = '"2"', bundle(type="array")
        await eventually(lambda: checks.schemas is not older)
        checks.schemas = older
        await eventually(lambda: checks.schemas is not older)
        assert [each.schema["type"] for each in checks.schemas] == ["array"]
    finally:
        await refresh.close()


async def test_a_start_with_the_kept_bundle_is_a_failure_until_the_url_is_read(tmp_path, bundles):
    job_schemas(configured(tmp_path, bundles.url))
    bundles.status = 500
    checks = SchemaChecks(lambda event: None)
    checks.schemas = job_schemas(configured(tmp_path, bundles.url))
    assert checks.schemas.failure == "the status is 500"
    refresh = SchemaRefresh(checks)
    await refresh.start()
    try:
        await eventually(lambda: checks.refresh_failure is not None)
        assert len(bundles.headers) == 2, "it was not read again yet"
        bundles.status = 200
        await eventually(lambda: checks.refresh_failure is None)
    finally:
        await refresh.close()


def test_the_certificate_is_verified(tmp_path):
    certify(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with serve(bundle(type="object"), tls) as bundles:
        url = bundles.url.replace("http:", "https:")
        assert BundleSource(url, tmp_path, ca_file=tmp_path / "ca.crt").fetch() == (bundles.body, None)
        with pytest.raises(BundleNotRead, match=r"(?i)certificate"):
            BundleSource(url, tmp_path).fetch()


@pytest.mark.parametrize("schemas", [
    {"url": "http://schemas.example/a.json"}, {"url": "https://user:x@schemas.example/"}, {"url": "ftp://x/"},
    {"url": "https://schemas.example/", "directory": "."}, {"url": "https://schemas.example/", "refresh_seconds": 0},
])  # fmt: skip
def test_a_bad_address_is_refused(tmp_path, schemas):
    path = tmp_path / "babelgate.yaml"
    path.write_text(yaml.safe_dump({"schemas": schemas}))
    with pytest.raises(ConfigError) as refused:
        settings.load(path, {})
    assert str(refused.value.key).startswith("schemas")


def test_a_bundle_has_the_bytes_of_the_files(tmp_path):
    (tmp_path / "shop").mkdir()
    texts = {"b.json": b'{"$id": "b", "multipleOf": 1.10}\n', 'shop/\u00e4 ".json': b'\n{ "$id" : "a" }'}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    done = CliRunner().invoke(cli, ["schemas", "bundle", str(tmp_path)])
    assert done.exit_code == 0, done.output
    files, faults = read_bundle(done.stdout_bytes)
    assert faults == []
    assert {each.path: each.text for each in files.values()} == {name: text.strip() for name, text in texts.items()}
    assert json.loads(done.stdout)["files"].keys() == texts.keys()
