"""Small disks: real file systems in memory, which a test can fill up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.ci import missing


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """A file system of ``size`` bytes at the new ``directory``. Needs root."""
    if os.geteuid() != 0:
        missing("a file system of the test's own", "run the tests as root")
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path, keep: int = 0) -> Path:
    """Fill the file system of ``directory`` with a file, but for ``keep`` bytes; returns the file."""
    filler = directory / "filler"
    status = os.statvfs(directory)
    with filler.open("wb") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(status.f_bavail * status.f_frsize - keep, 1))
    return filler
