"""What is said of data that does not match, and where."""

from __future__ import annotations

import json

import pytest

from babelgate.envelope.publication import MAX_PROBLEMS
from babelgate.schemas.job_schemas import load

CASES = [
    ({"required": ["a"]}, {}, "/data/a", "data.a is required."),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "/data/b", "data.b is required."),
    ({"additionalProperties": False}, {"a/b": 1}, "/data/a~1b", "data.a/b is not allowed."),
    ({"properties": {"x": True}, "additionalProperties": False}, {"y": 1}, "/data/y", "data.y is not allowed."),
    ({"unevaluatedProperties": False}, {"y": 1}, "/data/y", "data.y is not allowed."),
    ({"properties": {"a": False}}, {"a": 1}, "/data/a", "data.a is not allowed."),
    ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "/data/a", 'data.a is not of type "string".'),
    (
        {"properties": {"a": {"items": {"minimum": 3}}}},
        {"a": [5, 1]},
        "/data/a/1",
        "data.a.1 is less than the minimum of 3.",
    ),
    ({"properties": {"a": {"enum": ["x"]}}}, {"a": 1}, "/data/a", 'data.a is not one of "x".'),
    ({"properties": {"a": {"const": "x"}}}, {"a": 1}, "/data/a", '"x" was expected.'),
    ({"properties": {"a": {"pattern": "^a"}}}, {"a": "b"}, "/data/a", 'data.a does not match "^a".'),
    ({"properties": {"a": {"format": "uuid"}}}, {"a": "secret"}, "/data/a", 'data.a is not a "uuid".'),
    (
        {"properties": {"a": {"contains": {"const": 1}}}},
        {"a": [2]},
        "/data/a",
        "data.a has no element of the kind that the schema requires.",
    ),
    (
        {"properties": {"a": {"not": {"type": "string"}}}},
        {"a": "x"},
        "/data/a",
        "data.a is of a kind that the schema excludes.",
    ),
    ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1]}, "/data/a", "data.a has non-unique elements."),
    (
        {"properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {"a": 1},
        "/data/a",
        "data.a is not valid under any of the schemas listed in the 'oneOf' keyword.",
    ),
]


@pytest.fixture
def checked(tmp_path):
    def check(schema, data):
        (tmp_path / "a.json").write_text(json.dumps({"$id": "a", **schema}))
        body = json.dumps({"job": "a", "trace_id": "t", "data": data, "meta": {}}).encode()
        return load(tmp_path).problems("a", body)

    return check


@pytest.mark.parametrize(("schema", "data", "pointer", "detail"), CASES, ids=lambda value: str(value)[:60])
def test_a_problem_has_its_place_and_quotes_no_value(checked, schema, data, pointer, detail):
    (found,) = checked(schema, data)
    assert (found.pointer, found.code, found.detail) == (pointer, "schema_violation", detail)
    assert checked({}, data) == []


def test_problems_are_bounded(checked):
    found = checked({"additionalProperties": False}, {f"k{each}": each for each in range(3 * MAX_PROBLEMS)})
    assert len(found) == MAX_PROBLEMS


def test_long_names_and_schemas_make_no_long_sentence(checked):
    (found,) = checked({"properties": {"a": {"enum": ["x" * 5_000]}}}, {"a": 1})
    assert len(found.detail) < 1_100
    (found,) = checked({"additionalProperties": False}, {"n" * 9_000: 1})
    assert (len(found.pointer) < 600, len(found.detail) < 300) == (True, True)


def test_a_job_without_a_schema(tmp_path, checked):
    checked({}, {})
    (found,) = load(tmp_path).problems("b", b'{"data":{}}')
    assert (found.pointer, found.code) == ("/job", "schema_missing")


def test_numbers_keep_their_digits(checked):
    assert checked({"properties": {"n": {"const": 2**63 + 1}}}, {"n": 2**63 + 1}) == []
    assert len(checked({"properties": {"n": {"const": 2**63 + 1}}}, {"n": 2**63 + 2})) == 1
    assert checked({"properties": {"n": {"multipleOf": 0.01}}}, {"n": 4.35}) == []
