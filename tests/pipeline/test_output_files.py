"""``report --output`` and ``--summary``: a file on disk or in an object store, whole or not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.output_file import OutputFile
from tests.harness.gateway import gateway
from tests.harness.s3 import s3_server
from tests.pipeline.histories import Days
from tests.pipeline.sending import Sends, body, drained, write
from tests.pipeline.test_metrics_object_store import URL, Store, measure

REPORT = "report", "--lake", URL, "--engine", "duckdb"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        yield found_by["AWS_ENDPOINT_URL"]


def invoke(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(pipeline, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_a_report_and_a_summary_in_an_object_store(endpoint: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(list(Days(30, days=1).rows()))
    measure()
    for form, content_type in (("html", "text/html"), ("json", "application/json"), ("csv", "text/csv")):
        place, local = f"{URL}/report.{form}", tmp_path / f"report.{form}"
        for output in (f"s3a://lakes/prod/report.{form}", str(local)):
            assert output in invoke(*REPORT, "--output", output, "--summary", f"{URL}/summary.json").stdout
            summary = httpx.get(f"{endpoint}/lakes/prod/summary.json")
            assert summary.headers["content-type"] == "application/json"
            assert summary.json()["output"] == output
        served = httpx.get(f"{endpoint}/lakes/prod/report.{form}")
        assert served.headers["content-type"].partition(";")[0] == content_type, place
        assert served.content == local.read_bytes()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("oss://lake/x", "oss://lake/x is neither a local file nor a URL of s3a://, s3:// or gs://"),
        ("hdfs://joe:secret@lake/x", "hdfs://joe:***@lake/x is neither a local file nor a URL"),
        ("s3a://lake", "s3a://lake names no file"),
        ("s3a://lake/reports/", "s3a://lake/reports/ names no file"),
        ("s3a://lake//x", "s3a://lake//x has two slashes in its path, with no name between them"),
        ("file:{folder}/no/x", "there is no folder {folder}/no"),
        ("s3://id:secret@la ke/x", "s3://id:***@la ke/x cannot be written: Cannot parse URI"),
        ("{folder}", "{folder} is a folder"),
        ("{folder}/no/x", "there is no folder {folder}/no"),
        ("file://{folder}/no/x", "there is no folder {folder}/no"),
    ],
)
@pytest.mark.parametrize("option", ["--output", "--summary"])
def test_a_place_where_no_file_can_be_is_refused_before_the_job(
    endpoint: str, tmp_path: Path, option: str, place: str, told: str
) -> None:
    result = invoke("report", "--lake", str(tmp_path), option, place.format(folder=tmp_path), code=2)
    assert f"Invalid value for {option}: {told.format(folder=tmp_path)}" in result.stderr
    assert "secret" not in result.output


def test_a_store_that_refuses_ends_the_command_in_words(endpoint: str) -> None:
    with pytest.raises(JobFailed, match=r"s3a://missing/x cannot be written: .*NO_SUCH_BUCKET"):
        OutputFile("s3a://missing/x").write(b"{}", "application/json")


def test_a_result_of_sending_is_printed_before_its_summary_fails(spark: Any, endpoint: str, tmp_path: Path) -> None:
    sends = Sends(spark, tmp_path)
    given = "backfill", write(tmp_path / "bodies.ndjson", body(1)), "--from", "bodies", "--summary", "s3a://missing/x"
    with gateway(tmp_path) as process:
        sends.url = process.url
        for starts in ("starting Spark", "nothing is left to send"):
            sends(*given, code=1)
            assert starts in sends.output and "Error: s3a://missing/x cannot be written: " in sends.output
            assert sends.shown.startswith("1 messages: 1 accepted, ") and "ledger: " in sends.shown
        assert drained(process, "q") == {"id-1": 1}


def test_a_local_file_is_replaced_whole(tmp_path: Path) -> None:
    for name in ("a b.json", "10:30.json", "ü%20.json"):
        uri = (tmp_path / name).as_uri()
        for place in (str(tmp_path / name), uri, uri.replace("///", "/")):
            output = OutputFile(place)
            output.write(json.dumps(place).encode(), "application/json")
            assert json.loads((tmp_path / name).read_text()) == place
            assert output.suffix == ".json"
    assert len(list(tmp_path.iterdir())) == 3
    folder = tmp_path / "gone"
    folder.mkdir()
    output = OutputFile(str(folder / "x"))
    folder.rmdir()
    folder.touch()
    with pytest.raises(JobFailed, match=r"gone/x cannot be written: "):
        output.write(b"", "application/json")
