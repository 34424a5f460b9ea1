"""The official conformance suite, as the pinned source distribution of the Python SDK carries it.

``python -m tests.harness.conformance`` fetches it once; the tests only read it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SUITE_VERSION = "1.8.0"
_DISTRIBUTION = "babelqueue-1.24.0"
_SHA256 = "3918ef1e53ad08be2311f27840d1c949159a1d66701ebe899acabbd86a430da1"
_HOME = Path(__file__).resolve().parents[2] / ".brokers" / "babelqueue"
_PART = f"{_DISTRIBUTION}/tests/conformance/"
SUITE = _HOME / _PART


def fetch() -> None:
    """Download, verify and unpack the suite, unless it is here. Raises RuntimeError when that fails."""
    if _is_here():
        return
    _HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_HOME) as folder:
        command = [*_pip(), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
        subprocess.run([*command, "--no-binary", "babelqueue", _DISTRIBUTION.replace("-", "==")], check=True)
        archive = Path(folder) / f"{_DISTRIBUTION}.tar.gz"
        actual = hashlib.sha256(archive.read_bytes()).hexdigest()
        if actual != _SHA256:
            raise RuntimeError(f"{archive.name} has the SHA-256 {actual}, expected {_SHA256}")
        shutil.rmtree(SUITE, ignore_errors=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if _PART in member.name else None
                if content is not None:
                    target = _HOME / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
    if not _is_here():
        raise RuntimeError(f"{_DISTRIBUTION} does not carry version {SUITE_VERSION} of the suite")


def _is_here() -> bool:
    version = SUITE / "CONFORMANCE_VERSION"
    return version.is_file() and version.read_text("ascii").strip() == SUITE_VERSION


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise RuntimeError("pip is needed to fetch the conformance suite")
    return [found]


def locate() -> Path | None:
    """The folder of the suite, or None when it was not fetched."""
    return SUITE if _is_here() else None


if __name__ == "__main__":
    fetch()
