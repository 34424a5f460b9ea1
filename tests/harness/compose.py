"""Reads compose files as Docker Compose does, with compose-go, its own library. No Docker is needed.

``python -m tests.harness.compose`` installs the program of the library once into ``.brokers``; the tests only run it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.harness.ci import missing

_ROOT = Path(__file__).resolve().parents[2]
_VERSION = "v2.16.2"
_PROGRAM = _ROOT / ".brokers" / f"compose-go-{_VERSION}" / "cmd"


def fetch() -> None:
    """Install the program, unless it is here. Without Go nothing is installed: the tests find it missing."""
    if _PROGRAM.is_file() or not shutil.which("go"):
        return
    environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0", "GOBIN": str(_PROGRAM.parent)}
    command = ["go", "install", f"github.com/compose-spec/compose-go/v2/cmd@{_VERSION}"]
    subprocess.run(command, env=os.environ | environ, check=True)


def services(*files: str) -> dict[str, dict[str, Any]]:
    """The services of the files of this repository, merged and in their long form. Raises AssertionError.

    ``environment`` is a mapping; after a merge compose-go writes it as a list.
    """
    if not _PROGRAM.is_file():
        missing("compose-go", "run `python -m tests.harness.compose`")
    command = [str(_PROGRAM), "-format", "json", *files]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["services"]
    for service in found.values():
        if isinstance(variables := service.get("environment"), list):
            service["environment"] = dict(pair.split("=", 1) for pair in variables)
    return found


if __name__ == "__main__":
    fetch()
