"""``pipeline validate`` decides as the gateway does, for any content of files."""

from __future__ import annotations

import gzip
import json
import os

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from babelgate import __version__
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.datasets import DatasetStore
from babelgate.pipeline.storage.inputs import ReadOptions, Split
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.validate import job
from babelgate.pipeline.validate.validation_task import write_files
from tests.harness.ci import missing
from tests.harness.conformance import locate
from tests.harness.gateway import gateway
from tests.harness.hostile import BY_HAND, generated, of_the_suite

META = b'"meta":{"id":"i","queue":"q","lang":"go","schema_version":1,"created_at":5}'


def good(number, data=b"{}"):
    return b'{"job":"urn:a","trace_id":"t%d","data":%b,%b,"attempts":0}' % (number, data, META)


# A body that is a line, less the end of the line; one that is blank is none.
def is_line(body):
    return body.strip() and b"\n" not in body and not body.endswith(b"\r")


BY_HAND_LINES = [body for body in BY_HAND if is_line(body)]


class Run:
    """The command, in this process, with its output below ``folder``."""

    def __init__(self, spark, folder):
        self.folder = folder
        self.store = DatasetStore(spark, str(folder / "out"))
        self.output = ""

    def __call__(self, *arguments, code=0):
        """The summary of a run that ends with ``code``; None where it wrote none."""
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        given = ["validate", *map(str, arguments), "--lake", str(self.folder / "out"), "--summary", str(summary)]
        result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
        assert result.exit_code == code, result.output
        self.output = result.output
        return json.loads(summary.read_text()) if summary.exists() else None

    def rows(self, dataset):
        found = self.store.read(dataset).orderBy("source_file", "source_at").collect()
        return [row.asDict() for row in found]


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path)


def verdicts_of_spark(run):
    found: dict[tuple[str, int], tuple[str, ...] | tuple[str, bytes]] = {}
    for row in run.rows("accepted"):
        found[row["source_file"], row["source_at"]] = ("accepted", bytes(row["body"]))
    for row in run.rows("quarantined"):
        found[row["source_file"], row["source_at"]] = (row["reason"], row["reason_pointer"], row["detail"])
    return [found[place] for place in sorted(found)]


def verdict_of_http(answer):
    if answer.status_code == 200:
        return "accepted", answer.content.partition(b'"envelope":')[2][:-1]
    (problem,) = answer.json()["errors"]
    return problem["code"], problem["pointer"], problem["detail"]


def test_its_verdicts_and_bytes_are_those_of_the_endpoint(run, tmp_path):
    suite = locate()
    if suite is None:
        missing("the conformance suite", "run: python -m tests.harness.conformance")
    bodies = list(dict.fromkeys([*BY_HAND, *of_the_suite(suite), *generated(1600)]))
    with gateway(tmp_path) as process, process.client() as client:
        url = "/queues/q/messages:validate?mode=consume"
        expected = [verdict_of_http(client.post(url, content=body)) for body in bodies]
    assert len(bodies) > 1000
    kinds = {each[0] for each in expected}
    assert {"accepted", "invalid_json", "too_deep", "missing_urn", "number_out_of_range"} <= kinds
    parquet.write_table(pa.table({"body": bodies}), tmp_path / "bodies.parquet", row_group_size=300)
    run(tmp_path / "bodies.parquet")
    assert verdicts_of_spark(run) == expected

    lines = [(body, each) for body, each in zip(bodies, expected, strict=True) if is_line(body)]
    assert len(lines) > 500
    (tmp_path / "bodies.ndjson").write_bytes(b"\n".join(body for body, _ in lines))
    run(tmp_path / "bodies.ndjson")
    assert verdicts_of_spark(run) == [each for _, each in lines]


