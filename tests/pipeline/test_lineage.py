"""OpenLineage events of the jobs: each valid, with the datasets that the job reads and writes, and never in its way."""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from openlineage.client import event_v2
from openlineage.client import generated as facets

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed, QualityBroken
from babelgate.pipeline.lineage.datasets import dataset_name
from babelgate.pipeline.lineage.run import job_run
from tests.pipeline.histories import Days, land
from tests.pipeline.ingested import Run

OPTIONS = {"lake": "lake", "landing": "landing"}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """No variable of OpenLineage before the test, and none that the client sets after it."""
    before = {name: monkeypatch.delenv(name) for name in list(os.environ) if name.startswith("OPENLINEAGE")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    # On a busy machine an answer may take longer than people wait for one.
    monkeypatch.setattr("babelgate.pipeline.lineage.run.END_SECONDS", 100.0)
    yield before
    for name in [each for each in os.environ if each.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)


@pytest.fixture
def events(monkeypatch, tmp_path):
    """A function that returns the events so far, each checked, and forgets them."""
    path = tmp_path / "events.ndjson"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(path))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")

    def read():
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        for event in found:
            check(event)
        return found

    return read


def facet_classes():
    modules = (
        importlib.import_module(f"{facets.__name__}.{each.name}") for each in pkgutil.iter_modules(facets.__path__)
    )
    found = (each for module in modules for each in vars(module).values() if hasattr(each, "__attrs_attrs__"))
    return {each._get_schema(): each for each in found if hasattr(each, "_get_schema")}


def check(event):
    """Whether ``event`` has the members that the classes of the specification require, and no others."""
    known = facet_classes()
    assert event["schemaURL"] == event_v2.RunEvent._get_schema()
    members(event, event_v2.RunEvent)
    members(event["run"], event_v2.Run)
    members(event["job"], event_v2.Job)
    for name, kind in ("inputs", event_v2.InputDataset), ("outputs", event_v2.OutputDataset):
        for each in event[name]:
            members(each, kind)
    held = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    made = [each for holder in held for name in holder if name.endswith("acets") for each in holder[name].values()]
    assert made
    for facet in made:
        members(facet, known[facet["_schemaURL"]])


def members(value, kind):
    """Whether a class takes them: it raises TypeError for one that it lacks or does not know."""
    kind(**{name.removeprefix("_"): given for name, given in value.items() if not name.endswith("schemaURL")})


def states(found):
    assert len({each["run"]["runId"] for each in found}) == 1
    return [each["eventType"] for each in found]


def names(datasets):
    return {each["name"].rpartition("/lake/")[2].partition("/v=")[0] for each in datasets}


def rows(event):
    of = {each["name"]: each["outputFacets"].get("outputStatistics", {}) for each in event["outputs"]}
    return {name.rpartition("/lake/")[2].partition("/v=")[0]: each.get("rowCount") for name, each in of.items()}


