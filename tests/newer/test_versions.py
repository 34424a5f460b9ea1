"""The versions that docs/versions.md has are those of this machine and of the root of Debian's next release."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from tests.harness import newer
from tests.harness.ci import missing
from tools import versions

ASK: Mapping[str, Sequence[str]] = {
    "Python": ("python3", "--version"),
    "SQLite": ("python3", "-c", "import sqlite3; print(sqlite3.sqlite_version)"),
    "Redis": ("redis-server", "--version"),
    "Valkey": ("valkey-server", "--version"),
    "RabbitMQ": ("/usr/lib/rabbitmq/bin/rabbitmqctl", "version"),
}


@pytest.mark.parametrize("name", versions.DEBIAN[newer.RELEASE])
def test_of_the_root(name: str) -> None:
    assert version(newer.run(*ASK[name]).stdout) == versions.DEBIAN[newer.RELEASE][name]


@pytest.mark.parametrize("name", versions.DEBIAN["bookworm"])
def test_of_this_machine(name: str) -> None:
    """It may be another system than the one that the table has."""
    program, *arguments = ASK[name]
    if shutil.which(program) is None:
        missing(program, "run `make broker-deps`")
    told = subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout
    assert version(told) in {release.get(name) for release in versions.DEBIAN.values()}


def version(output: str) -> str:
    """The first two numbers of a version."""
    found = re.search(r"\d+\.\d+", output)
    assert found is not None, output
    return found[0]
