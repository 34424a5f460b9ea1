"""Keycloak is fetched and compiled once, also where several processes fetch and copy it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from babelgate.runtime.files import FileLock
from tests.harness import archives

KC = """#!/bin/sh
echo "$1" >> "$(dirname "$0")/done"
"""


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of brokers, where Maven finds a distribution. Others are locked out while it does."""
    brokers = tmp_path / "brokers"

    def maven(goal: str, *arguments: str) -> None:
        (directory,) = (each.partition("=")[2] for each in arguments if each.startswith("-DoutputDirectory="))
        assert not is_free(brokers)
        with zipfile.ZipFile(Path(directory) / "keycloak.zip", "w") as made:
            made.writestr("keycloak-1/bin/kc.sh", KC)

    monkeypatch.setattr(archives, "BROKERS", brokers)
    monkeypatch.setattr(archives, "KEYCLOAK", brokers / "keycloak")
    monkeypatch.setattr(archives, "_maven", maven)
    return brokers


def is_free(brokers: Path) -> bool:
    with FileLock(brokers) as lock:
        return lock.try_acquire()


def compiled(home: Path) -> list[str]:
    return (home / "bin" / "done").read_text().split()


def test_it_is_fetched_once(brokers: Path) -> None:
    assert archives.fetch("keycloak")
    assert archives.fetch("keycloak")
    assert [each.name for each in brokers.iterdir()] == ["keycloak"]
    assert compiled(brokers / "keycloak") == ["build"]


def test_one_that_is_not_compiled_is_replaced_while_none_copies_it(
    brokers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not archives.copy_keycloak(tmp_path / "none")
    assert archives.fetch("keycloak")
    before = brokers / "keycloak" / "bin" / "done"
    before.unlink()
    (brokers / "keycloak" / "built").unlink()
    assert archives.copy_keycloak(tmp_path / "first")
    assert not before.exists() and compiled(tmp_path / "first") == ["build"]
    copytree = shutil.copytree

    def copied(*arguments: Any, **options: Any) -> Any:
        assert not is_free(brokers)
        return copytree(*arguments, **options)

    monkeypatch.setattr(shutil, "copytree", copied)
    place = (brokers / "keycloak").stat().st_ino
    assert archives.fetch("keycloak")
    assert (brokers / "keycloak").stat().st_ino != place, "compiled in a copy"
    assert archives.copy_keycloak(tmp_path / "second")
    assert compiled(tmp_path / "second") == ["build"]
    assert [each.name for each in brokers.iterdir()] == ["keycloak"]
    assert is_free(brokers)
