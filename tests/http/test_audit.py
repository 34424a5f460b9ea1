"""The audit trail of a gateway: one record for each change and each refusal, and no payload or secret in any."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.config.settings import load
from babelgate.console.pages import ROUTES
from babelgate.errors import ConfigError
from babelgate.observe.audit.checking import check
from babelgate.observe.audit.lines import files_of
from babelgate.server.auditing import audit_keys
from babelgate.server.checks import check_settings
from tests.harness.console import ConsoleServer, console, tokens
from tests.harness.disk import fill, small_disk
from tests.harness.operations import Operation, operations, sample
from tests.harness.problems import problem

RIGHTS = ["send", "listen", "manage"]
SECRET = "planted-secret-4711"
"""Part of each body, query and credential that these tests send."""
DRAFT = {"job": "urn:babel:test:made", "data": {"card": SECRET}}
OF_MESSAGES = re.compile(r"/messages(:(batch|validate|receive|ack|nack|reject|extend|settle|stream))?$")
CHANGES = [each for each in operations() if each.method != "GET" and not OF_MESSAGES.search(each.path)]
OTHERS = [each for each in operations() if each.method == "GET" or OF_MESSAGES.search(each.path)]


class Trail:
    """The records of a server, from some moment on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read = len(self.all())

    def all(self) -> list[dict[str, Any]]:
        """All records."""
        texts = [path.read_text("utf-8") for paths in files_of(self.directory).values() for _, path in paths]
        # Where the disk was full, a file ends within a line.
        return [json.loads(line) for text in texts for line in text.splitlines() if line.endswith("}")]

    def new(self, count: int) -> list[dict[str, Any]]:
        """The ``count`` records since the last call. Refusals are written a moment after their answers."""
        until = time.monotonic() + 60
        while len(found := self.all()[self._read :]) < count and time.monotonic() < until:
            time.sleep(0.02)
        assert len(found) == count, found
        self._read += count
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    directory = tmp_path_factory.mktemp("audited")
    auth = tokens(**{f"all-{SECRET}": {"*": RIGHTS}, f"weak-{SECRET}": {"*": ["send", "listen"]}})
    for token, name in zip(auth["tokens"], ("ops", "weak"), strict=True):
        token["name"] = name
    section = {"directory": str(directory / "audit"), "node": "gw", "refusals": 100_000}
    with console(directory, auth=auth, audit=section) as found:
        yield found


@pytest.fixture
def trail(server: ConsoleServer) -> Trail:
    assert server.settings.audit.directory is not None
    return Trail(server.settings.audit.directory)


@pytest.fixture
def ops(server: ConsoleServer) -> Iterator[httpx.Client]:
    with server.client(f"all-{SECRET}") as client:
        yield client


def sent(client: httpx.Client, operation: Operation, **options: Any) -> httpx.Response:
    body = None if operation.body is None else sample(operation.body)
    return client.request(operation.method, operation.url, json=body, **options)


@pytest.mark.parametrize("operation", CHANGES, ids=lambda each: each.name)
def test_each_operation_that_changes_something_leaves_one_record(trail, ops, operation):
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-request-id": "mine"}
    answer = sent(ops, operation, headers=headers)
    (record,) = trail.new(1)
    assert record["kind"] == "operation"
    assert record["operation"] == f"{operation.method} {operation.path}"
    assert (record["status"], record.get("code")) == (
        answer.status_code,
        None if answer.is_success else answer.json()["code"],
    )
    assert (record["caller"], record["address"], record["node"]) == ("ops", "127.0.0.1", "gw")
    assert record.get("queue") == ("q" if "{queue}" in operation.path else None)
    assert (record["request_id"], record["trace_id"]) == ("mine", "0af7651916cd43dd8448eb211c80319c")
    assert abs(record["at"] - time.time() * 1_000) < 600_000


