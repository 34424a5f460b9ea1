"""``pipeline message`` and ``pipeline trace`` find messages in the journal."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.journal.reader import existing
from tests.pipeline.landing import DAY, START, Landing

HOSTILE = "urn:\x1b[31m:\x9b[bold]red\U000e0001"


@pytest.fixture(scope="module")
def root(spark, tmp_path_factory):
    """A journal in which messages are in every state, and ten records of which are missing."""
    folder = tmp_path_factory.mktemp("where")
    landing = Landing(folder)
    landing.event("accepted", 0, "done")
    landing.event("delivered", 1_500, "done", lease_seconds=60.0)
    landing.event("nacked", 2_500, "done")
    landing.event("delivered", 12_500, "done", attempts=1, lease_seconds=60.0)
    landing.event("acked", 13_000, "done", attempts=1, trace_id=None)
    landing.event("accepted", 13_000, "child", queue="emails", job="urn:babel:mail:send", lang="go")
    landing.event("delivered", 14_000, "child", queue="emails", job="urn:babel:mail:send", lease_seconds=30.0)
    landing.event("accepted", 20_000, "dead", trace_id="trace-2", job=HOSTILE)
    landing.event("delivered", 21_000, "dead", trace_id="trace-2")
    landing.event("dead_lettered", 22_000, "dead", trace_id="trace-2", outcome="unknown_urn")
    landing.event("rejected", 22_000, "dead", trace_id="trace-2")
    landing.event("accepted", 30_000, "moved", trace_id="trace-3")
    landing.event("dead_lettered", 31_000, "moved", trace_id="trace-3", outcome="failed")
    landing.event("redriven", 32_000, "moved", trace_id="trace-3", to_queue="repairs")
    landing.event("accepted", DAY, "late", trace_id="trace-4", seq=25)
    landing.land()
    result = CliRunner().invoke(
        pipeline, ["ingest", str(landing.folder), "--lake", str(folder / "root")], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return str(folder / "root")


@pytest.fixture(params=["duckdb", "spark"], scope="module")
def ask(request):
    """Runs a command by one engine."""

    def asked(*arguments, code=0):
        given = [*arguments, "--engine", request.param]
        result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
        assert result.exit_code == code, result.output
        assert ("starting Spark" in result.stderr) <= (request.param == "spark")
        return result

    return asked


@pytest.fixture(scope="module")
def answer(ask):
    return lambda *arguments, code=0: json.loads(ask(*arguments, "--format", "json", code=code).stdout)


@pytest.mark.parametrize(
    ("message_id", "standings"),
    [
        ("done", [("orders", "acked", 13_000, None, None)]),
        ("child", [("emails", "leased", 14_000, START + 44_000, None)]),
        ("dead", [("orders", "dead_lettered", 22_000, None, "unknown_urn")]),
        ("moved", [("repairs", "waiting", 32_000, None, None)]),
        ("late", [("orders", "waiting", DAY, None, None)]),
    ],
)
def test_where_a_message_stands(root, message_id, standings, answer):
    (told,) = answer("message", message_id, "--lake", root)["messages"]
    found = [tuple(each.values()) for each in told["standings"]]
    assert found == [(queue, state, START + since, *more) for queue, state, since, *more in standings]


def test_every_event_and_the_time_between(root, answer):
    (told,) = answer("message", "done", "--lake", root)["messages"]
    assert [(each["event"], each["after_ms"], each["attempts"]) for each in told["events"]] == [
        ("accepted", None, 0),
        ("delivered", 1_500, 0),
        ("nacked", 1_000, 0),
        ("delivered", 10_000, 1),
        ("acked", 500, 1),
    ]
    assert (told["job"], told["lang"], told["bytes"]) == ("urn:babel:orders:created", "php", 120)


def test_what_the_consumer_did_is_before_what_that_caused(root, answer):
    (told,) = answer("message", "dead", "--lake", root)["messages"]
    assert [(each["event"], each["after_ms"]) for each in told["events"][2:]] == [
        ("rejected", 1_000),
        ("dead_lettered", 0),
    ]


@pytest.mark.parametrize("condition", ["message_id = 'drone'", "trace_id = 'trace-15'"])
def test_an_id_that_is_nowhere_is_found_out_without_reading_records(spark, root, condition):
    """Both are between the least and the greatest id, so that statistics of the files cannot exclude them."""
    found = existing(spark, root).records().where(condition)
    assert found.collect() == []
    scan = found._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    assert scan.metrics().apply("numFiles").value() > 0
    assert scan.metrics().apply("numOutputRows").value() == 0


def test_a_trace_goes_across_queues(root, answer):
    found = answer("trace", "trace-1", "--lake", root)["messages"]
    assert [(each["message_id"], each["standings"][0]["queue"]) for each in found] == [
        ("done", "orders"),
        ("child", "emails"),
    ]
    assert found[0]["events"][-1]["event"] == "acked", "an event that does not know its trace belongs to it too"


def test_people_read_it(root, ask):
    shown = ask("message", "done", "--lake", root)
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert lines[0] == "message done"
    assert any(line.split()[2:4] == ["10", "s"] and "delivered" in line for line in lines)
    assert lines[-1] == "→ done: acked in orders at 2026-01-01 00:00:13.000"
    tree = ask("trace", "trace-1", "--lake", root).stdout
    assert tree.startswith("trace trace-1: 2 messages")
    assert "→ with a consumer of emails since 2026-01-01 00:00:14.000, leased until 2026-01-01 00:00:44.000" in tree


def test_what_a_message_says_is_not_obeyed_by_the_terminal(root, ask):
    for shown in (ask("message", "dead", "--lake", root).stdout, ask("trace", "trace-2", "--lake", root).stdout):
        assert "urn:\\u001b[31m:\\u009b[bold]red\\udb40\\udc01" in shown
        assert "\x1b" not in shown and "\x9b" not in shown
    shown = ask("message", "dead", "--lake", root, "--format", "json").stdout
    assert "\x9b" not in shown
    assert json.loads(shown)["messages"][0]["job"] == HOSTILE


def test_what_is_missing_is_said(root, ask, answer):
    shown = ask("message", "late", "--lake", root)
    assert "10 records are missing, between 2026-01-01 00:00:32.000 and 2026-01-02" in shown.stderr
    assert "at least this has happened" in shown.stderr
    late = answer("message", "late", "--lake", root)
    assert late["at_least"]
    assert [(each["kind"], each["records"]) for each in late["missing"]] == [("hole", 10)]
    before = answer("message", "done", "--lake", root, "--to", "2025-12-31", code=1)
    assert before["messages"] == []


def test_what_is_not_there_ends_with_1_and_says_what_was_searched(root, ask):
    shown = ask("message", "nobody", "--lake", root, code=1)
    assert shown.stdout == ""
    assert (
        "no event of message nobody in 15 records of 1 processes, from 2026-01-01 00:00:00.000 to 2026-01-02 "
        "00:00:00.000 UTC" in shown.stderr
    )
    assert "10 records are missing" in shown.stderr
    shown = ask("trace", "trace-1", "--lake", root, "--from", "2026-01-02", code=1)
    assert "in 1 records of 1 processes, from 2026-01-02 00:00:00.000 to 2026-01-02 00:00:00.000 UTC" in shown.stderr
    shown = ask("trace", "trace-1", "--lake", root, "--from", "2026-03-01", code=1)
    assert "in 0 records: the journal has none of that time" in shown.stderr


def test_usage(root, tmp_path, ask):
    assert (
        "before --from"
        in ask("message", "m", "--lake", root, "--from", "2026-01-02", "--to", "2026-01-01", code=2).stderr
    )
    assert "has no dataset journal" in ask("message", "m", "--lake", str(tmp_path), code=1).stderr


@pytest.mark.parametrize("command", [("message", "m"), ("trace", "t"), ("metrics",), ("report", "--output", "r.html")])
def test_a_topic_is_no_lake(command):
    """Whoever lands the journal there is shown how to search it, before anything is started."""
    refused = CliRunner().invoke(pipeline, [*command, "--lake", "kafka://joe:confidential@127.0.0.1:9/journal"])
    assert refused.exit_code == 2 and "starting Spark" not in refused.output
    assert "is a topic. Read its records into a lake first: babelgate pipeline ingest TOPIC" in refused.output
    assert "confidential" not in refused.output
