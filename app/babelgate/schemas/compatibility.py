"""Compares two directories of schemas: which data one allows and the other refuses, job by job and place by place.

Whether one schema allows all that another does is decided by the canonical forms of jsonschema-rs; where these leave it
open, by a sample value that one allows and the other refuses. What neither decides is reported as undecided.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from babelgate.jsontext import pointer
from babelgate.schemas.files import Schema, SchemaFile
from babelgate.schemas.structure import resolved, self_contained, uri_of

if TYPE_CHECKING:
    from jsonschema_rs import CanonicalSchema, Draft202012Validator

Direction = Literal["backward", "forward"]
"""``backward``: the new schemas allow all data that the old ones do. ``forward``: the other way round."""

_MAX_DEPTH = 16
_MAX_SHOWN = 80
_SILENT = frozenset(
    {"$id", "$schema", "$defs", "$comment", "title", "description", "examples", "default", "properties"}
)
_SAMPLES: tuple[Any, ...] = (None, True, 0, -1, 1, 0.5, 1_000_000_000, "", "a", "x" * 1_000, [], [None], ["a", "a"], {})
_UNEXPECTED = {"unexpected": None}


@dataclass(frozen=True, slots=True)
class Difference:
    """Data of ``job`` that is allowed on one side and refused on the other. ``place``: in the message, with ``*`` for
    each element of an array. ``undecided``: there may be no such data."""

    job: str
    direction: Direction
    place: str
    detail: str
    undecided: bool = False


class _Node:
    """A schema of one side: that of a file, or one in it."""

    def __init__(self, side: _Side, job: str, schema: Any) -> None:
        self.side, self.job = side, job
        while isinstance(schema, dict) and set(schema) == {"$ref"}:
            job, schema = resolved(schema["$ref"], self.job, side.files)
            self.job = job
        self.schema = schema

    @property
    def members(self) -> Schema:
        """Its keywords; none of a boolean."""
        return self.schema if isinstance(self.schema, dict) else {}

    def below(self, schema: Any) -> _Node:
        return _Node(self.side, self.job, schema)

    def member(self, name: str) -> _Node:
        """What holds for the member ``name`` of an object, by ``properties`` and ``additionalProperties``."""
        return self.below(self.members.get("properties", {}).get(name, self.members.get("additionalProperties", True)))

    def _whole(self) -> Any:
        """A schema that stands alone, with its references into the files of its side."""
        if not isinstance(self.schema, dict):
            return self.schema
        file = SchemaFile(self.job, "", b"", {**self.schema, "$id": self.job})
        made = self_contained(file, self.side.space, self.job)
        del made["$id"]
        return made

    def canonical(self) -> CanonicalSchema:
        import jsonschema_rs

        return jsonschema_rs.canonicalize(
            self._whole(), draft=jsonschema_rs.Draft202012, registry=self.side.registry, offline=True,
            validate_formats=True, pattern_options=jsonschema_rs.RegexOptions(),
        )  # fmt: skip

    def validator(self) -> Draft202012Validator:
        import jsonschema_rs

        return jsonschema_rs.Draft202012Validator(
            self._whole(), registry=self.side.registry, offline=True, validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )  # fmt: skip


class _Side:
    """The schemas of one directory, under URIs of their own."""

    def __init__(self, files: Mapping[str, SchemaFile], space: str) -> None:
        import jsonschema_rs

        self.files, self.space = files, space
        resources = [(uri_of(job, space), self_contained(file, space)) for job, file in files.items()]
        self.registry = jsonschema_rs.Registry(resources, draft=jsonschema_rs.Draft202012)

    def root(self, job: str) -> _Node:
        return _Node(self, job, self.files[job].schema)


def differences(
    old: Mapping[str, SchemaFile], new: Mapping[str, SchemaFile], directions: tuple[Direction, ...]
) -> Iterator[Difference]:
    """Yield what differs, by job. Both sides have no faults. A job that only the new side has differs in nothing."""
    before, after = _Side(old, "old"), _Side(new, "new")
    for job in sorted(old):
        if job not in new:
            if "backward" in directions:
                yield Difference(job, "backward", "/job", "the schema was removed")
            continue
        for direction in directions:
            sides = (before, after) if direction == "backward" else (after, before)
            narrower, wider = (side.root(job) for side in sides)
            yield from _Comparison(job, direction).found(narrower, wider, ("data",))


class _Comparison:
    def __init__(self, job: str, direction: Direction) -> None:
        self._job = job
        self._direction = direction
        self._seen: set[tuple[int, int]] = set()
        """The pairs of schemas that were compared: a recursive schema meets itself again."""

    def found(self, narrower: _Node, wider: _Node, path: tuple[str, ...]) -> list[Difference]:
        """The data at ``path`` that ``narrower`` allows and ``wider`` refuses."""
        from jsonschema_rs.canonical import Containment

        pair = id(narrower.schema), id(wider.schema)
        if pair in self._seen and narrower.members and wider.members:
            return []
        self._seen.add(pair)
        verdict = wider.canonical().covers(narrower.canonical())
        if verdict == Containment.YES:
            return []
        inner = self._below(narrower, wider, path) if len(path) < _MAX_DEPTH else []
        if any(not each.undecided for each in inner):
            return inner
        example = _example(narrower, wider)
        if inner and example is None and verdict != Containment.NO:
            return inner
        undecided = verdict != Containment.NO and example is None
        return [*inner, self._difference(path, self._words(narrower, wider, example), undecided)]

    def _below(self, narrower: _Node, wider: _Node, path: tuple[str, ...]) -> list[Difference]:
        found: list[Difference] = []
        known = narrower.members.get("required", ())
        for name in wider.members.get("required", ()):
            if name not in known and narrower.member(name).schema is not False:
                side = "new" if self._direction == "backward" else "old"
                found.append(self._difference((*path, name), f"is required by the {side} schema only"))
        names = {**narrower.members.get("properties", {}), **wider.members.get("properties", {})}
        if "object" in _types(narrower) and not {"patternProperties", "allOf"} & narrower.members.keys():
            for name in names:
                found += self.found(narrower.member(name), wider.member(name), (*path, name))
        if "items" in narrower.members and "items" in wider.members and "array" in _types(narrower):
            elements = [side.below(side.members["items"]) for side in (narrower, wider)]
            found += self.found(elements[0], elements[1], (*path, "*"))
        return found

    def _difference(self, path: tuple[str, ...], detail: str, undecided: bool = False) -> Difference:
        return Difference(self._job, self._direction, pointer(*path), detail, undecided)

    def _words(self, narrower: _Node, wider: _Node, example: Any) -> str:
        old, new = (narrower, wider) if self._direction == "backward" else (wider, narrower)
        names = sorted({*old.members, *new.members} - _SILENT)
        said = [
            f"{name} {_shown(old.members.get(name, ...))} → {_shown(new.members.get(name, ...))}"
            for name in names
            if old.members.get(name, ...) != new.members.get(name, ...)
        ]
        if not said:
            said = [f"{_shown(old.schema)} → {_shown(new.schema)}"]
        return "; ".join(said) + ("" if example is None else f" (for example {_shown(example[0])})")


def _types(node: _Node) -> tuple[str, ...]:
    kinds = node.members.get("type", ("object", "array"))
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _example(narrower: _Node, wider: _Node) -> tuple[Any] | None:
    """A value that ``narrower`` allows and ``wider`` refuses, if a sample is one."""
    allowed, refused = narrower.validator(), wider.validator()
    named = [narrower.members.get("const"), *narrower.members.get("enum", ())]
    least = _least(narrower)
    samples = [*named, least, {**least, **_UNEXPECTED}, *_SAMPLES]
    return next(((each,) for each in samples if allowed.is_valid(each) and not refused.is_valid(each)), None)


def _least(node: _Node, depth: int = 0) -> dict[str, Any]:
    """An object with the required members, each with the first sample that it allows."""
    made: dict[str, Any] = {}
    for name in node.members.get("required", ()) if depth < 4 else ():
        member = node.member(name)
        samples = (*member.members.get("enum", ()), member.members.get("const"), *_SAMPLES, _least(member, depth + 1))
        check = member.validator()
        made[name] = next((each for each in samples if check.is_valid(each)), None)
    return made


def _shown(value: Any) -> str:
    text = "none" if value is ... else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
