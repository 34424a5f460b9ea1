"""``pipeline validate --schemas`` checks data as a gateway with these schemas does."""

from __future__ import annotations

import json

import duckdb
import pytest
from click.testing import CliRunner

from babelgate.cli.main import cli
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.storage.datasets import DatasetStore
from babelgate.pipeline.storage.inputs import Body
from babelgate.pipeline.tables.moment import open_tables
from babelgate.pipeline.validate import job
from babelgate.pipeline.validate.classify import SCHEMA_FAULTS, classify
from babelgate.pipeline.validate.job_schemas import read_schemas
from babelgate.pipeline.validate.validation_task import schemas_of
from tests.harness.bundles import serve
from tests.harness.gateway import gateway
from tests.pipeline.test_validate import META, Run, is_line

ORDER, MONEY = "urn:babel:shop:order.placed", "urn:babel:shop:money"
SCHEMAS = {
    "order.json": {
        "$id": ORDER,
        "type": "object",
        "required": ["order_id"],
        "properties": {
            "order_id": {"type": "string", "maxLength": 8},
            "lines": {"type": "array", "items": {"$ref": MONEY}},
        },
        "additionalProperties": False,
    },
    "common/money.json": {"$id": MONEY, "type": "object", "properties": {"amount": {"type": "integer"}}},
}
GOOD = '{"order_id":"A-1"}'
BODIES = [
    (ORDER, GOOD),
    (ORDER, '{"order_id":"much too long","lines":[{"amount":1},{"amount":"1"},{"amount":1.5}]}'),
    (ORDER, '{"order_id":"A-2","lines":[{"amount":null}],"p":1}'),
    (ORDER, "{}"),
    (ORDER, '{"order_id":7,"order_id":"A-3"}'),
    (ORDER, '{ "order_id" : "\\u00e9" }'),
    (MONEY, '{"amount":1e400}'),
    (MONEY, '{"amount":12345678901234567890}'),
    (MONEY, '{"amount":-1}'),
    ("urn:babel:shop:unknown", "{}"),
    ("urn:babel:shop:much-too-long" * 20, "{}"),
]


def body(number, job_name, data):
    return f'{{"job":{json.dumps(job_name)},"trace_id":"t{number}","data":{data},'.encode() + META + b',"attempts":0}'


LINES = [body(number, *each) for number, each in enumerate(BODIES)]


@pytest.fixture
def schemas(tmp_path):
    for name, schema in SCHEMAS.items():
        path = tmp_path / "schemas" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(schema))
    return tmp_path / "schemas"


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path)


@pytest.fixture
def dump(tmp_path):
    path = tmp_path / "bodies.ndjson"
    path.write_bytes(b"\n".join(LINES))
    return path


def of_the_gateway(tmp_path, schemas):
    """What ``messages:validate`` of a gateway with these schemas says of each of the bodies."""
    config = {"schemas": {"directory": str(schemas)}, "default": {"broker": "local", "schema": "enforce"}}
    with gateway(tmp_path, config) as process, process.client() as client:
        answers = [client.post("/queues/q/messages:validate", content=line) for line in LINES]
    assert {answer.status_code for answer in answers} == {200, 422}
    return [answer.json().get("errors", []) if answer.status_code == 422 else [] for answer in answers]


def test_what_it_says_of_bodies_is_what_the_gateway_says(run, dump, schemas, tmp_path):
    assert all(map(is_line, LINES))
    expected = of_the_gateway(tmp_path, schemas)
    summary = run(dump, "--schemas", schemas)
    rows = sorted([*run.rows("accepted"), *run.rows("quarantined")], key=lambda row: row["source_at"])
    assert len(rows) == len(LINES)
    for row, line, errors in zip(rows, LINES, expected, strict=True):
        if row.get("violations") is not None:
            assert [each.asDict() for each in row["violations"]] == errors, line
            first = row["violations"][0]
            assert (row["reason"], row["reason_pointer"], row["detail"]) == (
                first["code"],
                first["pointer"],
                first["detail"],
            )
            assert bytes(row["body"]) == line
        elif errors:
            assert row["reason"] == errors[0]["code"] not in SCHEMA_FAULTS, line
        else:
            assert "reason" not in row, line
    reasons = summary["counts"]["reasons"]
    assert reasons == {"number_out_of_range": 1, "schema_violation": 3, "schema_missing": 2}
    violations = summary["counts"]["violations"]
    assert {"job": ORDER, "pointer": "/data/lines/*/amount", "code": "schema_violation", "bodies": 2} in violations
    assert violations[0]["bodies"] == max(each["bodies"] for each in violations) == 2
    assert sum(each["bodies"] for each in violations if each["code"] == "schema_missing") == 2
    assert f"schema_violation: {ORDER} at /data/lines/*/amount" in run.output