def test_the_jobs_of_a_lake_are_joined_by_their_datasets(spark, tmp_path, events):
    run = Run(spark, tmp_path, ("duckdb",))
    run.root = str(tmp_path / "lake")
    records = list(Days(12, days=1).rows())
    land(run.landing, records, "a")

    run()
    start, end = events()
    assert states([start, end]) == ["START", "COMPLETE"]
    assert start["job"]["name"] == "babelgate.pipeline.ingest"
    assert start["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert [(each["namespace"], each["name"]) for each in end["inputs"]] == [("file", str(run.landing))]
    assert rows(start) == dict.fromkeys(("journal", "journal_corrupt", "journal_gaps"))
    assert rows(end) == {"journal": len(records), "journal_corrupt": 0, "journal_gaps": None}
    journal = end["outputs"][0]
    assert {"name": "message_id", "type": "string", "fields": []} in journal["facets"]["schema"]["fields"]
    assert journal["facets"]["storage"]["storageLayer"] == "delta"

    run()
    assert rows(events()[-1])["journal"] == 0, "nothing new has landed"

    run(command="metrics")
    start, end = events()
    assert states([start, end]) == ["START", "COMPLETE"]
    assert [each for each in end["inputs"] if each["name"] == journal["name"]], "the same dataset as that of ingest"
    measured = {each["name"] for each in end["outputs"]}

    result = CliRunner().invoke(pipeline, ["report", "--lake", run.root, "--output", "report.json"])
    assert result.exit_code == 0, result.output
    start, end = events()
    assert {each["name"] for each in end["inputs"]} < measured
    (page,) = end["outputs"]
    written = tmp_path / "report.json"
    assert (page["namespace"], page["name"]) == ("file", str(written))
    assert page["outputFacets"]["outputStatistics"]["size"] == written.stat().st_size

    bodies = tmp_path / "bodies.ndjson"
    bodies.write_text('{"job":"urn:babel:a:b","trace_id":"t","data":{},"meta":{"lang":"go"}}\n{"job":"a"}\n{\n')
    given = ["validate", str(bodies), "--lake", run.root, "--max-quarantine-rate", "0.1"]
    assert CliRunner().invoke(pipeline, given).exit_code == 3
    start, end = events()
    assert states([start, end]) == ["START", "COMPLETE"], "the job is done, whatever its data are worth"
    assert rows(end) == {"accepted": 0, "quarantined": 3}
    statistics = end["inputs"][0]["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (3, bodies.stat().st_size, 1)

    CliRunner().invoke(pipeline, given)
    assert rows(events()[-1]) == {"accepted": None, "quarantined": None}, "nothing was written"

    for arguments in ("erase", "x"), ("message", "x"), ("erase", "x", "--dry-run"):
        CliRunner().invoke(pipeline, [*arguments, "--lake", run.root])
    assert [each["job"]["name"] for each in events()] == ["babelgate.pipeline.erase"] * 2, "the others write nothing"


def test_what_fails_says_why_without_secrets(events):
    with pytest.raises(JobFailed), job_run("compact", "Merge.\n\nMore.", OPTIONS):
        raise JobFailed("s3a://key:secret@bucket/lake is gone")
    start, end = events()
    assert states([start, end]) == ["START", "FAIL"]
    assert end["run"]["facets"]["errorMessage"]["message"] == "s3a://key:***@bucket/lake is gone"
    assert end["job"]["facets"]["documentation"]["description"] == "Merge."
    for error, state in (ValueError("x"), "FAIL"), (KeyboardInterrupt(), "ABORT"), (QualityBroken("x"), "COMPLETE"):
        with pytest.raises(type(error)), job_run("compact", "", OPTIONS):
            raise error
        assert states(events()) == ["START", state]


def test_an_endless_run_is_one_run(events):
    with job_run("ingest", "", {**OPTIONS, "every": object()}, running_seconds=0) as note:
        note({"records": 3, "corrupt": 1, "files": 2})
        note({"records": 5, "corrupt": 1, "files": 3})
    found = events()
    assert states(found) == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert {each["job"]["facets"]["jobType"]["processingType"] for each in found} == {"STREAMING"}
    assert [rows(each)["journal"] for each in found] == [None, 3, 5, 5]
    with job_run("ingest", "", {**OPTIONS, "every": object()}) as note:
        note({})
    assert states(events()) == ["START", "COMPLETE"], "rounds are told once a minute"


def test_a_sending_run_writes_queues(events):
    options = {"lake": "lake", "url": "http://user:secret@gateway:8080/at/", "origin": "quarantined", "inputs": ()}
    counts = {"counts": {"selected": 4}, "by_queue": {"orders": {"accepted": 3, "rejected": 1}}}
    with job_run("redrive", "", options) as note:
        note(counts)
    end = events()[-1]
    assert names(end["inputs"]) == {"quarantined"}
    queue, ledger = end["outputs"]
    assert (queue["namespace"], queue["name"]) == ("http://gateway:8080", "at/queues/orders")
    assert queue["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert ledger["outputFacets"]["outputStatistics"]["rowCount"] == 4
    with job_run("redrive", "", options) as note:
        note({**counts, "unchanged": True})
    (ledger,) = events()[-1]["outputs"]
    assert "outputStatistics" not in ledger["outputFacets"], "nothing was sent"
    with job_run("redrive", "", {**options, "dry_run": True}) as note:
        note(counts)
    assert events() == []


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("/data/lake/", "file", "/data/lake"),
        ("file:/data/a%20lake", "file", "/data/a lake"),
        ("file:///data/lake", "file", "/data/lake"),
        ("/data/a:b", "file", "/data/a:b"),
        ("s3a://bucket/lake/journal/v=1", "s3://bucket", "lake/journal/v=1"),
        ("s3://key:secret@bucket/", "s3://bucket", "/"),
        ("gs://bucket/lake", "gs://bucket", "lake"),
        ("hdfs://node:8020/lake", "hdfs://node:8020", "/lake"),
        ("abfss://files@name.dfs.core.windows.net/lake", "abfss://files@name.dfs.core.windows.net", "lake"),
        ("kafka://broker:9092/journal?secret=x", "kafka://broker:9092", "journal"),
    ],
)
def test_names_are_those_of_the_specification(url, namespace, name):
    assert dataset_name(url) == (namespace, name)


def test_namespace_and_parent_come_from_the_environment(monkeypatch, events):
    parent = "0190b6f2-5d0c-7b1e-8f0e-2f6b1c9d3a11"
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/nightly.metrics/{parent}")
    with job_run("compact", "", OPTIONS):
        pass
    event = events()[0]
    assert event["job"]["namespace"] == "shop"
    assert event["run"]["facets"]["parent"]["run"]["runId"] == parent
    assert event["run"]["facets"]["parent"]["job"] == {"namespace": "airflow", "name": "nightly.metrics", "facets": {}}
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "nonsense")
    with job_run("compact", "", OPTIONS):
        pass
    assert "parent" not in events()[0]["run"]["facets"]


