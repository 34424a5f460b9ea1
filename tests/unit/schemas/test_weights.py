"""No schema and no body takes long: schemas that could are refused at the start, data that could when it is checked."""

from __future__ import annotations

import json
import random
import time

import pytest

from babelgate.schemas.job_schemas import MAX_CHECKS, compiled, load

LONGEST = 60.0
"""Most seconds of CPU for a schema, or for a body of 1 MiB. It excludes exponential work, whose end no test could wait
for. The worst expressions need 1.4 s, and a test machine may be many times slower."""


def nested(levels):
    made: dict[str, object] = {}
    for _ in range(levels):
        made = {"c": made}
    return made


def wrapped(levels, inner):
    for _ in range(levels):
        inner = {"allOf": [inner]}
    return inner


def unevaluated(levels):
    made: dict[str, object] = {"properties": {"p": True}}
    for _ in range(levels):
        made = {"allOf": [made], "unevaluatedProperties": {"type": "integer"}}
    return made


CHILD = {"properties": {"c": {"$ref": "#"}}}
EVIL_SCHEMAS = {
    "itself": ({"$ref": "#"}, "refers to itself"),
    "each other": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "refers to itself",
    ),
    "a recursion that doubles": ({"anyOf": [CHILD, {**CHILD, "required": ["z"]}]}, "apply to one place"),
    "references that double": (
        {
            "$defs": {**{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(10)}, "d10": {}},
            "$ref": "#/$defs/d0",
        },
        "apply to one place",
    ),
    "many alternatives": ({"oneOf": [{"const": n} for n in range(300)]}, "apply to one place"),
    "a deep chain": ({"$defs": {"a": wrapped(30, {})}, "$ref": "#/$defs/a"}, "within each other"),
    "nested unevaluated": (unevaluated(6), "apply to one place"),
    "a recursion of an older draft that doubles": (
        {"anyOf": [{"dependencies": {"c": {**CHILD, "required": [name]}}, "minProperties": 1} for name in "zy"]},
        "use dependentRequired or dependentSchemas",
    ),
}


@pytest.mark.parametrize("name", EVIL_SCHEMAS)
def test_an_evil_schema_is_refused_at_the_start(tmp_path, name):
    schema, reason = EVIL_SCHEMAS[name]
    (tmp_path / "a.json").write_text(json.dumps({"$id": "a", **schema}))
    began = time.process_time()
    _, faults = compiled(tmp_path)
    assert faults and all(reason in each.reason for each in faults)
    assert time.process_time() - began < LONGEST


_random = random.Random(1)
LETTERS = "".join(_random.choice("ab") for _ in range(1_000_000))
IN_A = {
    "alternatives for each element": (
        {"items": {"oneOf": [{"properties": {"t": {"const": n}}, "required": ["t"]} for n in range(80)]}},
        [{"t": 79}] * 100_000,
    ),
    "equal hashes": ({"uniqueItems": True}, [10**300 + n for n in range(2_000)]),
    "equal hashes of long integers": ({"uniqueItems": True}, [2**60 + n for n in range(40_000)]),
    "many unique elements": ({"uniqueItems": True}, list(range(150_000))),
    "multiples": ({"items": {"multipleOf": 0.01}}, [1e300] * 100_000),
    "wrong elements": ({"items": {"type": "string"}}, list(range(150_000))),
    "large alternatives": ({"oneOf": [{"type": "string"}] * 250}, list(range(1_500))),
    "one large text": ({"oneOf": [{"type": "integer"}] * 250}, "x" * 1_000_000),
    "enumerated objects": ({"items": {"enum": [{"v": n} for n in range(5_000)]}}, [{"v": -1}] * 60_000),
    "nested quantifiers": ({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}, "a" * 1_000_000),
    "alternating quantifiers": ({"pattern": "^(a|aa)+$"}, "a" * 1_000_000 + "!"),
    "an automaton of 2^15 states": ({"pattern": "[ab]*a[ab]{14}c"}, LETTERS),
    "an address": ({"format": "email"}, "a" * 500_000 + "@" + "b." * 200_000),
    "a template": ({"format": "uri-template"}, "{a}" * 300_000),
}
EVIL_DATA = {
    **{name: ({"properties": {"a": schema}}, {"a": data}) for name, (schema, data) in IN_A.items()},
    "a deep recursion": ({"$defs": {"n": wrapped(20, CHILD)}, "$ref": "#/$defs/n"}, nested(120)),
    "deep alternatives": ({"anyOf": [{"type": "string"}, {**CHILD, "required": ["c"]}]}, nested(120)),
    "patterns of names": (
        {"patternProperties": {f"^[a-z]*{n}$": {"type": "integer"} for n in range(50)}},
        {f"k{n}": "x" for n in range(20_000)},
    ),
    "unevaluated members": (unevaluated(4), {f"k{n}": 1 for n in range(50_000)}),
    "members that are not allowed": ({"additionalProperties": False}, {f"k{n}": 1 for n in range(60_000)}),
}


@pytest.mark.parametrize("name", EVIL_DATA)
def test_evil_data_takes_no_time(tmp_path, name):
    schema, data = EVIL_DATA[name]
    (tmp_path / "a.json").write_text(json.dumps({"$id": "a", **schema}))
    schemas = load(tmp_path)
    body = json.dumps({"job": "a", "data": data}, separators=(",", ":")).encode()
    began = time.process_time()
    schemas.problems("a", body)
    assert time.process_time() - began < LONGEST


def test_data_that_could_take_long_is_refused_in_words(tmp_path):
    (tmp_path / "a.json").write_text('{"$id": "a", "properties": {"a": {"uniqueItems": true}}}')
    body = b'{"job":"a","data":{"a":[%b]}}' % b",".join(b"%d" % n for n in range(20_000))
    (found,) = load(tmp_path).problems("a", body)
    assert (found.pointer, found.code) == ("/data", "schema_check_too_long")
    assert f"more than {MAX_CHECKS}" in found.detail


def test_usual_schemas_check_large_data(tmp_path):
    line = {"type": "object", "required": ["sku", "n"], "properties": {"sku": {"type": "string"}, "n": {"minimum": 1}}}
    schema = {"$id": "a", "properties": {"lines": {"items": line}}, "additionalProperties": False}
    (tmp_path / "a.json").write_text(json.dumps(schema))
    lines = [{"sku": f"sku-{n}", "n": n + 1} for n in range(30_000)]
    schemas = load(tmp_path)
    assert schemas.problems("a", json.dumps({"job": "a", "data": {"lines": lines}}).encode()) == []
    lines[-1]["n"] = 0
    (found,) = schemas.problems("a", json.dumps({"job": "a", "data": {"lines": lines}}).encode())
    assert (found.pointer, found.code) == ("/data", "schema_violation")


def test_recursive_schemas_are_supported(tmp_path):
    schema = {"$id": "a", "properties": {"n": {"type": "integer"}, "c": {"$ref": "#"}}, "additionalProperties": False}
    (tmp_path / "a.json").write_text(json.dumps(schema))
    (found,) = load(tmp_path).problems("a", b'{"job":"a","data":{"c":{"c":{"n":"x"}}}}')
    assert found.pointer == "/data/c/c/n"
