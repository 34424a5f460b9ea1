"""The structure of schemas: where subschemas stand, and where references lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

from babelgate.jsontext import pointer
from babelgate.schemas.files import Schema, SchemaFault, SchemaFile

# https://json-schema.org/draft/2020-12/json-schema-core#name-a-vocabulary-for-applying-s
SAME_PLACE_ONE = ("not", "if", "then", "else")
SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
SAME_PLACE_MAPS = ("dependentSchemas",)
"""Keywords whose subschemas apply to the same place of the data, as ``$ref`` does."""
_ONE = (
    *SAME_PLACE_ONE,
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "contains",
    "unevaluatedItems",
    "contentSchema",
)
_LISTS = (*SAME_PLACE_LISTS, "prefixItems")
_MAPS = (*SAME_PLACE_MAPS, "properties", "patternProperties", "$defs", "definitions")
_UNSUPPORTED = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "dependencies")
_INSTEAD = {"dependencies": "use dependentRequired or dependentSchemas"}
"""The library applies this keyword of older drafts, whose subschemas the bounds do not count."""
_SLOW_FORMATS = ("regex", "idn-hostname", "idn-email")

Path = tuple[str | int, ...]


class Unresolved(Exception):
    """A reference that leads to no schema of the directory."""


def subschemas(schema: Any, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Yield ``schema`` and all schemas in it that are objects, each with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for below, each in children(schema):
        yield from subschemas(each, (*path, *below))


def children(schema: Schema) -> Iterator[tuple[Path, Any]]:
    """Yield the subschemas directly in ``schema``, each with its path there: a keyword, and a name or an index."""
    for keyword in _ONE:
        if keyword in schema:
            yield (keyword,), schema[keyword]
    for keyword in _LISTS:
        if isinstance(several := schema.get(keyword), list):
            for index, each in enumerate(several):
                yield (keyword, index), each
    for keyword in _MAPS:
        if isinstance(named := schema.get(keyword), dict):
            for key, each in named.items():
                yield (keyword, key), each


def resolved(reference: str, job: str, files: Mapping[str, SchemaFile]) -> tuple[str, Any]:
    """The job of the file that ``reference`` in the schema of ``job`` leads to, and the subschema there.

    Raises Unresolved.
    """
    named, _, fragment = reference.partition("#")
    target = files.get(named or job)
    if target is None:
        raise Unresolved(f"no file of the directory has the $id {named!r}; others are not fetched")
    if not fragment:
        return target.job, target.schema
    if fragment.startswith("/"):
        return target.job, _at(target.schema, unquote(fragment))
    for _, each in subschemas(target.schema):
        if each.get("$anchor") == fragment:
            return target.job, each
    raise Unresolved(f"there is no $anchor {fragment!r}")


def _at(node: Any, place: str) -> Any:
    """The subschema at the pointer ``place``, which leads through keywords that have subschemas."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in place[1:].split("/")]
    while steps:
        keyword = steps.pop(0)
        node = node.get(keyword) if isinstance(node, dict) else None
        if keyword in _ONE:
            continue
        name = steps.pop(0) if steps else ""
        if keyword in _LISTS and isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        elif keyword in _MAPS and isinstance(node, dict):
            node = node.get(name)
        else:
            node = None
    if not isinstance(node, dict | bool):
        raise Unresolved(f"there is no schema at {place}")
    return node


def self_contained(file: SchemaFile, space: str = "", inside: str | None = None) -> Schema:
    """A copy of the schema of ``file`` in which all names of files are absolute URIs: a job may be any text.

    ``space``: sets the URIs of one directory apart. ``inside``: the job in whose file references without a name lead;
    None: they stay as they are.
    """
    made = deepcopy(file.schema)
    for _, schema in subschemas(made):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            named, hash_sign, fragment = reference.partition("#")
            if named or inside is not None:
                schema["$ref"] = uri_of(named or inside or "", space) + hash_sign + fragment
    return made | {"$id": uri_of(file.job, space)}


def uri_of(job: str, space: str = "") -> str:
    """The URI of the schema of ``job`` within the process."""
    return f"urn:babelgate-schema:{space}{job.encode().hex()}"


def structure_faults(file: SchemaFile, files: Mapping[str, SchemaFile]) -> Iterator[SchemaFault]:
    """Yield each unsupported keyword and each bad reference of ``file``."""
    for path, schema in subschemas(file.schema):
        for name in _UNSUPPORTED:
            if name in schema:
                hint = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
                yield SchemaFault(file.path, pointer(*path, name), f"{name} is not supported{hint}")
        if path and "$id" in schema:
            reason = "$id is supported at the top of a file only: one file describes one job"
            yield SchemaFault(file.path, pointer(*path, "$id"), reason)
        if schema.get("format") in _SLOW_FORMATS:
            reason = f"the format {schema['format']} is not supported: a long text could take long"
            yield SchemaFault(file.path, pointer(*path, "format"), reason)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            try:
                resolved(reference, file.job, files)
            except Unresolved as error:
                yield SchemaFault(file.path, pointer(*path, "$ref"), str(error))
