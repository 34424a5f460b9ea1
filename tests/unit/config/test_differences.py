"""What differs between two configurations, as the command prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from babelgate.cli.client import Client, GatewayUnreachable
from babelgate.cli.main import cli
from babelgate.config.changes import shown
from babelgate.config.settings import load

BASE: dict[str, Any] = {
    "brokers": {"one": {"url": "redis://:PLANTED@127.0.0.1/0"}},
    "default": {"broker": "one"},
    "auth": {"tokens": [{"name": "shop", "sha256": "ab" * 32, "rights": {"*": ["send", "listen"]}}]},
}
OTHER = {
    "port": 9_000,
    "default": {"broker": "one", "max_attempts": 9},
    "brokers": {"one": {"url": "redis://:PLANTED2@127.0.0.1/0"}, "two": {"url": "amqp://user:PLANTED@127.0.0.1/"}},
}


def written(path: Path, **changes: Any) -> str:
    path.write_text(yaml.safe_dump(BASE | changes))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["config", "diff", *arguments], env={})
    return result.exit_code, result.output


def test_two_files(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old.yaml"), written(tmp_path / "new.yaml", **OTHER)
    assert run(old, old) == (0, "")
    status, text = run(old, new, "--json")
    assert status == 1 and "PLANTED" not in text
    found = {each["key"]: each for each in map(json.loads, text.splitlines())}
    assert {key: each["restart"] for key, each in found.items()} == {
        "port": True,
        "default.max_attempts": False,
        "brokers.one.url": False,
        "brokers.two": False,
    }
    assert (found["port"]["old"], found["port"]["new"]) == (8_080, 9_000)
    status, text = run(old, new)
    assert status == 1 and "port: 8080 → 9000 (needs a restart)" in text and "PLANTED" not in text


def test_a_running_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (
        written(tmp_path / "old.yaml"),
        written(tmp_path / "new.yaml", default={"broker": "one", "ttl_seconds": 9}),
    )
    running = json.loads(json.dumps(shown(load(Path(old), {}))))
    monkeypatch.setattr(Client, "configuration", lambda self: running)
    assert run(old) == (0, "")
    assert run(new) == (1, "default.ttl_seconds: - → 9.0\n")


def test_errors_have_a_status_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(self: Client) -> None:
        raise GatewayUnreachable("nobody")

    monkeypatch.setattr(Client, "configuration", unreachable)
    assert run(written(tmp_path / "old.yaml"))[0] == 2
    assert run(str(tmp_path / "none.yaml"))[0] == 2
    assert run(written(tmp_path / "bad.yaml", port="x"), written(tmp_path / "old.yaml"))[0] == 2
    assert run()[0] == 2
