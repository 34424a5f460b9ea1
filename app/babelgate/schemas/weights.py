"""The most work that a schema can make of data, found before any data is checked.

A validator applies each subschema to one place of the data. How many apply to one place does not depend on the data,
except for the choice of its members; so all sets of subschemas that can meet at one place can be listed, as the states
of an automaton. A schema of which too many meet at one place, as in a recursion that doubles at each level, is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from babelgate.schemas.files import Schema, SchemaFile
from babelgate.schemas.structure import SAME_PLACE_LISTS, SAME_PLACE_MAPS, SAME_PLACE_ONE, resolved

MAX_AT_PLACE = 256
"""Most subschemas that may apply to one place of the data."""
MAX_STATES = 20_000
MAX_CHAIN = 24
"""Most subschemas within each other that apply to one place: the validator's stack grows with them."""
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_UNEVALUATED_FACTOR = 3
"""How often a validator looks at the neighbours of an ``unevaluated…``: docs/adr/0044-schemas-of-jobs.md."""

_Node = tuple[str, int]
"""A schema: the job of its file, and its identity."""


class TooHeavy(Exception):
    """A schema could take too long, whatever the limits of a message."""


@dataclass(slots=True)
class Weight:
    """The most subschemas, and the most regular expressions and formats, that apply to one place of the data; whether
    a ``uniqueItems`` or a ``multipleOf`` applies anywhere."""

    checks: int = 1
    patterns: int = 0
    unique: bool = False
    multiples: bool = False


@dataclass(slots=True)
class _Place:
    """The subschemas that meet at one place, each with the number of times that it applies."""

    found: dict[_Node, Schema] = field(default_factory=dict)
    counts: Counter[_Node] = field(default_factory=Counter)


class Weigher:
    """Weighs the schemas of one directory, whose references all lead to schemas."""

    def __init__(self, files: Mapping[str, SchemaFile]) -> None:
        self._files = files

    def weigh(self, job: str) -> Weight:
        """The weight of the schema of ``job``. Raises TooHeavy."""
        weight = Weight()
        start = _Place()
        _add(start, job, self._files[job].schema, 1)
        waiting, seen = [start], {_key(start)}
        while waiting:
            place = self._at_same_place(waiting.pop())
            weight.checks = max(weight.checks, place.counts.total())
            weight.patterns = max(weight.patterns, _patterns(place))
            weight.unique |= any(schema.get("uniqueItems") is True for schema in place.found.values())
            weight.multiples |= any("multipleOf" in schema for schema in place.found.values())
            for state in _below(place):
                key = _key(state)
                if key not in seen:
                    if len(seen) >= MAX_STATES:
                        raise TooHeavy(f"its subschemas meet in more than {MAX_STATES} combinations")
                    seen.add(key)
                    waiting.append(state)
        return weight

    def _at_same_place(self, state: _Place) -> _Place:
        """All subschemas that apply where those of ``state`` do."""
        made = _Place()
        for (job, identity), count in state.counts.items():
            self._expand(made, job, state.found[job, identity], count, ())
        return made

    def _expand(self, made: _Place, job: str, schema: Any, count: int, chain: tuple[int, ...]) -> None:
        if not isinstance(schema, dict):
            return
        if id(schema) in chain:
            raise TooHeavy("it refers to itself without a step into the data, which has no end")
        if len(chain) >= MAX_CHAIN:
            raise TooHeavy(f"more than {MAX_CHAIN} subschemas within each other apply to one place of the data")
        _add(made, job, schema, count)
        if made.counts.total() > MAX_AT_PLACE:
            raise TooHeavy(f"more than {MAX_AT_PLACE} subschemas apply to one place of the data")
        if any(name in schema for name in _UNEVALUATED):
            count *= _UNEVALUATED_FACTOR
        chain = (*chain, id(schema))
        if "$ref" in schema:
            self._expand(made, *resolved(schema["$ref"], job, self._files), count, chain)
        for each in _same_place(schema):
            self._expand(made, job, each, count, chain)


def _add(state: _Place, job: str, schema: Any, count: int) -> None:
    if isinstance(schema, dict):
        node = job, id(schema)
        state.found[node] = schema
        state.counts[node] += count


def _key(state: _Place) -> frozenset[tuple[_Node, int]]:
    return frozenset(state.counts.items())


def _same_place(schema: Schema) -> Iterator[Any]:
    yield from (schema[name] for name in SAME_PLACE_ONE if name in schema)
    for name in SAME_PLACE_LISTS:
        yield from schema.get(name, ())
    for name in SAME_PLACE_MAPS:
        yield from schema.get(name, {}).values()


def _patterns(place: _Place) -> int:
    """The regular expressions and formats that are matched with one string at ``place``, or with the name of one of
    its members."""
    own = members = 0
    for node, count in place.counts.items():
        schema = place.found[node]
        own += count * (("pattern" in schema) + ("format" in schema))
        members += count * (len(schema.get("patternProperties", ())) + ("propertyNames" in schema))
    return max(own, members)


def _below(place: _Place) -> Iterator[_Place]:
    """The sets of subschemas that can meet at one place directly below ``place``."""
    every = [(job, place.found[job, identity], count) for (job, identity), count in place.counts.items()]
    names = {name for _, schema, _ in every for name in schema.get("properties", ())}
    most = max((len(schema.get("prefixItems", ())) for _, schema, _ in every), default=0)
    for name in (*names, None):
        state = _Place()
        for job, schema, count in every:
            properties = schema.get("properties", {})
            if name in properties:
                _add(state, job, properties[name], count)
            else:
                _add(state, job, schema.get("additionalProperties"), count)
            for each in schema.get("patternProperties", {}).values():
                _add(state, job, each, count)
            _add(state, job, schema.get("unevaluatedProperties"), count)
        yield state
    for index in range(most + 1):
        state = _Place()
        for job, schema, count in every:
            first = schema.get("prefixItems", ())
            _add(state, job, first[index] if index < len(first) else schema.get("items"), count)
            _add(state, job, schema.get("contains"), count)
            _add(state, job, schema.get("unevaluatedItems"), count)
        yield state
    state = _Place()
    for job, schema, count in every:
        _add(state, job, schema.get("propertyNames"), count)
    yield state
