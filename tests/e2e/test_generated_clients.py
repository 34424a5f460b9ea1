"""openapi-generator makes Go and Java clients from the served document; both compile, and the one in Go works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.harness.ci import missing
from tests.harness.gateway import gateway
from tools import openapi_generator
from tools.openapi_generator import JAVA_OPTIONS, classpath, generate

pytestmark = pytest.mark.slow

ROUNDTRIP = Path(__file__).parent / "clients" / "roundtrip.go"
MODULE = ("--git-user-id", "example", "--git-repo-id", "babelgate")
"""The name by which the program imports the client."""
OFFLINE = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": ""}
"""A generated client needs nothing but the standard library of Go, and no C compiler."""


@pytest.fixture(autouse=True)
def generator() -> None:
    if not openapi_generator.is_here():
        missing("openapi-generator", "run `python -m tools.openapi_generator`")


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            missing(program, "`make test-all-deps` installs it")


def run(*command: str | Path, cwd: Path) -> str:
    """What it prints. Raises AssertionError with all of it when it fails."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | OFFLINE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_go_client_publishes_receives_and_settles(tmp_path):
    need("java", "go")
    with gateway(tmp_path) as server:
        client = generate("go", f"{server.url}/openapi.json", tmp_path / "go", *MODULE)
        (client / "roundtrip").mkdir()
        shutil.copy(ROUNDTRIP, client / "roundtrip" / "main.go")
        run("go", "build", "-o", tmp_path / "program", "./roundtrip", cwd=client)
        started = int(time.time() * 1000)
        read = json.loads(run(tmp_path / "program", server.url, cwd=tmp_path))
        ended = int(time.time() * 1000)
        with server.client() as http:
            record = http.get("queues/emails/dead-letters").json()["dead_letters"][0]
    assert read["code_of_a_bad_token"] == "invalid_ack_token"
    assert started <= read["created_at"] <= read["failed_at"] <= ended
    assert (read["received_id"], read["received_created_at"]) == (read["id"], read["created_at"])
    assert read["received_data"] == {"text": "one"}
    # A member that the schema does not name.
    assert read["received_ext"] == {"vendor": 1}
    assert started < read["lease_expires_at"] < ended + 600_000 and started + 600_000 <= read["extended_to"]
    assert (read["acked"], read["batch"], read["rejected"]) == (1, [1, 1, 422], 1)
    assert read["failed_at"] == record["failed_at"]
    # No publish was repeated, and no lease is left.
    assert (read["depth"], read["in_flight"], read["dead"], read["ready"]) == (0, 0, 1, "ok")


def test_a_java_client_compiles_and_has_64_bits_for_every_integer(tmp_path):
    need("java", "javac")
    with gateway(tmp_path) as server:
        client = generate("java", f"{server.url}/openapi.json", tmp_path / "java", "--library", "native")
    sources = sorted((client / "src" / "main" / "java").rglob("*.java"))
    javac = ["javac", *(f"-J{option}" for option in JAVA_OPTIONS), "-nowarn", "-proc:none"]
    run(*javac, "-d", tmp_path / "classes", "-cp", classpath(), *sources, cwd=client)
    models = {path.stem: path.read_text("utf-8") for path in sources if path.parent.name == "model"}
    for name, member in (("Receipt", "createdAt"), ("ReceivedMessage", "leaseExpiresAt"), ("Projection", "sizeBytes")):
        assert re.search(rf"private Long {member};", models[name]), models[name]
    assert re.search(r"JsonNullable<Long> leaseExpiresAt\b", models["TokenResult"]), models["TokenResult"]
    assert [name for name, text in models.items() if re.search(r"\b(Integer|Float)\b", text)] == []
