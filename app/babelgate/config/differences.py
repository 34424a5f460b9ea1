"""The values that differ between two configurations, with secrets masked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from babelgate.config.changes import Path, differing_paths, dotted, is_applied, plain, shown
from babelgate.config.settings import Settings


class ChangedKey(Struct, frozen=True):
    """A value that differs. ``old`` and ``new``: as JSON values, masked; None where there is none. ``restart``: a
    running gateway cannot apply it."""

    key: str
    old: Any
    new: Any
    restart: bool


def between(old: Settings, new: Settings) -> list[ChangedKey]:
    """What differs, secrets included."""
    return _differences(plain(old), plain(new), shown(old), shown(new))


def between_shown(running: Mapping[str, Any], new: Settings) -> list[ChangedKey]:
    """What differs from the configuration that a gateway shows: all but secrets."""
    # What a gateway shows has been through JSON.
    other = json.loads(json.dumps(shown(new)))
    return _differences(running, other, running, other)


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], old_shown: Mapping[str, Any], new_shown: Mapping[str, Any]
) -> list[ChangedKey]:
    return [
        ChangedKey(dotted(path), _at(old_shown, path), _at(new_shown, path), not is_applied(path))
        for path in differing_paths(old, new)
    ]


def _at(tree: Any, path: Path) -> Any:
    for name in path:
        if isinstance(tree, list):
            tree = tree[int(name)]
        elif isinstance(tree, Mapping):
            tree = tree.get(name)
    return tree
