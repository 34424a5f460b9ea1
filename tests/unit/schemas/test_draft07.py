"""Schemas in draft 7 allow what they allow in 2020-12, as far as draft 7 can say it."""

from __future__ import annotations

import json

import jsonschema
import pytest

from babelgate.schemas.draft07 import component_names, translated
from babelgate.schemas.files import SchemaFile
from babelgate.schemas.job_schemas import load

BASE = "#/components/schemas"
TEXT = {"type": "string"}
CASES = [
    {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "items": False},
    {"type": "array", "prefixItems": [TEXT]},
    {"type": "array", "items": TEXT},
    {"type": "array", "contains": TEXT},
    {"type": "array", "contains": TEXT, "minContains": 0},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"dependentSchemas": {"a": {"required": ["b"]}}, "dependentRequired": {"a": ["c"]}},
    {"properties": {"a": {"$ref": "#/dependentSchemas/b"}}, "dependentSchemas": {"b": {"type": "integer"}}},
    {"properties": {"a": {"$ref": "#/items"}}, "prefixItems": [TEXT], "items": {"type": "integer"}},
    {"properties": {"a": {"$ref": "#/prefixItems/0"}}, "prefixItems": [TEXT]},
    {"$ref": "#/$defs/all", "required": ["b"], "$defs": {"all": {"required": ["a"]}}},
    {"properties": {"a": {"$ref": "#/$defs/never"}}, "$defs": {"never": False}},
    {"$ref": "#/$defs/never", "$defs": {"never": False}},
    {"properties": {"a": {"$ref": "#"}}, "required": ["b"], "additionalProperties": True},
    {"properties": {"a": {"$ref": "#x"}}, "$defs": {"%/~ ä": {"$anchor": "x", "type": "integer"}}},
    {"properties": {"a": {"$ref": "other job#/properties/n"}}},
    {"properties": {"a": {"$ref": "other job", "minProperties": 1}}},
    {"allOf": [{"required": ["a"]}], "properties": {"b": {"$ref": "#/allOf/0"}}, "$ref": "#/properties/b"},
    {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["c"]}},
    {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}},
    {"propertyNames": {"maxLength": 1}, "patternProperties": {"^a": TEXT}, "additionalProperties": {"type": "integer"}},
    {"const": {"a": 1}},
    {"enum": [[], {"a": 1, "b": 2}]},
]
ALLOW_ALL_OR_NONE = (CASES[13],)
SAMPLES = [
    [], ["x"], [1], ["x", 1], ["x", "y"], ["x", 1, 2], ["x", "y", 1], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"c": 1},
    {"a": 1, "b": 2}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}, {"a": {"b": 1}, "b": 1}, {"a": {}, "b": {"a": 1}},
    {"a": {"n": 1}}, {"a": {"n": "x"}}, {"long": 1}, {"a": {}}, None, 1, "x",
]  # fmt: skip
OTHER = {"$id": "other job", "type": "object", "properties": {"n": {"type": "integer"}}}


def file(schema):
    return SchemaFile(schema["$id"], "x.json", b"", schema)


@pytest.mark.parametrize("case", CASES, ids=json.dumps)
def test_both_dialects_allow_the_same(tmp_path, case):
    for name, schema in (("job", {"$id": "job", **case}), ("other", OTHER)):
        (tmp_path / f"{name}.json").write_text(json.dumps(schema))
    schemas = load(tmp_path)
    files = {each.job: each for each in schemas}
    components = translated(files, component_names(files), BASE)
    for each in components.values():
        jsonschema.Draft7Validator.check_schema(each)
    old = jsonschema.Draft7Validator({"$ref": f"{BASE}/job", "components": {"schemas": components}})
    allowed = [each for each in SAMPLES if not schemas.problems("job", json.dumps({"data": each}).encode())]
    assert [each for each in SAMPLES if old.is_valid(each)] == allowed
    assert 0 < len(allowed) < len(SAMPLES) or case in ALLOW_ALL_OR_NONE


def test_data_that_looks_like_a_reference_is_left_out():
    schema = {"$id": "job", "examples": [{"$ref": "x"}], "const": {"a": [{"$ref": "x"}]}, "title": "A job"}
    assert translated({"job": file(schema)}, {"job": "job"}, BASE) == {"job": {"title": "A job"}}


def test_names_of_components_are_unique_and_stable():
    names = component_names(["urn:a", "urn/a", "Envelope", "b"], {"Envelope"})
    assert names["b"] == "b"
    assert len(set(names.values())) == 4
    assert all(name.startswith(("urn_a_", "Envelope_")) for name in set(names.values()) - {"b"})
    assert component_names(["urn:a"]) == {"urn:a": "urn_a"}
