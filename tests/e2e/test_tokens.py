"""A token that is made or revoked counts on all replicas and workers, over kills; what uses it ends; the commands."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.gateway import GatewayProcess
from tests.harness.local import free_ports, wait_for
from tests.harness.program import run as run_program

pytestmark = pytest.mark.slow

KEYS = [{"id": "shared", "secret": "a secret that all the replicas share"}]
BOSS = {"name": "boss", "sha256": hashlib.sha256(b"boss").hexdigest(), "rights": {"*": ["send", "listen", "manage"]}}
AUTH = {"tokens": [BOSS]}
DRAFT = {"job": "x", "data": {}}


def bearer(secret: str = "boss") -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def run(*arguments: str) -> tuple[int, str, str]:
    """The exit status of a command, and what it printed to standard output and error."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    done = run_program(*arguments, environ=environ)
    return done.returncode, done.stdout.decode().strip(), done.stderr.decode()


def make(client: httpx.Client, name: str, **rights: list[str]) -> dict[str, Any]:
    order = {"name": name, "rights": rights or {"*": ["send", "listen"]}, "ttl_seconds": 3_600}
    answer = client.post("tokens", json=order, headers=bearer())
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def revoke(client: httpx.Client, made: dict[str, Any]) -> dict[str, Any]:
    answer = client.delete(f"tokens/{made['token']['id']}", headers=bearer()).raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def status(client: httpx.Client, secret: str) -> int:
    return client.post("queues/q/messages", json=DRAFT, headers=bearer(secret)).status_code


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Two gateways on hosts of their own, as it were: with nothing in common but the keys."""
    places = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with ExitStack() as stack:
        found = []
        for number, place in enumerate(places):
            directory = tmp_path / str(number)
            directory.mkdir()
            peers = {"listen": place, "addresses": places}
            process = GatewayProcess(directory, {"auth": AUTH, "token_keys": KEYS, "peers": peers})
            stack.callback(process.close)
            found.append(process.start())
        yield found


def test_replicas_agree_over_kills(replicas: list[GatewayProcess]) -> None:
    one, two = replicas
    with one.client() as here, two.client() as there:
        first, second, third = (make(here, name) for name in ("first", "second", "third"))
        # On a busy machine a peer may be told later.
        assert (first["told"] + len(first["silent"]), first["kept"]) == (1, True)
        assert status(here, first["secret"]) == 201
        wait_for(lambda: status(there, first["secret"]) == 201)
        revoke(there, first)
        assert status(there, first["secret"]) == 401
        wait_for(lambda: status(here, first["secret"]) == 401)
        # What a killed one missed, it learns when it starts.
        two.kill()
        outcome = revoke(here, second)
        assert (outcome["told"], len(outcome["silent"])) == (0, 1)
        assert "learns it later" in outcome["detail"]
        rotated = here.post(f"tokens/{third['token']['id']}:rotate", json={"overlap_seconds": 0}, headers=bearer())
        two.start()
        secrets = [each["secret"] for each in (first, second, third, rotated.raise_for_status().json())]
        wait_for(lambda: [status(there, each) for each in secrets] == [401, 401, 401, 201])
        one.kill()
        one.start()
        assert [status(here, each) for each in secrets] == [401, 401, 401, 201], "its own file has it"


def test_a_revocation_counts_on_another_replica_when_it_is_answered(replicas: list[GatewayProcess]) -> None:
    """A peer that is named in ``silent`` learns it within the interval of the comparisons."""
    one, two = replicas
    with one.client() as here, two.client() as there:
        for number in range(5):
            made = make(here, f"shop-{number}")
            _wait_for_status(there, made["secret"], 201)
            outcome = revoke(here, made)
            if outcome["told"] == 1:
                assert status(there, made["secret"]) == 401, "it was told before the caller"
            else:
                assert len(outcome["silent"]) == 1
                _wait_for_status(there, made["secret"], 401)


def _wait_for_status(client: httpx.Client, secret: str, expected: int) -> None:
    wait_for(lambda: status(client, secret) == expected)


def test_a_stream_of_a_revoked_token_ends_on_another_replica(replicas: list[GatewayProcess]) -> None:
    one, two = replicas
    ended: list[str] = []

    def stream(secret: str) -> None:
        with two.client() as client:
            ended.append(client.post("queues/streams/messages:stream", headers=bearer(secret)).text)

    def is_open(client: httpx.Client) -> bool:
        lines = client.get("metrics", headers=bearer()).raise_for_status().text.splitlines()
        return any(line.startswith("babelgate_open_streams{") and line.endswith(" 1.0") for line in lines)

    with one.client() as here, two.client() as there:
        made = make(here, "shop")
        wait_for(lambda: status(there, made["secret"]) == 201)
        reader = threading.Thread(target=stream, args=(made["secret"],))
        reader.start()
        wait_for(lambda: is_open(there))
        revoke(here, made)
        reader.join(100)
    assert len(ended) == 1


def test_workers_agree(tmp_path: Path) -> None:
    with ExitStack() as stack:
        process = GatewayProcess(tmp_path, {"auth": AUTH, "workers": 2})
        stack.callback(process.close)
        process.start()
        with process.client() as client:
            made = make(client, "shop")

        def statuses() -> set[int]:
            # A connection stays with the worker that accepted it.
            found = set()
            for _ in range(20):
                with process.client() as client:
                    found.add(status(client, made["secret"]))
            return found

        wait_for(lambda: statuses() == {201})
        with process.client() as client:
            # Its worker may not know the token yet.
            path = f"tokens/{made['token']['id']}"
            wait_for(lambda: client.delete(path, headers=bearer()).is_success)
        wait_for(lambda: statuses() == {401})


def test_a_damaged_file_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "tokens.json").write_text("{")
    process = GatewayProcess(tmp_path, {"auth": AUTH})
    try:
        with pytest.raises(AssertionError, match="the gateway ended"):
            process.start()
        assert b"state_dir: the tokens cannot be read: tokens.json is damaged" in process.log.read_bytes()
    finally:
        process.close()


def test_the_first_token_is_made_without_a_gateway(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path, {"auth": {"made_tokens": {"enabled": True}}})
    try:
        process.start()
        config = ["--config", str(tmp_path / "babelgate.yaml")]
        create = ["tokens", "create", "--offline", *config, "--right", "*=send,manage", "--days", "1"]
        code, secret, said = run(*create, "shop")
        assert (code, secret[:3]) == (0, "bg_"), said
        with process.client() as client:
            wait_for(lambda: status(client, secret) == 201)
        code, printed, said = run(*create, "shop")
        assert (code, printed) == (1, "") and said.startswith("token_name_taken: ")
        at = ["--url", process.url, "--token", secret]
        shown = json.loads(run("tokens", "list", "--json", *at)[1])
        assert (shown["name"], shown["created_by"]) == ("shop", "(command line)")
        rotated = run("tokens", "rotate", shown["id"], "--overlap-seconds", "0", *at)[1]
        at[-1] = rotated
        code, other, said = run("tokens", "create", "other", "--right", "q=send", *at)
        assert code == 0 and "Its secret is not shown again." in said
        assert "q=send" in run("tokens", "list", *at)[1]
        assert run("tokens", "create", "more", "--right", "q=listen", *at)[0] == 1
        assert run("tokens", "create", "more", "--right", "q", *at)[0] == 2
        assert run("tokens", "revoke", shown["id"], *at)[0] == 0
        with process.client() as client:
            assert [status(client, each) for each in (secret, rotated, other)] == [401, 401, 201]
    finally:
        process.close()
