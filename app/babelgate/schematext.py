"""Says in words what a JSON Schema expects of a value, so that no sentence of a validation library reaches a user.

msgspec and pydantic give the schema of a type. Bounds and valid names come from it, so a new field needs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal

Json = dict[str, Any]
Place = Sequence[str | int]
"""The path of a value: names of members, and indexes of lists."""

Fault = Literal["missing", "unknown", "wrong"]

_MAX_NAMES = 40
"""Maximum valid names in one sentence."""
_MAX_COMPARED = 64
"""Maximum characters of a name that is compared. More than the longest valid name has: a longer one is like none."""
_LEAST_START = 3
"""Minimum characters of a name that may be the start of the one that was meant, as ``wait`` is of ``wait_seconds``."""
_LEAST_RATIO = 0.7
"""Least similarity, by difflib, of a name and the one that was meant."""


def explain(schema: Json, place: Place, fault: Fault) -> str:
    """Return a sentence without its subject, the member at ``place``.

    The member is ``missing``, its name is ``unknown``, or its value is ``wrong``.
    """
    if fault == "unknown":
        meant = did_you_mean(str(place[-1]), names_of(schema, place[:-1]))
        return f"unknown name; {valid_names(schema, place[:-1])}{'.' if meant else ''}{meant}"
    expected = f"must be {_described(schema, _found(schema, place))}"
    return f"is required; it {expected}" if fault == "missing" else expected


def fault_of(kind: str) -> Fault:
    """Return the fault that an error of pydantic with the type ``kind`` reports."""
    return "missing" if kind == "missing" else "unknown" if kind == "extra_forbidden" else "wrong"


def closest(name: str, valid: Iterable[str]) -> str | None:
    """Return the one of ``valid`` that was probably meant by ``name``; None if none is like it. Takes up to 0.1 ms for
    a dozen valid names, whatever ``name`` is."""
    if len(name) > _MAX_COMPARED:
        return None
    given, by_lower = name.lower(), {each.lower(): each for each in valid}
    longer = [each for each in by_lower if each.startswith(given)] if len(given) >= _LEAST_START else []
    found = longer or get_close_matches(given, by_lower, 1, _LEAST_RATIO)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return a question after the one of ``valid`` that is closest to ``name``, with a space before it; empty if there
    is none."""
    found = closest(name, valid)
    return f" Did you mean {found}?" if found else ""


def valid_names(schema: Json, place: Place) -> str:
    """Return the names that the object at ``place`` may have, as a clause."""
    names = names_of(schema, place)
    if len(names) < 2:
        return f"the valid name is {names[0]}" if names else "none is valid here"
    more = ", …" if len(names) > _MAX_NAMES else ""
    return f"the valid names are {', '.join(names[:_MAX_NAMES])}{more}"


def names_of(schema: Json, place: Place) -> list[str]:
    """Return the names that the object at ``place`` may have."""
    found = _found(schema, place) or {}
    return list(dict.fromkeys(name for node in found.get("anyOf", [found]) for name in node.get("properties", ())))


def _branches(schema: Json, node: Json) -> list[Json]:
    """Return the alternatives of ``node`` that are not null, with references resolved."""
    if "$ref" in node:
        target: Any = schema
        for name in node["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        return _branches(schema, target)
    alternatives = node.get("anyOf") or node.get("oneOf")
    if alternatives is None:
        return [] if node.get("type") == "null" else [node]
    return [branch for each in alternatives for branch in _branches(schema, each)]


def _found(schema: Json, place: Place) -> Json | None:
    """Return the schema of the value at ``place``, an object where several are possible; None if there is none."""
    nodes = _branches(schema, schema)
    for step in place:
        inner = [each for node in nodes if (each := _inner(node, step)) is not None]
        nodes = [branch for each in inner for branch in _branches(schema, each)]
    if len(nodes) > 1:
        return {"anyOf": nodes}
    return nodes[0] if nodes else None


def _inner(node: Json, step: str | int) -> Json | None:
    """Return the schema of a member or an element of ``node``."""
    if isinstance(step, int):
        found = node.get("items")
    else:
        # The names of a mapping are described by patterns.
        others = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
        found = node.get("properties", {}).get(step) or next((each for each in others if isinstance(each, dict)), None)
    return found if isinstance(found, dict) else None


def _described(schema: Json, node: Json | None) -> str:
    if node is None:
        return "something else"
    branches = _branches(schema, node)
    if len(branches) > 1:
        return " or ".join(dict.fromkeys(_described(schema, branch) for branch in branches))
    node = branches[0] if branches else node
    if "enum" in node or "const" in node:
        return _choice([str(value) for value in node.get("enum", [node.get("const")])])
    match node.get("type"):
        case "integer":
            return f"a whole number{_range(node)}"
        case "number":
            return f"a number{_range(node)}"
        case "boolean":
            return "true or false"
        case "string":
            return _text(node)
        case "array":
            return f"a list{_count(node, 'minItems', 'maxItems', 'items')}"
        case "object":
            names = list(node.get("properties", ()))
            return f"an object with the members {', '.join(names[:_MAX_NAMES])}" if names else "an object"
    return "something else"


def _choice(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _range(node: Json) -> str:
    least, above, most = (node.get(name) for name in ("minimum", "exclusiveMinimum", "maximum"))
    if least is not None and most is not None:
        return f" from {least:.16g} to {most:.16g}"
    bounds = (
        [f"above {above:.16g}"] if above is not None else [f"of at least {least:.16g}"] if least is not None else []
    )
    if most is not None:
        bounds.append(f"{'' if bounds else 'of '}at most {most:.16g}")
    return f" {' and '.join(bounds)}" if bounds else ""


def _text(node: Json) -> str:
    if "pattern" in node:
        return f"a text that matches {node['pattern'].removeprefix('^').removesuffix('$')}"
    kind = "a path" if node.get("format") == "path" else "a text"
    return kind + _count(node, "minLength", "maxLength", "characters")


def _count(node: Json, least: str, most: str, what: str) -> str:
    low, high = node.get(least), node.get(most)
    if low is not None and high is not None:
        return f" of {low} to {high} {what}"
    if high is not None:
        return f" of at most {high} {what}"
    if low == 1:
        return " that is not empty"
    return "" if low is None else f" of at least {low} {what}"
