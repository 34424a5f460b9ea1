"""Finds where a key of the configuration was set: the line of the file, the variable, or the option."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from babelgate.config import sources
from babelgate.errors import ConfigError


def place_of(key: str, file: Path | None, environ: Mapping[str, str], options: Iterable[str] = ()) -> str | None:
    """Where the dotted ``key``, or the closest section around it, was set; None for a default.

    ``options``: the top-level keys that the command line has set.
    """
    if key in options:
        return f"set by --{key.replace('_', '-')}"
    variables = dict(_paths(environ))
    wanted = key.lower()
    for path, variable in variables.items():
        if f"{wanted}.".startswith(f"{path}."):
            return f"set by {variable}"
    line = _line(key, file) if file is not None else None
    if line is not None:
        return f"{file}, line {line}"
    # A variable for a key below this one has made the section.
    return next((f"set by {variable}" for path, variable in variables.items() if path.startswith(f"{wanted}.")), None)


def _paths(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The dotted key of each variable, in lower case because variables have no case, and the variable."""
    for variable, text in environ.items():
        with contextlib.suppress(ConfigError):
            for path in sources.overlay({}, {variable: text}):
                yield ".".join(path).lower(), variable


def _line(key: str, file: Path) -> int | None:
    lines = sources.lines(file)
    around = [name for name in lines if f"{key}.".startswith(f"{name}.")]
    return lines[max(around, key=len)] if around else None
