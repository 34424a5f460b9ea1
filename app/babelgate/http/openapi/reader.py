"""Reads the parts of the document: YAML files, whose sections are joined by name.

A part says what OpenAPI says, with two abbreviations. ``{$use: NAME}`` stands for the entry NAME of a section
``shared``, of whatever part: its members are inserted at that place, and members that follow replace them. A list of
texts, where a ``description`` is due, is one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

Json = dict[str, Any]

FOLDER = files("babelgate.http.openapi") / "parts"
PLACE = "app/babelgate/http/openapi/parts"
"""The folder for people: where to add a missing part."""
FILES = (
    "document",
    "statuses",
    "envelopes",
    "publish",
    "consume",
    "streams",
    "queues",
    "dead-letters",
    "redrives",
    "pushes",
    "tokens",
    "schemas",
    "history",
    "operations",
    "problems",
)
"""The names of the parts. The document has its operations in this order."""
# The loader that is written in Python takes a second for all of them. A build of PyYAML without libyaml has no other.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parts(folder: Traversable = FOLDER) -> Json:
    """The sections of all parts, without abbreviations; each name is a text, that of a status too. Takes some 20 ms.

    Raises ValueError for a name that two parts have, and for one that none has.
    """
    sections: Json = {}
    for file in FILES:
        for name, section in yaml.load((folder / f"{file}.yaml").read_text("utf-8"), _LOADER).items():
            known = sections.setdefault(name, section)
            if known is not section:
                if twice := known.keys() & section.keys():
                    raise ValueError(f"{PLACE}/{file}.yaml: another part has {min(twice)} in its section {name}, too.")
                known |= section
    shared = sections.pop("shared")
    return {name: _written_out(section, shared) for name, section in sections.items()}


def _written_out(node: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_written_out(item, shared) for item in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {"$use"}:
        return _used(node["$use"], shared)
    made = dict(_members(node, shared))
    if isinstance(text := made.get("description"), list):
        made["description"] = " ".join(text)
    return made


def _members(node: Json, shared: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        if name == "$use":
            yield from _used(value, shared).items()
        else:
            yield str(name), _written_out(value, shared)


def _used(name: str, shared: Mapping[str, Any]) -> Any:
    if name not in shared:
        raise ValueError(f"{PLACE}: no part has {name} in its section shared.")
    return _written_out(shared[name], shared)
