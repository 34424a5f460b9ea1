"""Examples made from schemas: what is taken as written, least values, and the bounds."""

from __future__ import annotations

import json
import time

import pytest

from babelgate.schemas.job_schemas import compiled_bundle

JOB = "urn:babel:shop:order"


def schemas(schema, **others):
    files = {
        "order.json": {"$id": JOB, **schema},
        **{f"{name}.json": {"$id": name, **of} for name, of in others.items()},
    }
    made, faults = compiled_bundle(json.dumps({"files": files}).encode())
    assert not faults, faults
    return made


def example(schema, **others):
    made = schemas(schema, **others).example(JOB)
    assert made is not None
    draft = json.loads(made)
    assert draft["job"] == JOB
    return draft["data"]


MATCHING = [
    ({}, {}),
    ({"examples": [{"a": 1}, {"a": 2}]}, {"a": 1}),
    ({"default": {"a": 3}, "examples": [{"b": 1}], "required": ["a"]}, {"a": None}),
    ({"const": {"a": 4}}, {"a": 4}),
    ({"enum": [{"a": 5}, {}]}, {"a": 5}),
    ({"required": ["b", "a"], "properties": {"a": {"type": "integer"}}}, {"a": 0, "b": None}),
    ({"properties": {"a": {"default": 1}, "b": {"type": "string"}, "c": {"const": "x"}}}, {"a": 1, "c": "x"}),
    ({"required": ["a"], "properties": {"a": {"minLength": 3}}}, {"a": "aaa"}),
    ({"required": ["a"], "properties": {"a": {"type": "string", "format": "uuid"}}}, None),
    ({"required": ["a"], "properties": {"a": {"type": "string", "format": "date-time"}}}, None),
    ({"required": ["a"], "properties": {"a": {"type": "string", "format": "email"}}}, None),
    ({"required": ["a"], "properties": {"a": {"format": "ipv6", "type": "string"}}}, None),
    ({"required": ["a"], "properties": {"a": {"minItems": 2, "items": {"type": "boolean"}}}}, {"a": [False, False]}),
    (
        {"required": ["a"], "properties": {"a": {"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3}}},
        {"a": [1, 2, 2]},
    ),
    ({"required": ["a"], "properties": {"a": {"contains": {"const": 7}}}}, {"a": [7]}),
    ({"required": ["a"], "properties": {"a": {"type": ["null", "string"]}}}, {"a": None}),
    ({"type": ["null", "object"]}, {}),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": None}),
    ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "object"}}}]}, {"a": {}}),
    ({"required": ["a"], "dependentRequired": {"a": ["b"]}}, {"a": None, "b": None}),
    ({"required": ["a"], "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": ["y"]}}}, {"a": "y"}),
    ({"required": ["a"], "properties": {"a": {"default": "bad", "type": "integer"}}}, {"a": 0}),
    ({"properties": {"a": {"examples": ["bad"], "type": "integer"}}}, {}),
]


@pytest.mark.parametrize(("schema", "data"), MATCHING, ids=str)
def test_an_example_matches(schema, data):
    made = schemas(schema)
    draft = made.example(JOB)
    assert made.problems(JOB, draft) == []
    assert data is None or json.loads(draft)["data"] == data


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 0},
        {"minimum": 3},
        {"minimum": 2.5},
        {"exclusiveMinimum": 3},
        {"exclusiveMinimum": 0},
        {"exclusiveMinimum": 0, "maximum": 0.5},
        {"maximum": -3},
        {"exclusiveMaximum": -3},
        {"exclusiveMaximum": 0},
        {"maximum": 0},
        {"minimum": 7, "multipleOf": 5},
        {"exclusiveMinimum": 10, "multipleOf": 5},
        {"minimum": -5, "maximum": -1},
        {"multipleOf": 0.01, "minimum": 0.05},
        {"minimum": 1e300},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_a_number_is_within_its_bounds(kind, bounds):
    # No integer is below a half and above 0, or a small multiple of a hundredth.
    kind = "number" if {bounds.get("maximum"), bounds.get("multipleOf")} & {0.5, 0.01} else kind
    made = schemas({"required": ["n"], "properties": {"n": {"type": kind, **bounds}}})
    assert made.problems(JOB, made.example(JOB)) == []


def test_other_files_are_followed():
    money = {"type": "object", "required": ["amount"], "properties": {"amount": {"$ref": "#/$defs/a"}}}
    money["$defs"] = {"a": {"type": "integer", "minimum": 5}}
    assert example({"required": ["total"], "properties": {"total": {"$ref": "money"}}}, money=money) == {
        "total": {"amount": 5}
    }


def test_what_cannot_be_made_at_least_resembles_it():
    assert example({"required": ["a"], "properties": {"a": {"type": "string", "pattern": "^[A-Z]{3}$"}}}) == {"a": ""}


def test_there_is_none_for_an_unknown_job_and_for_what_has_no_end():
    assert schemas({}).example("urn:other") is None
    node = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/node"}}}
    assert schemas({"$ref": "#/$defs/node", "$defs": {"node": node}}).example(JOB) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"required": [f"m{n}" for n in range(5_000)]},
        {"required": ["a"], "properties": {"a": {"minLength": 10**9}}},
        {"required": ["a"], "properties": {"a": {"minItems": 10**9}}},
        {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 150, "items": {"$ref": "#/$defs/b"}}},
         "$defs": {"b": {"type": "array", "minItems": 150, "items": {"type": "array", "minItems": 150}}}},
        {"properties": {f"m{n}": {"default": "x" * 300} for n in range(2_000)}},
        {"properties": {"a": {"default": "x" * 900_000}}},
    ],
    ids=range(6),
)  # fmt: skip
def test_its_work_is_bounded(schema):
    made = schemas(schema)
    began = time.process_time()
    draft = made.example(JOB)
    assert time.process_time() - began < 2
    assert draft is None or len(draft) < 200_000