def test_rows_tell_all_there_is_to_know(run, tmp_path):
    sloppy = b'{"timestamp":1,' + good(2).replace(b'"go"', b'"php"')[1:]
    poison = b'{"job":"urn:b","trace_id":"t3","data":[],"meta":{"id":"x","lang":"go"},"attempts":7}'
    dead = good(4)[:-1] + b',"dead_letter":{"reason":"failed"}}'
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b.ndjson").write_bytes(b"\n".join([good(1), sloppy, poison, dead, rb'{"job":"\ud800"}']))
    summary = run(tmp_path / "in", "--max-quarantine-rate", "0.5")
    first, second, third = run.rows("accepted")
    source = (tmp_path / "in" / "a b.ndjson").as_uri()
    assert first == {
        "message_id": "i",
        "job": "urn:a",
        "queue": "q",
        "trace_id": "t1",
        "lang": "go",
        "created_at": 5,
        "attempts": 0,
        "has_dead_letter": False,
        "body": good(1),
        "body_bytes": len(good(1)),
        "body_sha256": first["body_sha256"],
        "source_file": source,
        "source_at": 0,
        "run_id": summary["run_id"],
        "rewritten": False,
        "dropped": [],
    }
    assert (second["rewritten"], second["dropped"], second["lang"]) == (True, ["/timestamp"], "php")
    assert second["body"] == good(2).replace(b'"go"', b'"php"')
    assert third["has_dead_letter"]
    refused, surrogate = run.rows("quarantined")
    assert (refused["reason"], refused["reason_pointer"]) == ("unsupported_schema_version", "/meta/schema_version")
    assert refused["body"] == poison
    assert (refused["job"], refused["message_id"], refused["lang"], refused["attempts"]) == ("urn:b", "x", "go", 7)
    assert surrogate["job"] == "\\ud800"
    counts = summary["counts"]
    assert (counts["rows"], counts["accepted"], counts["rewritten"], counts["dead_letters"]) == (5, 3, 1, 1)
    assert counts["reasons"] == {"missing_meta": 1, "unsupported_schema_version": 1}
    assert counts["langs"] == {
        "php": {"accepted": 1, "quarantined": 0},
        "go": {"accepted": 2, "quarantined": 1},
        "unknown": {"accepted": 0, "quarantined": 1},
    }
    assert "5 bodies: 3 accepted (1 of them rewritten), 2 quarantined (40.00%)" in run.output


def test_where_only_spark_can_write_the_rows_and_counts_are_the_same(spark, run, tmp_path, monkeypatch):
    (tmp_path / "in").write_bytes(b"\n".join([*BY_HAND_LINES, good(1), good(2)[:-1] + b',"dead_letter":{}}']))
    by_tasks = run(tmp_path / "in")["counts"]
    rows = run.rows("accepted"), run.rows("quarantined")
    assert all(rows)

    written = []

    class Elsewhere(DatasetStore):
        """On a file system that Arrow need not know."""

        def __init__(self, spark, root):
            super().__init__(spark, root)
            self.files.is_local = False

        def write_by(self, frame, column, datasets, run):
            super().write_by(frame, column, datasets, run)
            written.append(run)

    monkeypatch.setattr(job, "DatasetStore", Elsewhere)
    (tmp_path / "elsewhere").mkdir()
    other = Run(spark, tmp_path / "elsewhere")
    assert other(tmp_path / "in")["counts"] == by_tasks
    assert written
    assert (other.rows("accepted"), other.rows("quarantined")) == rows


def test_what_failed_attempts_wrote_is_not_read(run, tmp_path):
    (tmp_path / "in").write_bytes(good(1) + b"\nx")
    splits = [Split((tmp_path / "in").as_uri(), 0, None, True)]
    staging = run.store.staging("run")
    folder = run.store.files.local_path(staging)
    failed, written = (write_files(splits, ReadOptions(), "run", folder) for _ in range(2))
    assert failed.files != written.files
    run.store.adopt({name: f"{staging}/verdict={name}" for name in ("accepted", "quarantined")}, "run", written.files)
    run.store.publish(["accepted", "quarantined"], "run", {})
    assert [row["body"] for row in run.rows("accepted")] == [good(1)]
    assert [row["body"] for row in run.rows("quarantined")] == [b"x"]
    assert not run.store.files.exists(staging)
    with pytest.raises(JobFailed, match="lacks files that tasks have written, such as part-x"):
        run.store.adopt({"accepted": staging}, "run", ["part-x"])


