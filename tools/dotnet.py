"""A .NET SDK and NSwag, pinned, with which the C# client is made.

``python -m tools.dotnet`` installs them once into ``.brokers``: the npm packages that ``clients/csharp/tools``
names, and the OpenSSL 1.1 that this SDK needs and Debian no longer has. ``clients/csharp/dotnet`` runs the SDK.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".brokers" / "dotnet"
_TOOLS = ROOT / "clients" / "csharp" / "tools"
_NPM_FILES = ("package.json", "package-lock.json", ".npmrc")
_REQUIREMENTS = _TOOLS / "requirements.txt"
_INSTALLED = HOME / "installed"


def _versions() -> str:
    """What :func:`fetch` installs, as text, to see whether it was installed."""
    return (_TOOLS / "package-lock.json").read_text("utf-8") + _REQUIREMENTS.read_text("utf-8")


def is_here() -> bool:
    """Whether the programs were installed, in these versions."""
    return _INSTALLED.is_file() and _INSTALLED.read_text("utf-8") == _versions()


def fetch() -> None:
    """Install the programs, unless they are here. Without npm nothing is installed: ``make clients`` says so."""
    if is_here() or not shutil.which("npm"):
        return
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    for name in _NPM_FILES:
        shutil.copy(_TOOLS / name, HOME)
    subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=HOME, check=True)
    _fetch_openssl()
    _INSTALLED.write_text(_versions(), "utf-8")


def _fetch_openssl() -> None:
    wheels = HOME / "wheels"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    wanted = ["--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--requirement", str(_REQUIREMENTS)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, *wanted, "--dest", str(wheels)], check=True)
    (wheel,) = wheels.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(wheels)
    (libraries,) = wheels.glob("*.libs")
    (library,) = libraries.glob("libssl-*.so.1.1")
    library.with_name("libssl.so.1.1").symlink_to(library.name)
    libraries.rename(HOME / "openssl")
    shutil.rmtree(wheels)


if __name__ == "__main__":
    fetch()
