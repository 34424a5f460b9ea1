"""quicktype, pinned: the generator of types from schemas that ``docs/schemas.md`` names.

``python -m tools.quicktype`` installs it once into ``.brokers``; ``clients/types`` has its versions. The tests only
run it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".brokers" / "quicktype"
PROGRAM = HOME / "node_modules" / ".bin" / "quicktype"
_FOLDER = ROOT / "clients" / "types"
_NPM_FILES = ("package.json", "package-lock.json", ".npmrc")
_INSTALLED = HOME / "installed"


def _versions() -> str:
    return (_FOLDER / "package-lock.json").read_text("utf-8")


def is_here() -> bool:
    """Whether it was installed, in this version."""
    return _INSTALLED.is_file() and _INSTALLED.read_text("utf-8") == _versions()


def fetch() -> None:
    """Install it, unless it is here. Without npm nothing is installed: the tests find it missing."""
    if is_here() or not shutil.which("npm"):
        return
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    for name in _NPM_FILES:
        shutil.copy(_FOLDER / name, HOME)
    subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=HOME, check=True)
    _INSTALLED.write_text(_versions(), "utf-8")


if __name__ == "__main__":
    fetch()
