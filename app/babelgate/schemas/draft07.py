"""Writes the schemas of jobs in JSON Schema draft 7, with all references within one document.

Documents of AsyncAPI 3 have schemas of this dialect, and their tools know no other. What draft 7 cannot say
(``unevaluatedProperties``, ``minContains`` …) stays where it is, and its validators ignore it: they may allow more.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from babelgate.schemas.files import Schema, SchemaFile
from babelgate.schemas.structure import Path, children, resolved

_KEPT = frozenset(
    (
        *("type", "const", "enum", "format", "required", "uniqueItems", "multipleOf"),
        *("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern"),
        *("maxItems", "minItems", "maxContains", "minContains", "maxProperties", "minProperties"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("contentEncoding", "contentMediaType"),
    )
)
"""Keywords that both dialects have or that draft 7 ignores, and whose values are no schemas."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]")


def component_names(jobs: Collection[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """A name of ``[A-Za-z0-9._-]`` for each job, none of them ``reserved``. It changes with the jobs beside it only
    where two would have the same."""
    plain = {job: _NOT_IN_A_NAME.sub("_", job) for job in jobs}
    counts = Counter(plain.values()) + Counter(reserved)
    return {
        job: name if counts[name] == 1 else f"{name}_{hashlib.sha256(job.encode()).hexdigest()[:12]}"
        for job, name in plain.items()
    }


def translated(files: Mapping[str, SchemaFile], names: Mapping[str, str], base: str) -> dict[str, Any]:
    """The schemas of ``files``, which have no faults, by their ``names``. ``base``: the reference to the place where
    they will stand, such as ``#/components/schemas``."""
    places: dict[int, str] = {}
    for job, file in files.items():
        for path, schema in _renamed(file.schema, (names[job],)):
            places[id(schema)] = base + "".join(f"/{_escaped(step)}" for step in path)
    return {names[job]: _Translation(job, files, places).of(file.schema) for job, file in files.items()}


def _escaped(step: str | int) -> str:
    return quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")


def _renamed(schema: Any, path: Path) -> Iterator[tuple[Path, Schema]]:
    """All schemas in ``schema`` that are objects, with their paths in draft 7."""
    if isinstance(schema, dict):
        yield path, schema
        for below, each in children(schema):
            yield from _renamed(each, (*path, *_path_of(schema, below)))


def _path_of(schema: Schema, path: Path) -> Path:
    keyword = path[0]
    if keyword == "prefixItems":
        return ("items", *path[1:])
    if keyword == "items" and "prefixItems" in schema:
        return ("additionalItems",)
    if keyword == "dependentSchemas":
        return ("dependencies", *path[1:])
    if keyword == "contains" and schema.get("minContains") == 0:
        # It requires nothing then, and in draft 7 it would.
        return ("x-contains",)
    return path


class _Translation:
    """Translates the schema of one job."""

    def __init__(self, job: str, files: Mapping[str, SchemaFile], places: Mapping[int, str]) -> None:
        self._job = job
        self._files = files
        self._places = places

    def of(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        made: Schema = {name: value for name, value in schema.items() if name in _KEPT and not _has_reference(value)}
        for path, each in children(schema):
            keyword, *rest = _path_of(schema, path)
            if not rest:
                made[str(keyword)] = self.of(each)
            elif isinstance(rest[0], int):
                made.setdefault(str(keyword), []).append(self.of(each))
            else:
                made.setdefault(str(keyword), {})[rest[0]] = self.of(each)
        also: list[Any] = []
        for name, required in schema.get("dependentRequired", {}).items():
            if name in made.setdefault("dependencies", {}):
                also.append({"dependencies": {name: required}})
            else:
                made["dependencies"][name] = required
        if "$ref" in schema:
            _, target = resolved(schema["$ref"], self._job, self._files)
            also.append({"$ref": self._places[id(target)]} if isinstance(target, dict) else target)
            if not made:
                return also[0]
        if also:
            # Draft 7 ignores what stands beside a $ref. Appended: pointers to the others stay true.
            made["allOf"] = [*made.get("allOf", ()), *also]
        return made


def _has_reference(value: Any) -> bool:
    """Whether ``value``, which is data, has a member ``$ref``: tools would follow it wherever it stands."""
    if isinstance(value, dict):
        return "$ref" in value or any(map(_has_reference, value.values()))
    return isinstance(value, list) and any(map(_has_reference, value))
