"""Turns the URL and options of a SQLite broker into its database file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from babelgate.brokers.options import OptionMap, choice, seconds, timeout_of
from babelgate.brokers.sqlite.file import DatabaseFile
from babelgate.errors import ConfigError

BUSY_TIMEOUT_SECONDS = (0.1, 60.0)
"""The bounds of the option, ours: a shorter wait would refuse the ordinary traffic of a second process."""


def database_file(name: str, url: str, options: Mapping[str, Any]) -> DatabaseFile:
    """The file of ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; no I/O.

    Options: ``timeout_seconds``; ``synchronous``: ``full`` (default) or ``normal``; ``busy_timeout_seconds`` (0.1..60):
    how long a transaction waits for other processes, by default and at most ``timeout_seconds``. Raises ConfigError.
    """
    timeout_seconds, others = timeout_of(options)
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if parts.netloc or parts.query or parts.fragment or not parts.path.startswith("/"):
        raise ConfigError(key="url", reason="expected sqlite:///relative.db or sqlite:////absolute.db and nothing else")
    if not path or path.endswith("/") or path == ":memory:" or "\0" in path:
        raise ConfigError(key="url", reason="the URL must name a file")
    given = OptionMap(others)
    synchronous: Literal["full", "normal"] = given.read("synchronous", choice("full", "normal"), "full")
    busy_seconds = given.read("busy_timeout_seconds", seconds(*BUSY_TIMEOUT_SECONDS), timeout_seconds)
    given.finish()
    return DatabaseFile(name, os.path.abspath(path), synchronous, min(busy_seconds, timeout_seconds), timeout_seconds)