def test_an_unknown_job_is_refused_and_nothing_is_checked_without_schemas(run, dump, schemas):
    assert run(dump)["counts"]["reasons"] == {"number_out_of_range": 1}
    assert all(row["violations"] is None for row in run.rows("quarantined"))
    assert run(dump, "--schemas", schemas)["unchanged"] is False, "other schemas are another run"
    again = run(dump, "--schemas", schemas)
    assert again["unchanged"] is True
    assert again["options"]["schemas_sha256"]
    (schemas / "order.json").write_text(json.dumps({"$id": ORDER}))
    assert run(dump, "--schemas", schemas)["counts"]["reasons"] == {"number_out_of_range": 1, "schema_missing": 2}


def test_a_directory_a_bundle_and_a_url_are_the_same(run, dump, schemas, tmp_path):
    bundle = CliRunner().invoke(cli, ["schemas", "bundle", str(schemas)]).stdout_bytes
    assert read_schemas(str(schemas)) == bundle
    path = tmp_path / "bundle.json"
    path.write_bytes(bundle)
    token = tmp_path / "token"
    token.write_text("secret-1")
    expected = run(dump, "--schemas", schemas)
    assert run(dump, "--schemas", path)["unchanged"] is True
    with serve(bundle) as served:
        told = run(dump, "--schemas", served.url, "--schemas-bearer-file", token)
        assert told["unchanged"] is True
        assert told["run_id"] == expected["run_id"]
        (request,) = served.headers
        assert request["authorization"] == "Bearer secret-1"
        served.status = 503
        run(dump, "--schemas", served.url, code=1)
    assert "The schemas were not read: the status is 503" in run.output


def test_the_tables_have_the_violations(run, dump, schemas):
    run(dump)
    run(dump, "--schemas", schemas)
    expected = [[each.asDict() for each in row["violations"] or ()] for row in run.rows("quarantined")]
    assert sum(map(len, expected)) > 5
    table = open_tables(str(run.folder / "out"))["quarantined"].to_pyarrow_table().sort_by("source_at")
    assert [each or [] for each in table["violations"].to_pylist()] == expected
    printed = CliRunner().invoke(pipeline, ["tables", "--lake", str(run.folder / "out"), "--format", "duckdb"])
    connection = duckdb.connect()
    connection.execute(printed.stdout)
    places = "select v.pointer from (select unnest(violations) v from quarantined) where v.code = 'schema_violation'"
    found = sorted(pointer for (pointer,) in connection.sql(places).fetchall())
    assert found == sorted(v["pointer"] for each in expected for v in each if v["code"] == "schema_violation")


def test_where_only_spark_can_write_the_violations_are_the_same(spark, run, dump, schemas, tmp_path, monkeypatch):
    expected = run(dump, "--schemas", schemas)["counts"]
    rows = run.rows("quarantined")

    class Elsewhere(DatasetStore):
        """On a file system that Arrow need not know."""

        def __init__(self, spark, root):
            super().__init__(spark, root)
            self.files.is_local = False

    monkeypatch.setattr(job, "DatasetStore", Elsewhere)
    (tmp_path / "elsewhere").mkdir()
    other = Run(spark, tmp_path / "elsewhere")
    assert other(dump, "--schemas", schemas)["counts"] == expected
    assert [{**row, "run_id": ""} for row in other.rows("quarantined")] == [{**row, "run_id": ""} for row in rows]


def test_schemas_are_compiled_once_in_a_process(schemas):
    bundle = read_schemas(str(schemas))
    first = schemas_of(bundle)
    assert schemas_of(bytes(bytearray(bundle))) is first
    assert schemas_of(bundle + b" ") is not first


def test_an_old_body_has_the_place_in_its_own_form(schemas):
    found = LINES[3].replace(b'"job"', b'"urn"', 1)
    row = classify(Body(0, found, len(found)), "file", "run", schemas_of(read_schemas(str(schemas))))
    assert (row.reason, row.reason_pointer, row.body, row.job) == ("schema_violation", "/data/order_id", found, ORDER)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("order.json", "{", "order.json: is not JSON"),
        ("order.json", json.dumps({"$id": ORDER, "type": "strin"}), "order.json at /type: "),
    ],
)
def test_schemas_with_a_fault_end_with_one(run, dump, schemas, name, text, problem):
    (schemas / name).write_text(text)
    run(dump, "--schemas", schemas, code=1)
    assert f"--schemas: {problem}" in run.output
    assert "starting Spark" not in run.output


def test_wrong_places_end_with_two(run, dump, schemas, tmp_path):
    for arguments, problem in [
        (["--schemas", tmp_path / "gone"], "No such file"),
        (["--schemas", "http://schemas.example/shop.json"], "must begin with https://"),
        (["--schemas", "https://user:secret@schemas.example/"], "without user and fragment"),
        (["--schemas", schemas, "--schemas-bearer-file", dump], "are for a URL"),
        (["--schemas-ca-file", dump], "need --schemas"),
    ]:
        run(dump, *arguments, code=2)
        assert problem in run.output
        assert "starting Spark" not in run.output
