"""The pages of docs/how-to: their commands run as they are written, each page on a gateway with its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.pages import shell

FOLDER = Path(__file__).resolve().parents[2] / "docs/how-to"
PAGES = sorted(FOLDER.glob("*.md"))
UNCHANGED: Mapping[str, Any] = {"brokers": {"local": "sqlite:///local.db"}, "default": {"broker": "local"}}
"""The configuration of a page without one."""


def _blocks(name: str, kind: str) -> list[str]:
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    return [str(found) for found in re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)]


def _config(text: str, directory: Path) -> dict[str, Any]:
    """A configuration of a page, with its files in ``directory``."""
    loaded: dict[str, Any] = yaml.safe_load(text.replace("sqlite:///", f"sqlite:///{directory}/"))
    if "journal" in loaded:
        loaded["journal"]["landing"] = str(directory / loaded["journal"]["landing"])
    return loaded


@contextmanager
def _served(name: str, directory: Path) -> Iterator[GatewayProcess]:
    """A gateway with the first configuration of the page."""
    given = (_blocks(name, "yaml") or [yaml.safe_dump(UNCHANGED)])[0]
    with gateway(directory, _config(given, directory)) as process:
        yield process


def _run(name: str, directory: Path) -> list[str]:
    """What each block of the page prints."""
    with _served(name, directory) as process:
        return shell(_blocks(name, "sh"), process.url, directory)


def test_delayed(tmp_path: Path) -> None:
    delayed, due, again = _run("delayed", tmp_path)
    assert re.search(r"}\s*1$", delayed)
    assert due.endswith('{"order":2}')
    assert again.split() == ["1", "2"]


def test_ordered(tmp_path: Path) -> None:
    _, ordering, states = _run("ordered", tmp_path)
    assert ordering == '"fifo"'
    assert states.split() == ["placed", "paid", "sent"]


def test_poison(tmp_path: Path) -> None:
    tried, letter, deleted = _run("poison", tmp_path)
    assert re.search(r"}\s*0\s+1\s+\[\]$", tried)
    assert '"error": "lease expired"' in letter and '"file": "bomb.png"' in letter
    assert deleted.endswith("0")


def test_tenants(tmp_path: Path) -> None:
    (printed,) = _run("tenants", tmp_path)
    assert "refused" in printed
    assert printed.endswith("tenant.acme.orders")


def test_request_reply(tmp_path: Path) -> None:
    *_, answer = _run("request-reply", tmp_path)
    assert answer.startswith("42\n")


def test_large_bodies(tmp_path: Path) -> None:
    small, large = _run("large-bodies", tmp_path)
    assert '"queue":"pictures"' in small and '"queue":"reports"' in large


def test_find(tmp_path: Path) -> None:
    (printed,) = _run("find", tmp_path)
    for event in ("accepted", "delivered", "rejected", "dead_lettered"):
        assert event in printed


def test_rotate(tmp_path: Path) -> None:
    _, rotated, revoked = _run("rotate", tmp_path)
    assert rotated.count("orders.new") >= 2
    assert revoked.endswith("refused")


def test_limit(tmp_path: Path) -> None:
    (printed,) = _run("limit", tmp_path)
    assert re.search(r"}\s*429\s+rate_exceeded$", printed)


def test_pause(tmp_path: Path) -> None:
    _, paused, resumed = _run("pause", tmp_path)
    assert paused == '{"messages":[],"paused":true}'
    assert resumed == "ada@example.com"


def test_move_broker(tmp_path: Path) -> None:
    _, after = _blocks("move-broker", "yaml")
    with _served("move-broker", tmp_path) as process:
        path = tmp_path / "babelgate.yaml"
        running = yaml.safe_load(path.read_text())
        before, moved, received = _blocks("move-broker", "sh")
        given = _config(after, tmp_path)
        # It has a time-out for a busy machine, which cannot change.
        given["brokers"] |= running["brokers"]
        (tmp_path / "edited.yaml").write_text(yaml.safe_dump(running | given, sort_keys=False))
        scripts = [before, f"cp edited.yaml babelgate.yaml\n{moved}", received]
        old, new, found = shell(scripts, process.url, tmp_path)
    assert old == "old"
    assert new.endswith("\nnew") and "queues.orders" in new
    assert sorted(found.split()) == ['{"order":1}', '{"order":2}']


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_says_for_whom_it_is_and_runs_here(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    beginning = " ".join(lines[2:6])
    assert "**For** " in beginning and "**In the end** " in beginning
    assert [line for line in lines if len(line) > 100] == []
    assert len(lines) <= 80
    test = f"test_{page.stem.replace('-', '_')}"
    assert test in globals() or Path(__file__).with_name(f"{test}.py").exists()
