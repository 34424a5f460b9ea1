"""Where a configuration was read from, so that it can be read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelgate.config.settings import Settings, read_tree, validated
from babelgate.config.sources import referred_files


@dataclass(slots=True)
class Origin:
    """The arguments of :func:`babelgate.config.settings.load`. Workers get it with their settings.

    ``loaded``: the digest of the files when it was last loaded, or was to be; None before. ``text``: what was read
    then, as JSON, with ``${…}`` resolved; empty before.
    """

    path: Path | None
    environ: Mapping[str, str] = field(repr=False)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    loaded: bytes | None = field(default=None, init=False)
    text: bytes = field(default=b"", init=False, repr=False)

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
        tree = read_tree(self.path, self.environ, dict(self.overrides))
        self.text = json.dumps(tree).encode()
        return validated(tree)


def from_text(text: bytes) -> Settings:
    """The settings that another process has read, by its :attr:`Origin.text`. Raises ValueError, and ConfigError."""
    tree = json.loads(text)
    if not isinstance(tree, dict):
        raise ValueError("it is no configuration")
    return validated(tree)
