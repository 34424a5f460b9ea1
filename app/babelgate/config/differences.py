"""The values that differ between two configurations, with secrets masked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from babelgate.config.changes import RELOADED, shown
from babelgate.config.settings import Settings

_Path = tuple[str, ...]


class ChangedKey(Struct, frozen=True):
    """A value that differs. ``old`` and ``new``: as JSON values, masked; None where there is none. ``restart``: a
    running gateway cannot apply it."""

    key: str
    old: Any
    new: Any
    restart: bool


def between(old: Settings, new: Settings) -> list[ChangedKey]:
    """What differs, secrets included."""
    return _differences(old.model_dump(mode="python"), new.model_dump(mode="python"), shown(old), shown(new))


def between_shown(running: Mapping[str, Any], new: Settings) -> list[ChangedKey]:
    """What differs from the configuration that a gateway shows: all but secrets."""
    # What a gateway shows has been through JSON.
    other = json.loads(json.dumps(shown(new)))
    return _differences(running, other, running, other)


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], old_shown: Mapping[str, Any], new_shown: Mapping[str, Any]
) -> list[ChangedKey]:
    kept = old["brokers"].keys() & new["brokers"].keys()
    return [
        ChangedKey(".".join(path), _at(old_shown, path), _at(new_shown, path), _needs_restart(path, kept))
        for path in _paths(old, new)
    ]


def _paths(old: object, new: object, path: _Path = ()) -> Iterator[_Path]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            yield from _paths(old.get(name), new.get(name), (*path, str(name)))
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _paths(before, after, (*path, str(index)))
    else:
        yield path


def _at(tree: Any, path: _Path) -> Any:
    for name in path:
        if isinstance(tree, list):
            tree = tree[int(name)]
        elif isinstance(tree, Mapping):
            tree = tree.get(name)
    return tree


def _needs_restart(path: _Path, kept: set[str]) -> bool:
    """As :func:`babelgate.config.changes.needs_restart`, of one value. ``kept``: brokers of both configurations."""
    match path:
        case ("brokers", name, option, *_):
            return name in kept and option != "required"
        case ("auth",):
            return True
        case ("auth", member, *_):
            return member not in ("tokens", "certificates")
        case ("rate_limits", "store", *_):
            return True
    return path[0] not in RELOADED