@pytest.mark.parametrize("operation", CHANGES, ids=lambda each: each.name)
def test_a_refused_change_leaves_one_record(server, trail, operation):
    with server.client(f"weak-{SECRET}") as weak, server.client(SECRET) as stranger:
        problem(sent(weak, operation), 403, "forbidden")
        problem(sent(stranger, operation), 401, "unauthenticated")
    forbidden, unauthenticated = trail.new(2)
    assert (forbidden["kind"], forbidden["status"], forbidden["caller"]) == ("refusal", 403, "weak")
    assert forbidden["operation"] == f"{operation.method} {operation.path}"
    assert (unauthenticated["kind"], unauthenticated["status"]) == ("refusal", 401)
    assert "caller" not in unauthenticated and unauthenticated["path"] == f"{operation.method} {operation.url}"


@pytest.mark.parametrize("operation", OTHERS, ids=lambda each: each.name)
def test_other_operations_leave_a_record_only_where_they_are_refused(server, trail, ops, operation):
    sent(ops, operation)
    with server.client(SECRET) as stranger:
        refused = sent(stranger, operation).status_code == 401
    ops.post("/queues/marker:resume").raise_for_status()
    records = trail.new(1 + refused)
    assert sorted(each["kind"] for each in records) == ["operation", "refusal"][: 1 + refused]


def test_operations_are_told_with_their_counts(trail, ops):
    url = "/queues/counted"
    for _ in range(5):
        ops.post(f"{url}/messages", json=DRAFT).raise_for_status()
    for _ in range(4):
        (message,) = ops.post(f"{url}/messages:receive").json()["messages"]
        ops.post(f"{url}/messages:reject", json={"ack_tokens": [message["ack_token"]]}).raise_for_status()
    letter, other, *_ = [each["letter_id"] for each in ops.get(f"{url}/dead-letters").json()["dead_letters"]]
    ops.delete(f"{url}/dead-letters/{letter}").raise_for_status()
    ops.post(f"{url}/dead-letters:delete", json={"ids": [other, SECRET]}).raise_for_status()
    ops.post(f"{url}/dead-letters:redrive", json={"limit": 1, "to_queue": "elsewhere"}).raise_for_status()
    ops.post(f"{url}:purge", json={"dry_run": True}).raise_for_status()
    ops.post(f"{url}:purge").raise_for_status()
    ops.post(f"{url}/dead-letters:purge").raise_for_status()
    job = ops.post(f"{url}/dead-letters:redrive", json={"background": True}).raise_for_status().json()
    ops.post(f"{url}:pause", json={"reason": SECRET, "publishes": "refuse"}).raise_for_status()
    push = {"url": f"https://hooks.example/{SECRET}?key={SECRET}", "secrets": [f"whsec_{'c2VjcmV0' * 4}"]}
    ops.put(f"{url}/push", json=push).raise_for_status()
    one, some, redrive, dry, purge, letters, begun, pause, push_record = trail.new(9)
    assert (one["item"], one["status"]) == (letter, 200)
    assert some["details"] == {"removed": 1, "failed": 1}
    assert redrive["details"] == {"to_queue": "elsewhere", "redriven": 1, "failed": 0}
    assert dry["details"] == {"removed": 0, "dry_run": True}
    assert (purge["details"], letters["details"]) == ({"removed": 1}, {"removed": 1})
    assert (begun["status"], begun["details"]) == (202, {"redrive": job["id"]})
    assert pause["details"] == {"publishes": "refuse", "kept": True, "told": 0, "silent": 0}
    assert push_record["details"] == {"host": "hooks.example", "told": 0, "silent": 0}


