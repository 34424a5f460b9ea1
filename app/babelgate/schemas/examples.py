"""Makes an example of the data that a schema allows, from what its author has written and from its least values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from babelgate.schemas.files import Schema, SchemaFile
from babelgate.schemas.structure import resolved

MAX_SUBSCHEMAS = 500
"""Most subschemas that are looked at for one example."""
MAX_DEPTH = 12
"""Most levels of nesting of an example."""
MAX_CHARACTERS = 20_000
"""Most characters of a value that is taken as it is written, as JSON."""
MAX_LENGTH = 200
"""Most characters of a text that is made, and most elements of an array."""

_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/",
    "iri": "https://example.com/",
    "iri-reference": "/",
    "uri-template": "https://example.com/{id}",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
"""A value of each format for which an empty text is none."""
_KINDS = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "contains", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The type of the values that a keyword is about."""


class _TooMuch(Exception):
    pass


def examples_of(job: str, files: Mapping[str, SchemaFile]) -> Iterator[Any]:
    """Yield up to three examples of the data of ``job``, the best first: with the optional members that have a value of
    their own, with the required ones only, and without written values. None need match: a ``pattern``, say, is not
    followed. Yields none for a schema that is too large.

    The work is bounded by MAX_SUBSCHEMAS. ``files`` have no faults.
    """
    for optional, written in ((True, True), (False, True), (False, False)):
        try:
            yield _Maker(files, optional, written).value(job, files[job].schema, 0)
        except _TooMuch:
            continue


class _Maker:
    """``optional``: also members that are not required, if they have a value. ``written``: take values as written."""

    def __init__(self, files: Mapping[str, SchemaFile], optional: bool, written: bool) -> None:
        self._files = files
        self._optional = optional
        self._written = written
        self._left = MAX_SUBSCHEMAS

    def value(self, job: str, schema: Any, depth: int) -> Any:
        """A value of ``schema`` in the file of ``job``."""
        parts = list(self._same_place(job, schema))
        for found in self._given([each for _, each in parts]):
            return found
        kind = _kind([each for _, each in parts], is_root=depth == 0)
        if kind == "object":
            return self._object(parts, depth)
        if kind == "array":
            return self._array(parts, depth)
        merged: Schema = {}
        for _, each in reversed(parts):
            merged |= each
        if kind == "string":
            return _text(merged)
        if kind in ("number", "integer"):
            return _number(merged, kind == "integer")
        return False if kind == "boolean" else None

    def _same_place(self, job: str, schema: Any) -> Iterator[tuple[str, Schema]]:
        """``schema`` and those that must hold with it: of alternatives the first. Each with the job of its file."""
        waiting = [(job, schema)]
        while waiting:
            self._left -= 1
            if self._left < 0:
                raise _TooMuch
            of, each = waiting.pop(0)
            if not isinstance(each, dict):
                continue
            yield of, each
            if "$ref" in each:
                waiting.append(resolved(each["$ref"], of, self._files))
            waiting += [(of, below) for below in each.get("allOf", ())]
            waiting += [(of, each[name][0]) for name in ("oneOf", "anyOf") if each.get(name)]

    def _given(self, parts: list[Schema]) -> Iterator[Any]:
        """The values that the author of the schema has written."""
        for each in parts:
            values = []
            if self._written:
                values += [*each.get("examples", ())[:1], *([each["default"]] if "default" in each else [])]
            values += [*([each["const"]] if "const" in each else []), *each.get("enum", ())[:1]]
            yield from (value for value in values if len(json.dumps(value)) <= MAX_CHARACTERS)

    def _object(self, parts: list[tuple[str, Schema]], depth: int) -> dict[str, Any]:
        if depth >= MAX_DEPTH:
            raise _TooMuch
        known: dict[str, tuple[str, Any]] = {}
        for job, each in reversed(parts):
            known |= {name: (job, below) for name, below in each.get("properties", {}).items()}
        required = dict.fromkeys(name for _, each in parts for name in each.get("required", ()))
        for name in list(required):
            for _, each in parts:
                required |= dict.fromkeys(each.get("dependentRequired", {}).get(name, ()))
        names = [name for name in known if name in required or (self._optional and self._has_value(*known[name]))]
        names += [name for name in required if name not in known]
        return {name: self.value(*known.get(name, ("", True)), depth + 1) for name in names}

    def _has_value(self, job: str, schema: Any) -> bool:
        return any(True for _ in self._given([each for _, each in self._same_place(job, schema)]))

    def _array(self, parts: list[tuple[str, Schema]], depth: int) -> list[Any]:
        if depth >= MAX_DEPTH:
            raise _TooMuch
        least = max(
            max(each.get("minItems", 0), each.get("minContains", 1) if "contains" in each else 0) for _, each in parts
        )
        if least > MAX_LENGTH:
            raise _TooMuch
        made = []
        for index in range(int(least)):
            job, schema = next(self._elements(parts, index), ("", True))
            made.append(self.value(job, schema, depth + 1))
        return made

    def _elements(self, parts: list[tuple[str, Schema]], index: int) -> Iterator[tuple[str, Any]]:
        for job, each in parts:
            first = each.get("prefixItems", ())
            if index < len(first):
                yield job, first[index]
            elif "items" in each:
                yield job, each["items"]
        yield from ((job, each["contains"]) for job, each in parts if "contains" in each)


def _kind(parts: list[Schema], is_root: bool) -> str:
    for each in parts:
        kinds = each.get("type")
        if kinds:
            # That data is an object is a rule of envelopes.
            return kinds if isinstance(kinds, str) else "object" if is_root and "object" in kinds else kinds[0]
    for kind, keywords in _KINDS.items():
        if any(name in each for each in parts for name in keywords):
            return kind
    return "object" if is_root else "null"


def _text(schema: Schema) -> str:
    least = schema.get("minLength", 0)
    made = _FORMATS.get(schema.get("format", ""), "")
    if least > MAX_LENGTH:
        raise _TooMuch
    return made if len(made) >= least else made + "a" * int(least - len(made))


def _number(schema: Schema, whole: bool) -> float:
    """The least number of the schema that is not negative, if there is one."""
    step = schema.get("multipleOf", 1 if whole else 0)
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    try:
        if low < 0 < high or low == 0 == schema.get("minimum"):
            return 0
        if low == -math.inf:
            # Only a greatest value is given, which is negative or 0.
            return _near(high, step, -1, "exclusiveMaximum" in schema and high == schema["exclusiveMaximum"])
        is_open = "exclusiveMinimum" in schema and low == schema["exclusiveMinimum"]
        if is_open and not step and high < low + 1:
            return float((low + high) / 2)
        return _near(low, step, 1, is_open)
    except (OverflowError, ZeroDivisionError, ValueError):
        return 0


def _near(bound: float, step: float, direction: int, is_open: bool) -> float:
    """The first number at ``bound``, or past it if ``is_open``, which is a multiple of ``step`` unless that is 0."""
    if not step:
        return bound + direction if is_open else bound
    steps = math.ceil(bound / step) if direction > 0 else math.floor(bound / step)
    if is_open and steps * step == bound:
        steps += direction
    return steps * step
