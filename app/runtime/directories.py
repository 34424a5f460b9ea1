"""Directories that a configuration names."""

from __future__ import annotations

import os
from pathlib import Path

from app.errors import ConfigError


def check_writable(directory: Path, key: str) -> None:
    """Raise ConfigError naming ``key`` where this process cannot write to ``directory``, nor make it."""
    nearest = next(each for each in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(each))
    if not nearest.is_dir():
        raise ConfigError(key=key, reason=f"{directory}: {nearest} is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(key=key, reason=f"{directory}: {nearest} cannot be written")
