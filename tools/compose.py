"""Reads compose files as Docker Compose does, with compose-go, its own library. No Docker is needed.

``python -m tools.compose`` builds the program in ``compose_go`` once into ``.brokers``; the tests only run it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.ci import missing

_ROOT = Path(__file__).resolve().parents[1]
_SOURCE = Path(__file__).with_name("compose_go")
_VERSION = re.findall(r"compose-go/v2 (\S+)", (_SOURCE / "go.mod").read_text())[0]
_PROGRAM = _ROOT / ".brokers" / f"compose-go-{_VERSION}" / "project"


def fetch() -> None:
    """Build the program, unless it is here. Without Go nothing is built: the tests find it missing."""
    if _PROGRAM.is_file() or not shutil.which("go"):
        return
    environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", str(_PROGRAM), "."], cwd=_SOURCE, env=os.environ | environ, check=True)


def services(
    *files: str, profiles: Sequence[str] = ("*",), variables: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """The services of the files of this repository, merged and in their long form. Raises AssertionError.

    ``profiles``: those that are switched on, ``*`` for all. ``variables``: what the files may interpolate.
    """
    if not _PROGRAM.is_file():
        missing("the reader of compose files", "run `python -m tools.compose`")
    environ = {"COMPOSE_PROFILES": ",".join(profiles), **(variables or {})}
    done = subprocess.run([str(_PROGRAM), *files], cwd=_ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["services"]
    return found


if __name__ == "__main__":
    fetch()
