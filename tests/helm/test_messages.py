"""The test of a release publishes, receives and acknowledges, or fails. Here it runs beside a gateway."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.gateway import GatewayProcess, gateway
from tests.helm.matrix import rendered
from tools.helm import ROOT, only, template

QUEUE = "mails"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway(tmp_path) as started:
        yield started


def run(directory: Path, url: str, spec: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The container's command with its environment, where ``babelgate`` is this checkout."""
    (container,) = spec["containers"]
    program = directory / "bin" / "babelgate"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m babelgate "$@"\n')
    program.chmod(0o755)
    environ = {each["name"]: each.get("value", "a-token") for each in container["env"]} | {"BABELGATE_URL": url}
    path = f"{program.parent}:{os.environ['PATH']}"
    shell, option, script = container["command"]
    command = [shell, option, script.replace("/tmp/", f"{directory}/")]
    environ |= {"PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environ, cwd=directory, capture_output=True, text=True)


def test_it_publishes_receives_and_acknowledges(process: GatewayProcess, tmp_path: Path) -> None:
    """Also what an earlier test left behind."""
    spec = only(rendered()["redis, named"], "Pod")["spec"]
    with process.client() as client:
        left = client.post(f"/queues/{QUEUE}/messages", json={"job": "urn:babel:helm:test", "data": {}})
        assert left.status_code == 201
        done = run(tmp_path, process.url, spec)
        assert done.returncode == 0, done.stderr
        stats = client.get(f"/queues/{QUEUE}").json()["stats"]
        assert (stats["depth"], stats["in_flight"]) == (0, 0)


def test_it_fails_without_a_gateway(tmp_path: Path) -> None:
    done = run(tmp_path, "http://127.0.0.1:1", only(rendered()["redis, named"], "Pod")["spec"])
    assert done.returncode == 3, done.stderr


def test_it_calls_the_service_with_its_token() -> None:
    found = rendered()["many, reached"]
    (container,) = only(found, "Pod")["spec"]["containers"]
    environ = {each["name"]: each for each in container["env"]}
    assert environ["BABELGATE_URL"]["value"] == "https://shop-babelgate:80/queues-api"
    reference = environ["BABELGATE_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert reference["key"] in only(found, "Secret", reference["name"])["data"]


def test_the_example_of_the_readme_works() -> None:
    text = (ROOT / "helm" / "babelgate" / "README.md").read_text("utf-8")
    example = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert "kind: Deployment" in template(example)
