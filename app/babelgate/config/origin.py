"""Where a configuration was read from, so that it can be read again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelgate.config.settings import Settings, load
from babelgate.config.sources import referred_files


@dataclass(slots=True)
class Origin:
    """The arguments of :func:`babelgate.config.settings.load`. Workers get it with their settings.

    ``loaded``: the digest of the files when it was last loaded, or was to be; None before.
    """

    path: Path | None
    environ: Mapping[str, str] = field(repr=False)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    loaded: bytes | None = field(default=None, init=False)

    def digest(self) -> bytes | None:
        """SHA-256 of the file as it is now, through links, and of the files that its ``${file:…}`` name; None without a
        file, or while it cannot be read. A file that it names may be missing: it may come later than this one."""
        if self.path is None:
            return None
        try:
            text = self.path.read_bytes()
        except OSError:
            return None
        whole = hashlib.sha256(text)
        for name in referred_files(text.decode("utf-8", "replace")):
            try:
                whole.update(hashlib.sha256(Path(name).read_bytes()).digest())
            except (OSError, ValueError):
                whole.update(b"missing")
        return whole.digest()

    def load(self) -> Settings:
        """Read the configuration as it is now; blocks on the disk. Raises ConfigError."""
        self.loaded = self.digest()
        return load(self.path, self.environ, dict(self.overrides))