def test_changes_of_tokens_are_told_without_their_secrets(trail, ops):
    asked = {"name": "audited", "rights": {"orders.*": ["send", "listen"]}, "ttl_seconds": 60}
    made = ops.post("/tokens", json=asked).raise_for_status().json()
    id = made["token"]["id"]
    rotated = ops.post(f"/tokens/{id}:rotate").raise_for_status().json()
    ops.delete(f"/tokens/{id}").raise_for_status()
    create, rotate, revoke = trail.new(3)
    end = made["token"]["ends_at"]
    told = {"token": id, "name": "audited", "rights": "orders.*: listen send", "ends_at": end}
    assert create["details"] == rotate["details"] == told
    assert (rotate["item"], revoke["item"], revoke["details"]["name"]) == (id, id, "audited")
    text = json.dumps([create, rotate, revoke])
    assert made["secret"] not in text and rotated["secret"] not in text


def signed_in(client: httpx.Client, token: str) -> httpx.Response:
    return client.post("console/sign-in", data={"csrf": csrf(client, "console/sign-in"), "token": token})


def test_a_flood_of_sign_ins_is_bounded(tmp_path):
    """Also of those that succeed: each has a record of some 500 bytes."""
    section = {"directory": str(tmp_path / "audit"), "node": "gw", "refusals": 3}
    auth = tokens(**{f"all-{SECRET}": {"*": RIGHTS}})
    with console(tmp_path, auth=auth, audit=section) as server:
        trail = Trail(tmp_path / "audit")
        for _ in range(12):
            with server.client() as user:
                assert signed_in(user, f"all-{SECRET}").status_code == 303
    kinds = [each["kind"] for each in trail.all()]
    left_out = sum(each["details"]["count"] for each in trail.all() if each["kind"] == "left_out")
    assert left_out > 0 and kinds.count("sign_in") + left_out == 12


