"""A directory of schemas: what is read, what is refused, and at which place."""

from __future__ import annotations

import json

import pytest

from babelgate.errors import ConfigError
from babelgate.schemas import files
from babelgate.schemas.job_schemas import compiled, load

JOB = "urn:babel:shop:order"


def write(directory, **schemas):
    for name, schema in schemas.items():
        text = schema if isinstance(schema, str) else json.dumps({"$id": JOB, **schema})
        (directory / f"{name}.json").write_text(text)
    return directory


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ("{", "order.json: is not JSON"),
        ("[1]", "order.json: must be an object"),
        ('{"type": "object"}', "order.json: needs the member $id"),
        ('{"$id": " "}', "order.json: needs the member $id"),
        ('{"$id": "a#b"}', "order.json: needs the member $id"),
        ('{"$id": "a", "$id": "b"}', "order.json: has the member '$id' twice"),
        ('{"$id": "a", "x": NaN}', "order.json: is not JSON: NaN"),
        ('{"$id": "a", "x": ' + "[" * 70 + "]" * 70 + "}", "order.json: has more than 64 levels"),
        ('{"$id": "a", "x": "' + "x" * files.MAX_FILE_BYTES + '"}', "order.json: has more than 1048576 bytes"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "order.json: $schema must be https://"),
        ({"properties": {"a/b": {"type": "strin"}}}, "order.json at /properties/a~1b/type: "),
        ({"properties": {"a": {"minimum": "1"}}}, "order.json at /properties/a/minimum: "),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/a"}}}, "order.json at /properties/a/$ref: no file"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "order.json at /properties/a/$ref: no file"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "order.json at /properties/a/$ref: there is no schema at"),
        ({"properties": {"a": {"$ref": "#none"}}}, "order.json at /properties/a/$ref: there is no $anchor"),
        ({"required": ["a"], "items": {"$ref": "#/required"}}, "order.json at /items/$ref: there is no schema at"),
        ({"items": {"$dynamicRef": "#a"}}, "order.json at /items/$dynamicRef: $dynamicRef is not supported"),
        ({"items": {"$id": "urn:other"}}, "order.json at /items/$id: $id is supported at the top"),
        ({"items": {"pattern": "(?=a)b"}}, "order.json at /items/pattern: no regular expression of the supported"),
        ({"items": {"pattern": r"(a)\1"}}, "order.json at /items/pattern: no regular expression of the supported"),
        ({"items": {"pattern": "(a{1000}){1000}"}}, "order.json at /items/pattern: no regular expression"),
        ({"patternProperties": {"(?<!a)b": True}}, "order.json at /patternProperties"),
        ({"items": {"format": "nope"}}, "order.json at /items/format: Unknown format"),
        ({"items": {"format": "regex"}}, "order.json at /items/format: the format regex is not supported"),
    ],
    ids=str,
)
def test_a_fault_names_file_and_pointer(tmp_path, schema, fault):
    with pytest.raises(ConfigError) as refused:
        load(write(tmp_path, order=schema))
    assert refused.value.key == "schemas.directory"
    assert refused.value.reason.startswith(fault)


def test_all_faults_are_told(tmp_path):
    write(tmp_path, a={"type": "strin"}, b={"type": "object"}, c="{")
    _, faults = compiled(tmp_path)
    assert {fault.path for fault in faults} == {"a.json", "b.json", "c.json"}


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is not a directory"):
        load(tmp_path / "none")


def test_folders_are_read_and_hidden_names_are_not(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / ".git").mkdir()
    write(tmp_path / "shop", order={"type": "object"})
    write(tmp_path / ".git", other='{"')
    (tmp_path / "README.md").write_text("words")
    # As Kubernetes mounts a ConfigMap.
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "money.json").write_text('{"$id": "money"}')
    (tmp_path / "money.json").symlink_to("..data/money.json")
    schemas = load(tmp_path)
    assert [(file.job, file.path) for file in schemas] == [("money", "money.json"), (JOB, "shop/order.json")]
    file = schemas.get(JOB)
    assert file is not None and file.text == (tmp_path / "shop" / "order.json").read_bytes()


def test_references_lead_to_other_files(tmp_path):
    write(
        tmp_path,
        order={
            "properties": {"total": {"$ref": "money"}, "tax": {"$ref": "money#/$defs/a~1b"}, "b": {"$ref": "#b"}},
            "$defs": {"b": {"$anchor": "b", "const": 1}},
        },
        money='{"$id": "money", "type": "integer", "$defs": {"a/b": {"type": "string"}}}',
    )
    body = b'{"job":"%b","data":{"total":"x","tax":1,"b":2}}' % JOB.encode()
    found = load(tmp_path).problems(JOB, body)
    assert {(each.pointer, each.detail) for each in found} == {
        ("/data/total", 'data.total is not of type "integer".'),
        ("/data/tax", 'data.tax is not of type "string".'),
        ("/data/b", "1 was expected."),
    }
