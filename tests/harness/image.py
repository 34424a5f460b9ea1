"""Builds the images of the Dockerfile with buildah, and runs them with podman and runc. Needs Linux and root.

``python -m tests.harness.image`` makes the image that they begin with from Debian's packages, once, in ``.brokers``: no
registry of images is needed. Beside it are the layers of earlier builds.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.harness.ci import missing

ROOT = Path(__file__).resolve().parents[2]
TAG = "babelgate:test"
PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
_STORE = ROOT / ".brokers" / "images"
_BASE = re.findall(r"^ARG BASE_IMAGE=(\S+)", (ROOT / "Dockerfile").read_text("utf-8"), re.M)[0]
_PACKAGES = "python3,python3-venv,libpython3.11-dev,ca-certificates"
# The official image has its library uncompiled, too.
_UNCOMPILED = 'find "$1/usr/lib/python3.11" -name "*.pyc" -delete'


def fetch() -> None:
    """Make the image that builds begin with, unless it is here. Without root or the programs nothing is made: the tests
    find it missing."""
    if _lacks() is None and not _has_base():
        with TemporaryDirectory() as folder:
            tar = Path(folder, "base.tar")
            options = ["--variant=minbase", f"--include={_PACKAGES}", f"--customize-hook={_UNCOMPILED}"]
            subprocess.run(["mmdebstrap", "--quiet", *options, "bookworm", str(tar)], check=True)
            Path(folder, "Dockerfile").write_text(f"FROM scratch\nADD {tar.name} /\n")
            _buildah("bud", "--isolation", "chroot", "--format", "docker", "--tag", _BASE, folder)


def build(context: Path = ROOT, tag: str = TAG, target: str = "") -> None:
    """Build an image of the Dockerfile in ``context`` as users do: with the network, and the layers of earlier builds.
    ``target``: the stage; empty for the last one. Raises AssertionError with the output of a build that fails."""
    if (program := _lacks()) is not None:
        missing(program, f"run as root on Linux, with the system's packages {', '.join(PROGRAMS)}")
    if not _has_base():
        missing("the image that builds begin with", "run `python -m tests.harness.image`")
    with TemporaryDirectory() as folder:
        # The authorities that this machine trusts: a proxy may have one of its own.
        trusted, settings = "/run/authorities.pem", Path(folder, "pip.conf")
        settings.write_text(f"[global]\ncert = {trusted}\n")
        authorities = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
        mounts = ["--volume", f"{settings}:/etc/pip.conf:ro", "--volume", f"{authorities}:{trusted}:ro"]
        options = ["--layers", "--isolation", "chroot", "--network", "host", "--pull=false", "--format", "docker"]
        stage = ["--target", target] if target else []
        done = _buildah("bud", *options, *mounts, *stage, "--tag", tag, str(context))
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]


def remove(tag: str) -> None:
    """Remove an image that was built here. The layers of its build stay."""
    done = _buildah("rmi", tag)
    assert done.returncode == 0, done.stderr


def _lacks() -> str | None:
    """What is missing for a build on this machine."""
    if sys.platform != "linux" or os.geteuid():
        return "root"
    # Debian has runc where only root finds it.
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return next((program for program in PROGRAMS if shutil.which(program, path=path) is None), None)


def _has_base() -> bool:
    return _buildah("inspect", "--type", "image", _BASE).returncode == 0


def _buildah(*arguments: str) -> subprocess.CompletedProcess[str]:
    _STORE.mkdir(parents=True, exist_ok=True)
    # Below the run root mounts are counted, for one command. So there is one at a time.
    with TemporaryDirectory() as run, (_STORE.parent / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["buildah", "--root", str(_STORE), "--runroot", run, *arguments]
        return subprocess.run(command, capture_output=True, text=True)


class Podman:
    """Podman with the images that were built here, and with containers of its own; :func:`podman` makes it."""

    def __init__(self, directory: Path) -> None:
        self._options = [
            *("--root", f"{directory}/root", "--runroot", f"{directory}/run"),
            *("--storage-opt", f"overlay.imagestore={_STORE}"),
            # Neither systemd nor a version of control groups is needed.
            *("--runtime", "runc", "--cgroup-manager", "cgroupfs"),
        ]

    def command(self, *arguments: str) -> list[str]:
        """The command line of a command of podman."""
        return ["podman", *self._options, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of podman to its end."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=600)

    def __call__(self, *arguments: str) -> str:
        """What a command of podman prints. Raises AssertionError if it fails."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def inspect(self, name: str, kind: str = "container") -> Any:
        """What podman knows about a container, or about an image."""
        return json.loads(self("inspect", "--type", kind, name))[0]


@contextmanager
def podman() -> Iterator[Podman]:
    """A podman without containers. Those that it has at the end are killed and removed, with their volumes."""
    with TemporaryDirectory(prefix="podman-") as directory:
        # Podman refuses a longer path.
        own = Podman(Path(directory))
        try:
            yield own
        finally:
            own("rm", "--all", "--force", "--time", "0", "--volumes")
            own("volume", "prune", "--force")


LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024")
"""Podman would otherwise set its own defaults, which may be more than this machine allows."""


def environment(variables: Mapping[str, str]) -> list[str]:
    """The options that set the environment of a container."""
    return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]


if __name__ == "__main__":
    fetch()