def test_no_file_can_fail_the_job(run, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    packed = gzip.compress(b"\n".join(map(good, range(20_000))))
    (folder / "cut.gz").write_bytes(packed[: len(packed) // 2])
    os.mkfifo(folder / "pipe")
    (folder / "cut.parquet").write_bytes(b"PAR1 and no more")
    (folder / "empty").write_bytes(b"")
    (folder / "long").write_bytes(good(1, b'{"x":"' + b"y" * 50_000_000 + b'"}') + b"\n" + b"[" * 50_000_000)
    large = good(1, b'{"x":"' + b"y" * 12_000_000 + b'"}')
    (folder / "large").write_bytes(b"\n".join([large] * 6))
    (folder / "torn").write_bytes(good(2) + b"\r\n\r\n" + good(3)[:-5])
    summary = run(folder)
    counts = summary["counts"]
    assert counts["reasons"] == {"truncated_file": 1, "unreadable_file": 2, "invalid_json": 1, "too_large": 2}
    assert 9_000 < counts["accepted"] < 12_000
    assert summary["inputs"]["files"] == 7
    (cut,) = (row for row in run.rows("quarantined") if row["reason"] == "truncated_file")
    assert cut["source_file"].endswith("cut.gz")
    assert f"{counts['accepted'] - 7} bodies" in cut["detail"]
    first, second = (row for row in run.rows("quarantined") if row["reason"] == "too_large")
    assert (first["body_bytes"], second["body_bytes"]) == (50_000_000 + len(good(1)) + 6, 50_000_000)
    assert first["truncated"] and len(first["body"]) == 65_536
    assert [len(row["body"]) for row in run.rows("accepted")].count(len(large)) == 6


def test_a_large_file_is_shared_among_tasks(run, tmp_path):
    lines = [good(number, b'{"x":"%b"}' % (b"y" * 1000)) for number in range(40_000)]
    (tmp_path / "large").write_bytes(b"\n".join(lines))
    summary = run(tmp_path / "large")
    assert summary["counts"]["accepted"] == 40_000
    assert "3 tasks" in run.output
    found = run.store.read("accepted").select("trace_id").distinct().count()
    assert found == 40_000


def test_an_export_of_dead_letters(run, tmp_path):
    records = [good(1)[:-1] + b',"dead_letter":{"reason":"failed"}}', b'{"raw":"x","dead_letter":{"reason":"poison"}}']
    entries = b",".join(b'{"record":%b,"record_base64":null}' % record for record in records)
    (tmp_path / "dead.json").write_bytes(b'{"dead_letters":[%b],"next_cursor":null}' % entries)
    run(tmp_path / "dead.json")
    assert [row["has_dead_letter"] for row in run.rows("accepted")] == [True]
    assert [(row["body"], row["reason"]) for row in run.rows("quarantined")] == [(b"x", "invalid_json")]


def test_the_same_inputs_are_done_once(run, tmp_path):
    source = tmp_path / "in"
    source.write_bytes(good(1))
    first = run(source)
    again = run(source)
    assert (first["unchanged"], again["unchanged"]) == (False, True)
    assert again["run_id"] == first["run_id"]
    assert again["completed_at"] == first["completed_at"]
    assert "Nothing has changed" in run.output
    assert "starting Spark" not in run.output, "there is nothing to do for it"
    assert again == first | {"unchanged": True}
    assert (first["code_version"], first["job"]) == (__version__, "validate")
    forced = run(source, "--force")
    assert (forced["run_id"], forced["unchanged"]) == (first["run_id"], False)
    assert forced["completed_at"] > first["completed_at"]
    source.write_bytes(good(1) + b"\n" + good(2))
    other = run(source)
    assert other["run_id"] != first["run_id"]
    assert run.store.current("accepted") == other["run_id"]
    assert len(run.rows("accepted")) == 2


def test_an_empty_folder(run, tmp_path):
    (tmp_path / "in").mkdir()
    summary = run(tmp_path / "in", "--max-quarantine-rate", "0")
    assert summary["counts"]["rows"] == 0
    assert run.rows("accepted") == run.rows("quarantined") == []


def test_two_at_once_do_not_mix_their_datasets(run, tmp_path):
    (tmp_path / "in").write_bytes(good(1) + b"\nx")
    with exclusive_lock(run.store.files, f"{run.store.folder('accepted')}/_validate.lock", "validate"):
        run(tmp_path / "in", code=1)
    assert "Another validate is at work there" in run.output
    run(tmp_path / "in")
    assert run.store.current("accepted") == run.store.current("quarantined")


def test_a_threshold_ends_with_three(run, tmp_path):
    (tmp_path / "in").write_bytes(good(1) + b"\nx\ny")
    summary = run(tmp_path / "in", "--max-quarantine-rate", "0.6", code=3)
    assert "66.67% of the bodies are quarantined, more than 60.00%" in run.output
    assert summary["counts"]["quarantined"] == 2
    run(tmp_path / "in", "--max-quarantine-rate", "0.6", code=3)
    run(tmp_path / "in", "--max-quarantine-rate", "0.7")


def test_wrong_usage_ends_with_two(run, tmp_path):
    run(tmp_path / "gone", code=2)
    assert "there is no such file or folder" in run.output
    run(tmp_path, "--conf", "x", code=2)
    assert "is not KEY=VALUE" in run.output
    (tmp_path / "in").write_bytes(b"x")
    run(tmp_path / "in", "--max-quarantine-rate", "2", code=2)
    assert "0<=x<=1" in run.output
