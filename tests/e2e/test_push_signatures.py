"""Signatures of posts, as the libraries of Standard Webhooks for JavaScript and Go verify them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from babelgate.push.posts import described
from babelgate.push.targets import PushTarget
from tests.harness.ci import missing
from tests.harness.webhooks import pushed_message

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).with_name("webhooks")
BODIES = (b'{"n":1}', '{"name":"Zoë 🐦","n":1.10}'.encode(), b'{"n":"' + b"x" * 100_000 + b'"}')
OLD, NEW, OTHER = ("whsec_" + b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3))


def go(directory: Path) -> Sequence[str]:
    if shutil.which("go") is None:
        missing("go", "`make test-all-deps` installs it")
    environ = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
    program = directory / "verify"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCES / "go", env=environ, check=True)
    return [str(program)]


def node(directory: Path) -> Sequence[str]:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing("npm", "`make test-all-deps` installs it")
    place = shutil.copytree(SOURCES / "node", directory / "node")
    subprocess.run([npm, "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=place, check=True)
    return ["node", str(place / "verify.js")]


def post(data: bytes, verifies: str, **changed: str) -> dict[str, Any]:
    """What a receiver gets while OLD is replaced by NEW, and the secret that it has."""
    target = PushTarget("https://shop.example/", [bytes([1]) * 32, bytes([2]) * 32], "data")
    _, headers, body = described([pushed_message(data)], target, "orders", round(time.time() * 1000))
    return {"secret": verifies, "headers": dict(headers) | changed, "body": body.decode()}


@pytest.mark.parametrize("build", [go, node])
def test_a_library_verifies_what_is_posted(build: Callable[[Path], Sequence[str]], tmp_path: Path) -> None:
    good = [post(data, secret) for data in BODIES for secret in (OLD, NEW)]
    forged = post(BODIES[0], NEW)
    forged["body"] += " "
    bad = [
        post(BODIES[0], OTHER),
        post(BODIES[0], NEW, **{"webhook-id": "another"}),
        post(BODIES[0], NEW, **{"webhook-timestamp": str(round(time.time()) - 3_600)}),
        forged,
    ]
    given = json.dumps([*good, *bad], ensure_ascii=False)
    run = subprocess.run(build(tmp_path), input=given, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["true"] * len(good) + ["false"] * len(bad)
