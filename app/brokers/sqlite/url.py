"""The URL and options of a SQLite broker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from app.brokers.options import timeout_of
from app.brokers.sqlite.file import DatabaseFile
from app.errors import ConfigError

BUSY_TIMEOUT_SECONDS = (0.1, 60.0)
"""The bounds of the option, ours: less would refuse ordinary traffic of a second process."""


def database_file(name: str, url: str, options: Mapping[str, Any]) -> DatabaseFile:
    """The file that ``sqlite:///relative.db`` or ``sqlite:////absolute.db`` names; no I/O.

    Options: ``timeout_seconds``; ``synchronous`` ``full`` (default) or ``normal``; ``busy_timeout_seconds`` (0.1..60):
    how long a transaction waits for other processes, by default and at most ``timeout_seconds``. Raises ConfigError.
    """
    timeout_seconds, options = timeout_of(options)
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if parts.netloc or parts.query or parts.fragment or not parts.path.startswith("/"):
        raise ConfigError(key="url", reason="expected sqlite:///relative.db or sqlite:////absolute.db and nothing else")
    if not path or path.endswith("/") or path == ":memory:" or "\0" in path:
        raise ConfigError(key="url", reason="the URL must name a file")
    unknown = sorted(options.keys() - {"synchronous", "busy_timeout_seconds"})
    if unknown:
        raise ConfigError(key=unknown[0], reason="unknown option; known are synchronous and busy_timeout_seconds")
    synchronous = options.get("synchronous", "full")
    if synchronous not in ("full", "normal"):
        raise ConfigError(key="synchronous", reason="expected full or normal")
    seconds = options.get("busy_timeout_seconds", timeout_seconds)
    least, most = BUSY_TIMEOUT_SECONDS
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not least <= seconds <= most:
        raise ConfigError(key="busy_timeout_seconds", reason=f"expected a number from {least:g} to {most:g}")
    busy_seconds = min(float(seconds), timeout_seconds)
    return DatabaseFile(name, os.path.abspath(path), synchronous, busy_seconds, timeout_seconds)