def test_http(monkeypatch):
    posted = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, format, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        with job_run("compact", "", OPTIONS):
            pass
        server.shutdown()
        thread.join()
    assert [path for path, _ in posted] == ["/api/v1/lineage"] * 2
    assert states([event for _, event in posted]) == ["START", "COMPLETE"]
    for _, event in posted:
        check(event)


def command(environment, *arguments):
    """A command in a process. The lake has no dataset, so that it fails."""
    given = [sys.executable, *(arguments or ("-m", "babelgate")), "pipeline", "erase", "x", "--lake", "lake"]
    done = subprocess.run(
        given, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 1, done.stderr
    assert "lake has no dataset" in done.stderr
    return done.stderr


def test_a_server_that_never_answers_delays_a_job_by_seconds():
    """The client itself would wait longer than the test."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = {"TYPE": "http", "URL": url, "TIMEOUT": "600"}
        said = command({f"OPENLINEAGE__TRANSPORT__{name}": value for name, value in settings.items()})
    assert "warning: an OpenLineage event was not sent: no answer within 5 s" in said


def test_no_server_and_wrong_settings_are_warned_of(monkeypatch, tmp_path):
    assert "warning: an OpenLineage event was not sent" in command(
        {"OPENLINEAGE__TRANSPORT__TYPE": "file", "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": "no/folder"}
    )
    assert "warning: no OpenLineage events: " in command({"OPENLINEAGE__TRANSPORT__TYPE": "pigeon"})


def test_values_of_variables_are_not_shown():
    """The client itself logs one that is no JSON."""
    said = command(
        {"OPENLINEAGE__TRANSPORT__TYPE": "pigeon", "OPENLINEAGE__TRANSPORT__AUTH": '{"apiKey": "confidential"'}
    )
    assert "confidential" not in said and "warning: no OpenLineage events: " in said


def test_the_environment_stays_as_it_was(monkeypatch, events):
    """Spark and what it starts inherit it."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "confidential")
    before = dict(os.environ)
    with job_run("compact", "", OPTIONS):
        assert dict(os.environ) == before


@pytest.mark.parametrize("text", [None, "transport: [", "transport: {}"])
def test_a_configuration_without_a_transport_is_warned_of(monkeypatch, tmp_path, capsys, text):
    path = tmp_path / "other.yml"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(path))
    with job_run("compact", "", OPTIONS):
        pass
    assert capsys.readouterr().err.startswith("warning: the client of OpenLineage finds no transport")
    path.write_text("transport: {type: console}")
    with job_run("compact", "", OPTIONS):
        # As while Spark runs.
        while not (first := capsys.readouterr().err):
            time.sleep(0.01)
        monkeypatch.setattr(sys, "stderr", later := io.StringIO())
    assert states([json.loads(first), json.loads(later.getvalue())]) == ["START", "COMPLETE"]


@pytest.mark.parametrize(("at", "error"), [("is_file", PermissionError), ("expanduser", RuntimeError)])
def test_a_configuration_that_cannot_be_looked_for_stops_no_job(monkeypatch, at, error):
    def fail(path):
        raise error(path)

    monkeypatch.setattr(Path, at, fail)
    done = []
    with job_run("compact", "", OPTIONS):
        done.append(1)
    assert done


def test_options_that_are_not_understood_stop_no_job(events, capsys):
    done = []
    with job_run("compact", "", {}):
        done.append(1)
    assert done and "warning: no OpenLineage events: KeyError" in capsys.readouterr().err


def test_nothing_is_imported_where_nothing_is_configured(tmp_path):
    code = (
        "import sys; from babelgate.__main__ import main\n"
        "try: main()\nfinally: print('loaded:', [each for each in sys.modules if 'openlineage' in each.split('.')])"
    )
    program = tmp_path / "program.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, str(program), "pipeline", "erase", "x", "--lake", "lake"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "loaded: []\n", done.stderr
    assert "OpenLineage" not in done.stderr


def test_a_missing_client_is_told(tmp_path, monkeypatch):
    home = str(tmp_path)
    (tmp_path / "openlineage.yml").write_text("transport: {type: console}\n")
    arguments = ("-m", "tests.harness.without", home, "openlineage")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert "its client is not installed: install the extra openlineage" in command({}, *arguments)
    assert "OpenLineage" not in command({"OPENLINEAGE_DISABLED": "true"}, *arguments)


def test_options_and_facts_of_jobs_are_known():
    """A command that writes is in the list."""
    from babelgate.pipeline.lineage.datasets import _JOBS

    silent = {"message", "trace", "tables", "maintain"}
    assert {each.name for each in pipeline.commands.values() if isinstance(each, click.Command)} - silent == set(_JOBS)
