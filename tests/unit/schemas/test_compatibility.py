"""Which changes of a schema break old or new consumers, and what is said of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from babelgate.cli.schemas import UNDECIDED, schemas

OBJECT = {"type": "object"}
A_INTEGER = {**OBJECT, "properties": {"a": {"type": "integer"}}}
A_NUMBER = {**OBJECT, "properties": {"a": {"type": "number"}}}
CLOSED = {**A_INTEGER, "additionalProperties": False}
WIDER = {**OBJECT, "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "additionalProperties": False}
ENUM = {"properties": {"a": {"enum": ["x", "y"]}}}
MORE = {"properties": {"a": {"enum": ["x", "y", "z"]}}}
LINES = {"properties": {"a": {"type": "array", "items": A_INTEGER}}}
TEXTS = {"properties": {"a": {"type": "array", "items": {**OBJECT, "properties": {"a": {"type": "string"}}}}}}
CASES = [
    (A_INTEGER, {**A_INTEGER, "description": "words"}, [], []),
    (A_INTEGER, A_NUMBER, [], ["/data/a"]),
    (A_NUMBER, A_INTEGER, ["/data/a"], []),
    (A_INTEGER, {**A_INTEGER, "required": ["a"]}, ["/data/a"], []),
    (A_INTEGER, CLOSED, ["/data"], []),
    (CLOSED, WIDER, [], ["/data/b"]),
    (ENUM, MORE, [], ["/data/a"]),
    (LINES, TEXTS, ["/data/a/*/a"], ["/data/a/*/a"]),
    ({"properties": {"a": {"maxLength": 5}}}, {"properties": {"a": {"maxLength": 9}}}, [], ["/data/a"]),
    ({"properties": {"a": {"format": "uuid"}}}, {"properties": {"a": {}}}, [], ["/data/a"]),
]


@pytest.fixture
def check(tmp_path):
    """The exit status of ``schemas check`` and what it prints, for two schemas of one job."""

    def run(old, new, *options, shared=({}, {})):
        for name, schema, other in (("old", old, shared[0]), ("new", new, shared[1])):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "a.json").write_text(json.dumps({"$id": "urn:a", **schema}))
            (tmp_path / name / "b.json").write_text(json.dumps({"$id": "b c", **other}))
        result = CliRunner().invoke(schemas, ["check", str(tmp_path / "old"), str(tmp_path / "new"), *options])
        return result.exit_code, result.stdout

    return run


@pytest.mark.parametrize(("old", "new", "backward", "forward"), CASES, ids=range(len(CASES)))
def test_changes(check, old, new, backward, forward):
    for mode, places in (("backward", backward), ("forward", forward)):
        status, text = check(old, new, "--mode", mode, "--json")
        found = [json.loads(line) for line in text.splitlines()]
        assert [each["place"] for each in found] == places, found
        assert all(each["direction"] == mode and not each["undecided"] for each in found)
        assert status == (1 if places else 0)


def test_full_is_both(check):
    status, text = check(A_INTEGER, {"properties": {"a": {"type": "string"}}}, "--mode", "full")
    assert status == 1
    assert 'urn:a: backward incompatible at /data/a: type "integer" → "string"' in text
    assert 'urn:a: forward incompatible at /data/a: type "integer" → "string"' in text


def test_a_change_behind_a_reference(check):
    uses = {"properties": {"a": {"$ref": "b c"}, "c": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "integer"}}}
    status, text = check(uses, uses, shared=({"type": "integer"}, {"type": "string"}))
    assert status == 1
    assert "urn:a: backward incompatible at /data/a:" in text
    assert "/data/c" not in text


def test_a_removed_schema_and_a_new_one(check, tmp_path):
    check({}, {})
    (tmp_path / "new" / "b.json").write_text('{"$id": "c"}')
    run = CliRunner().invoke(schemas, ["check", str(tmp_path / "old"), str(tmp_path / "new")])
    assert (run.exit_code, run.stdout) == (1, "b c: backward incompatible at /job: the schema was removed\n")


def test_what_cannot_be_decided_is_said(check):
    old = {"properties": {"c": {"$ref": "#"}}, "patternProperties": {"^x": {"minLength": 2}}}
    status, text = check(old, {**old, "patternProperties": {"^x": {"minLength": 3}}})
    assert status == UNDECIDED
    assert text.startswith('urn:a: backward cannot be decided at /data: patternProperties {"^x": {"minLength": 2}} → ')


def test_a_recursive_schema_is_compared_once(check):
    old = {"properties": {"c": {"$ref": "#"}, "n": {"type": "number"}}}
    status, text = check(old, {"properties": {"c": {"$ref": "#"}, "n": {"type": "integer"}}})
    assert (status, text) == (
        1,
        'urn:a: backward incompatible at /data/n: type "number" → "integer" (for example 0.5)\n',
    )


def test_faults_are_told(tmp_path):
    (tmp_path / "a.json").write_text('{"$id": "a", "type": "nope"}')
    run = CliRunner().invoke(schemas, ["validate", str(tmp_path)])
    assert run.exit_code == 1
    assert "a.json at /type" in run.stderr
    (tmp_path / "a.json").write_text('{"$id": "a"}')
    run = CliRunner().invoke(schemas, ["validate", str(tmp_path)])
    assert (run.exit_code, run.stdout) == (0, "1 schema can be used\n")
