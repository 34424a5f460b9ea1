"""The container's health check, as the Dockerfile has it, against real gateways."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.harness import program
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import certify, free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 240
TOKENS = {"tokens": [{"name": "x", "sha256": hashlib.sha256(b"x").hexdigest(), "rights": {"*": ["send"]}}]}


def command() -> list[str]:
    """The arguments of babelgate that the image runs."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith("HEALTHCHECK")]
    name, *arguments = json.loads(line[line.index("CMD") + 3 :])
    assert name == "babelgate"
    return [str(each) for each in arguments]


def health(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it with the configuration that is in ``directory``."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    environ |= {"BABELGATE_CONFIG": str(directory / "babelgate.yaml")} | variables
    done = program.run(*command(), environ=environ)
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in errors
    # One line, which a container's engine keeps and shows.
    assert len((output + errors).splitlines()) == 1
    return subprocess.CompletedProcess(done.args, done.returncode, output, errors)


def configure(directory: Path, **config: Any) -> None:
    """A configuration without a gateway; JSON is YAML."""
    (directory / "babelgate.yaml").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "http://127.0.0.1:"),
        ({"prefix": "/mq"}, "/mq/livez is alive"),
        ({"auth": TOKENS}, "is alive"),
        ({"host": "0.0.0.0", "auth": "none", "hosts": "gateway"}, "http://0.0.0.0:"),
        ({"host": "localhost"}, "http://localhost:"),
        # Of an authority that nobody here trusts, for 127.0.0.1.
        ({"tls_cert": "server.crt", "tls_key": "server.key"}, "https://127.0.0.1:"),
        # Self-signed, and for another name.
        ({"tls_cert": "ca.crt", "tls_key": "ca.key", "prefix": "/mq"}, "https://127.0.0.1:"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_gateway_that_serves_is_healthy(tmp_path: Path, config: dict[str, Any], says: str) -> None:
    if "tls_cert" in config:
        certify(tmp_path)
        config = config | {key: str(tmp_path / config[key]) for key in ("tls_cert", "tls_key")}
    # The port stands in the file alone.
    with gateway(tmp_path, config):
        done = health(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
def test_a_gateway_on_one_address_is_asked_there(tmp_path: Path, host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"this machine has no {host}")
    process = GatewayProcess(tmp_path, {"host": host})
    try:
        process.start(ready=False)
        eventually_healthy(tmp_path)
        # Nobody listens on the address that would be asked by default.
        assert health(tmp_path, BABELGATE_HOST="127.0.0.1").returncode == 1
    finally:
        process.close()


def test_a_variable_wins_over_the_file_as_it_does_for_the_gateway(tmp_path: Path) -> None:
    port = str(free_port())
    with gateway(tmp_path, environ={"BABELGATE_PORT": port}) as process:
        assert httpx.URL(process.url).port == int(port)
        configure(tmp_path, port=free_port())
        assert health(tmp_path, BABELGATE_PORT=port).returncode == 0
        assert health(tmp_path).returncode == 1


def test_a_gateway_that_is_gone_is_not_healthy(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        process.kill()
        done = health(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no answer from http://127.0.0.1:") and "refused" in done.stderr


def test_a_gateway_that_hangs_is_not_healthy(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        done = health(tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "timed out" in done.stderr
        os.kill(process.pid, signal.SIGCONT)
        eventually_healthy(tmp_path)


def test_a_gateway_that_drains_is_healthy_until_it_is_gone(tmp_path: Path) -> None:
    with gateway(tmp_path, {"drain_seconds": 3_600}) as process:
        process.terminate()
        while httpx.get(f"{process.url}/readyz", timeout=60).status_code != 503:
            time.sleep(0.02)
        assert health(tmp_path).returncode == 0
        # A second signal ends the drain.
        process.stop()
        assert health(tmp_path).returncode == 1


class _Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def other_server() -> Iterator[int]:
    """The port of some other HTTP server."""
    with HTTPServer(("127.0.0.1", 0), _Other) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_another_service_is_not_healthy(tmp_path: Path) -> None:
    with other_server() as port:
        configure(tmp_path, port=port)
        done = health(tmp_path)
        assert (done.returncode, done.stderr) == (1, f"http://127.0.0.1:{port}/livez answered 404\n")
        configure(tmp_path, port=port, tls_cert="server.crt", tls_key="server.key")
        assert health(tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("config", "key"), [({"prot": 1}, "prot"), ({"port": 0}, "port"), ({"host": "name.invalid", "auth": "none"}, "")]
)
def test_what_cannot_be_asked_is_said(tmp_path: Path, config: dict[str, Any], key: str) -> None:
    configure(tmp_path, **config)
    done = health(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{key}: " if key else "no answer from http://name.invalid:8080/livez: ")


def test_it_loads_neither_a_server_nor_a_client_of_a_broker(tmp_path: Path) -> None:
    names = "{'uvicorn', 'fastapi', 'starlette', 'httpx', 'sqlite3', 'redis', 'aiormq', 'pamqp', 'opentelemetry'}"
    script = "import sys\nfrom babelgate.cli.main import cli\ntry:\n    cli(['healthcheck'])\n"
    script += f"finally:\n    print({names} & set(sys.modules))"
    with gateway(tmp_path):
        environ = os.environ | {"BABELGATE_CONFIG": str(tmp_path / "babelgate.yaml")}
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["set()"], done.stderr


def eventually_healthy(directory: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (done := health(directory)).returncode != 0:
        assert time.monotonic() < deadline, done.stderr
