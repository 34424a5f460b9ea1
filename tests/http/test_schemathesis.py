"""Schemathesis tests a running gateway against its own OpenAPI document: examples, bounds, fuzzing, and links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import registry
from tests.harness.gateway import gateway
from tests.http.schemathesis_hooks import CHAIN_QUEUE

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")


PHASES = {
    "examples": "examples",
    "examples and coverage": "examples,coverage",
    "fuzzing and chains": "fuzzing,stateful",
}
"""The phases of a run. The last two runs have all phases: as one run they were the longest test of their group."""


@pytest.mark.slow
@pytest.mark.parametrize("phases", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("variant", registry.params(registry.ORDINARY))
def test_the_service_keeps_its_document(variant, phases, servers, tmp_path):
    broker = servers.broker(variant, tmp_path)
    brokers = {"tested": {"url": broker.url, "timeout_seconds": 30}}
    journal = {"landing": str(tmp_path / "journal-landed")}
    with gateway(tmp_path, {"brokers": brokers, "default": broker.route("tested"), "journal": journal}) as server:
        # The chains of calls find something to receive, also before they have published.
        with server.client() as client:
            drafts = [{"job": "urn:babel:test:made", "data": {"n": n}} for n in range(100)]
            client.post(f"/queues/{CHAIN_QUEUE}/messages:batch", json=drafts).raise_for_status()
        command = [
            *(
                sys.executable,
                "-m",
                "schemathesis.cli",
                "--config-file",
                str(CONFIG),
                "run",
                f"{server.url}/openapi.json",
            ),
            *("--phases", phases, "--checks", "all"),
            *("--request-timeout", "120", "--seed", "1", "--continue-on-failure", "--no-color", "--warnings", "off"),
        ]
        run = subprocess.run(command, cwd=tmp_path, env=_environ(), capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2_000:]
        with server.client() as client:
            metrics = client.get("/metrics").text
        # Orderly: on Kafka a killed one would keep its partitions from the next test for as long as its session lasts.
        server.stop()
    # All but the two of streams, whose answers have no end.
    operations = re.search(r"Operations: +(\d+) selected / (\d+) total", run.stdout)
    assert operations and int(operations[1]) == int(operations[2]) - 2, run.stdout
    # Only the chains of the last phase, over a receive to a settle, lead to a token that the gateway has handed out.
    settled = sum(float(each) for each in re.findall(r"^babelgate_settled_total\{.*\} (.+)$", metrics, re.M))
    assert settled > 0 or "stateful" not in phases, metrics
    assert not server.unforeseen()


def _environ():
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
