"""The programs that read the OpenAPI document, pinned: linters, a comparison of two documents, and generators.

``python -m tools.openapi_tools`` installs them once into ``.brokers``; the tests only run them. Those
of npm are in ``openapi/package-lock.json``. ``requirements-dev.txt`` has openapi-python-client, and
:mod:`tools.openapi_generator` the generator in Java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.ci import missing

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".brokers" / "openapi-tools"
NODE_MODULES = HOME / "node_modules"
GO_MODULE = HOME / "go"
"""A module with what a client of oapi-codegen imports."""

_NPM_FILES = ("package.json", "package-lock.json", ".npmrc")
_GO_PROGRAMS = {
    # The newest whose dependencies are to be had.
    "oasdiff": "github.com/oasdiff/oasdiff@v1.19.1",
    "oapi-codegen": "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2",
}
_GO_LIBRARY = "github.com/oapi-codegen/runtime@v1.8.0"
_INSTALLED = HOME / "installed"
_ENVIRON = os.environ | {
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "",
    "CGO_ENABLED": "0",
    "REDOCLY_TELEMETRY": "off",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
}


def _versions() -> str:
    """What :func:`fetch` installs, as text, to see whether it was installed."""
    return "\n".join([(ROOT / "openapi" / "package-lock.json").read_text("utf-8"), *_GO_PROGRAMS.values(), _GO_LIBRARY])


def is_here() -> bool:
    """Whether the programs were installed, in these versions."""
    return _INSTALLED.is_file() and _INSTALLED.read_text("utf-8") == _versions()


def fetch() -> None:
    """Install the programs, unless they are here. Without npm or Go nothing is installed: the tests find it missing."""
    if is_here() or not (shutil.which("npm") and shutil.which("go")):
        return
    HOME.mkdir(parents=True, exist_ok=True)
    for name in _NPM_FILES:
        shutil.copy(ROOT / "openapi" / name, HOME)
    _call("npm", "ci", "--silent", "--ignore-scripts", cwd=HOME)
    for program in _GO_PROGRAMS.values():
        _call("go", "install", program, cwd=HOME, GOBIN=str(HOME / "bin"))
    shutil.rmtree(GO_MODULE, ignore_errors=True)
    GO_MODULE.mkdir()
    _call("go", "mod", "init", "example.com/client", cwd=GO_MODULE)
    _call("go", "get", _GO_LIBRARY, cwd=GO_MODULE)
    _INSTALLED.write_text(_versions(), "utf-8")


def _call(*command: str, cwd: Path, **environ: str) -> None:
    subprocess.run(command, cwd=cwd, env=_ENVIRON | environ, check=True)


def run(program: str, *arguments: str | Path, cwd: Path, status: int = 0) -> str:
    """What ``program`` prints: one of npm, of Go, of Python, or of the system.

    Raises AssertionError unless it ends with ``status``.
    """
    if not is_here():
        missing("a program for the OpenAPI document", "run `python -m tools.openapi_tools`")
    own = [NODE_MODULES / ".bin" / program, HOME / "bin" / program]
    path = next((str(each) for each in own if each.is_file()), program)
    # openapi-python-client looks for ruff on the path.
    environ = _ENVIRON | {"GOPROXY": "off", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([path, *arguments], cwd=cwd, env=environ, capture_output=True, text=True)
    assert done.returncode == status, f"{program}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


if __name__ == "__main__":
    fetch()