def csrf(client: httpx.Client, path: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


def test_the_console_leaves_the_same_records(server, trail):
    with server.client() as user:
        assert signed_in(user, SECRET).status_code == 401
        assert signed_in(user, f"all-{SECRET}").status_code == 303
        token = csrf(user, "console/queues")
        failed, signed = trail.new(2)
        assert (failed["kind"], failed["status"], failed.get("caller")) == ("sign_in", 401, None)
        assert (signed["kind"], signed["status"], signed["caller"]) == ("sign_in", 303, "ops")
        posts = [route for route in ROUTES if route.method == "POST" and route.path not in ("sign-in", "sign-out")]
        for route in posts:
            path = re.sub(r"\{\w+\}", "q", route.path)
            user.post(f"console/{path}", data={"csrf": token, "reason": SECRET, "body": json.dumps(DRAFT)})
            if route.writes:
                (record,) = trail.new(1)
                assert (record["operation"], record["caller"]) == (f"POST /console/{route.path}", "ops")
                assert record.get("queue") == ("q" if "{queue}" in route.path else None)
            user.post(f"console/{path}", data={"csrf": "forged"})
            (refused,) = trail.new(1)
            assert (refused["kind"], refused["status"]) == ("refusal", 403)
        user.post("console/sign-out", data={"csrf": token})
        (signed,) = trail.new(1)
        assert (signed["kind"], signed["caller"]) == ("sign_out", "ops")


def test_a_refused_publish_on_the_short_way_is_recorded(server, trail):
    with server.client(f"weak-{SECRET}") as weak:
        weak.post("/queues/a/messages", json=DRAFT).raise_for_status()
        problem(weak.post("/queues/a:purge"), 403, "forbidden")
        weak.headers["authorization"] = f"Bearer x{SECRET}"
        problem(weak.post("/queues/a/messages", json=DRAFT), 401, "unauthenticated")
    purge, publish = trail.new(2)
    assert (purge["queue"], publish["path"]) == ("a", "POST /queues/a/messages")


def test_the_start_names_the_sections_of_its_configuration(server, trail):
    first = trail.all()[0]
    digests = first["details"]["configuration"]
    assert first["kind"] == "start" and {"all", "brokers", "auth", "queues"} <= digests.keys()
    assert len(set(digests.values())) > 5 and all(re.fullmatch("[0-9a-f]{16}", each) for each in digests.values())


def test_nothing_of_a_message_and_no_secret_is_in_the_trail(server, trail, ops):
    """Each operation is sent the secret as a token, in its query and, where it has one, in its body."""
    with server.client(SECRET) as stranger, server.client(f"weak-{SECRET}") as weak:
        for operation in (*CHANGES, *OTHERS):
            for client in (ops, weak, stranger):
                sent(client, operation, params={"x": SECRET})
                client.request(operation.method, operation.url, json=DRAFT)
    ops.post("/queues/marker:resume").raise_for_status()
    while not any(each.get("queue") == "marker" for each in trail.all()[-100:]):
        time.sleep(0.02)
    text = b"".join(path.read_bytes() for path in trail.directory.iterdir())
    assert text.count(b"\n") > 100 and SECRET.encode() not in text
    assert check(trail.directory, audit_keys(server.settings)).problems == []


def test_with_a_full_disk_changes_are_refused_and_messages_flow(tmp_path):
    with small_disk(tmp_path / "disk", 1_048_576) as disk:
        trail = disk / "audit"
        section = {"directory": str(trail), "node": "gw", "file_bytes": 65_536}
        with console(tmp_path, audit=section) as server, server.client() as client:
            filler = fill(disk)
            for _ in range(200):
                # The blocks of the file that is open may still have room.
                answer = client.post("/queues/a:resume")
                if answer.status_code != 200:
                    break
            assert problem(answer, 503, "audit_unavailable")["retryable"] is True
            assert answer.headers["retry-after"] == "10"
            client.post("/queues/a/messages", json=DRAFT).raise_for_status()
            (message,) = client.post("/queues/a/messages:receive").json()["messages"]
            asked = {"ack_tokens": [message["ack_token"]]}
            client.post("/queues/a/messages:ack", json=asked).raise_for_status()
            page = client.get("/console/queues")
            assert page.status_code == 200
            token = csrf(client, "console/queues/a/pause")
            refused = client.post("/console/queues/a/pause", data={"csrf": token})
            assert (refused.status_code, "audit trail cannot be written" in refused.text) == (503, True)
            assert "babelgate_audit_errors_total " in client.get("/metrics").text
            filler.unlink()
            until = time.monotonic() + 60
            while client.post("/queues/a:resume").status_code == 503 and time.monotonic() < until:
                time.sleep(0.1)
            client.post("/queues/a:resume").raise_for_status()
        found = check(trail, audit_keys(server.settings))
        assert found.problems == []
        kinds = [each["kind"] for each in Trail(trail).all()]
        assert (kinds[0], kinds[-1], "resumed" in kinds) == ("start", "stop", True)


def test_changes_refused_by_a_full_disk_are_bounded(tmp_path):
    """They changed nothing, and each would take a place among the records that wait."""
    with small_disk(tmp_path / "disk", 1_048_576) as disk:
        section = {"directory": str(disk / "audit"), "node": "gw", "file_bytes": 65_536, "refusals": 3}
        with console(tmp_path, audit=section) as server, server.client() as client:
            filler = fill(disk)
            for _ in range(200):
                if client.post("/queues/a:resume").status_code == 503:
                    break
            for _ in range(20):
                problem(client.post("/queues/a:resume"), 503, "audit_unavailable")
            filler.unlink()
            until = time.monotonic() + 60
            while client.post("/queues/a:resume").status_code == 503 and time.monotonic() < until:
                time.sleep(0.1)
        records = Trail(disk / "audit").all()
        refused = [each for each in records if each.get("code") == "audit_unavailable"]
        left_out = sum(each["details"]["count"] for each in records if each["kind"] == "left_out")
        assert left_out > 0 and len(refused) + left_out >= 21


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    found = load(
        None, {"BABELGATE_STATE_DIR": str(tmp_path), "BABELGATE_AUDIT__DIRECTORY": str(tmp_path / "file" / "x")}
    )
    with pytest.raises(ConfigError, match=r"audit\.directory"):
        check_settings(found)
