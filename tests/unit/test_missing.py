"""A broker that this machine does not have: one line in the summary, and a failure in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("ci", "workers", "counts"),
    [
        pytest.param("", "1", "3 skipped", id="here, a server that workers share"),
        pytest.param("true", "0", "3 errors", id="CI, a server of its own"),
    ],
)
def test_a_broker_that_is_missing_is_a_line(tmp_path: Path, ci: str, workers: str, counts: str) -> None:
    """Two tests of Artemis, and one of Redis, without Java and redis-server."""
    suite = "tests/brokers/{}/test_contract.py::TestSettle::{}[{}]"
    removes, again = "test_an_ack_removes", "test_a_double_ack_is_no_error"
    tests = [suite.format(*each, each[0]) for each in (("artemis", removes), ("artemis", again), ("redis", removes))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, *tests]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ = {**kept, "PATH": str(tmp_path), "CI": ci}
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    summary = ran.stdout.partition(" brokers that are not here ")[2]
    assert [line for line in summary.splitlines() if line.startswith("not tested: ")] == [
        "not tested: artemis (Java is missing; install the system's package openjdk-17-jre-headless)",
        "not tested: redis (redis-server is missing; install the system's package redis-server)",
    ], ran.stdout + ran.stderr
    assert counts in ran.stdout
    assert ran.returncode == (1 if ci else 0)
    assert ci or ran.stdout.count("SKIPPED") == 2
