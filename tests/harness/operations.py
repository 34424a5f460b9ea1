"""What the OpenAPI document says of requests: operations, their parameters, and bodies that fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Json = dict[str, Any]

DOCUMENT: Json = yaml.load(
    (Path(__file__).parents[2] / "openapi" / "openapi.yaml").read_text("utf-8"),
    # Each worker reads it; the loader that is written in Python takes two seconds.
    yaml.CSafeLoader,
)
MARK = "\N{BLACK DIAMOND}"


NOTHING = dict.fromkeys(("letter_id", "message_id", "trace_id", "job"), "0") | {"id": "0" * 16}
"""Ids of nothing, by the parameter of the path."""


class Operation(NamedTuple):
    """One operation of the document. ``query``: the schemas of its query parameters by name; ``body``: that of its JSON
    body, None without one."""

    name: str
    method: str
    path: str
    query: dict[str, Json]
    body: Json | None

    @property
    def url(self) -> str:
        """The path for the queue ``q``, with ids of nothing."""
        return self.path.format(queue="q", **NOTHING)


def resolved(schema: Json) -> Json:
    """``schema`` without references, and without the alternative null."""
    while "$ref" in schema:
        _, _, kind, name = schema["$ref"].split("/")[-4:]
        schema = DOCUMENT["components"][kind][name] if kind != "schemas" else DOCUMENT["components"]["schemas"][name]
    for word in ("anyOf", "oneOf"):
        kinds = [each for each in map(resolved, schema.get(word, ())) if each.get("type") != "null"]
        if len(kinds) == 1:
            return kinds[0]
    return schema


def is_endless(operation: Json) -> bool:
    """Whether the answer to an operation of the document has no end, such as that of a stream."""
    return "text/event-stream" in operation["responses"].get("200", {}).get("content", {})


def operations() -> Iterator[Operation]:
    """All operations of the document, but for those that are endless."""
    for path, item in DOCUMENT["paths"].items():
        for method, found in item.items():
            if method == "parameters" or is_endless(found):
                continue
            given = map(resolved, [*item.get("parameters", ()), *found.get("parameters", ())])
            query = {each["name"]: resolved(each["schema"]) for each in given if each["in"] == "query"}
            content = found.get("requestBody", {}).get("content", {})
            body = content["application/json"]["schema"] if "application/json" in content else None
            yield Operation(found["operationId"], method.upper(), path, query, body)


def sample(schema: Json) -> Any:
    """A small value that fits ``schema``."""
    schema = resolved(schema)
    for word in ("const", "default"):
        if schema.get(word) is not None:
            return schema[word]
    for word in ("examples", "enum"):
        if schema.get(word):
            return schema[word][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" and schema.get("minProperties"):
        return {"x": sample(schema["additionalProperties"])}
    if kind == "object":
        return {name: sample(schema["properties"][name]) for name in schema.get("required", ())}
    if kind == "array":
        return [sample(schema["items"])]
    return {"string": "x", "boolean": False}.get(str(kind), 1)


def numeric_bodies(schema: Json) -> Iterator[tuple[str, str]]:
    """For each number in ``schema``: its pointer, and the text of a body with MARK in its place."""
    return _marked(schema, lambda found: bool({"integer", "number"}.intersection(_kinds(found))))


def bodies_with_more(schema: Json, name: str) -> Iterator[tuple[str, str]]:
    """For each object in ``schema`` that is not open: the pointer of a member ``name``, which it does not have, and the
    text of a body with it."""
    for at, body in _marked(
        schema, lambda found: "properties" in found and not found.get("additionalProperties", True)
    ):
        found = schema
        for step in at.split("/")[1:]:
            found = resolved(found)
            found = found["items"] if "items" in found else found["properties"][step]
        more = {**_required(resolved(found)), name: 1}
        yield f"{at}/{name}", body.replace(json.dumps(MARK, ensure_ascii=False), json.dumps(more))


def _marked(schema: Json, wanted: Callable[[Json], bool], *above: str | int) -> Iterator[tuple[str, str]]:
    schema = resolved(schema)
    mark = json.dumps(MARK, ensure_ascii=False)
    if wanted(schema):
        yield "".join(f"/{name}" for name in above), mark
    if "array" in _kinds(schema):
        for at, body in _marked(schema["items"], wanted, *above, 0):
            yield at, f"[{body}]"
    for name, member in schema.get("properties", {}).items():
        for at, body in _marked(member, wanted, *above, name):
            whole = {**_required(schema, name), name: MARK}
            yield at, json.dumps(whole, ensure_ascii=False).replace(mark, body)


def _kinds(schema: Json) -> list[str]:
    kinds = schema.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _required(schema: Json, but: str = "") -> Json:
    return {name: sample(schema["properties"][name]) for name in schema.get("required", ()) if name != but}
