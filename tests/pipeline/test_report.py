"""``pipeline report``: its numbers, from the journal through ``metrics``, and those of ``validate``."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from tests.pipeline.landing import DAY, Landing
from tests.pipeline.sample_report import HOSTILE

HOUR = 3_600_000


def run(*arguments, code=0):
    result = CliRunner().invoke(pipeline, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def root(spark, tmp_path_factory):
    """Three days, of which the second is quiet: two queues, a message that is done at the second attempt, one that is
    dead, one that is open, four records that are missing."""
    folder = tmp_path_factory.mktemp("report")
    landing = Landing(folder)
    landing.event("accepted", 0, "m1")
    landing.event("delivered", 1_000, "m1")
    landing.event("nacked", 2_000, "m1")
    landing.event("delivered", 12_000, "m1", attempts=1)
    landing.event("acked", 13_000, "m1", attempts=1)
    facts = {"queue": "emails", "job": HOSTILE, "lang": "go", "broker": "other"}
    landing.event("accepted", HOUR, "m2", created_at=landing.at(HOUR), **facts)
    landing.event("delivered", HOUR + 4_000, "m2", created_at=landing.at(HOUR), **facts)
    landing.event("rejected", HOUR + 5_000, "m2", created_at=landing.at(HOUR), **facts)
    landing.event("dead_lettered", HOUR + 5_000, "m2", created_at=landing.at(HOUR), **{**facts, "outcome": "failed"})
    landing.event("poison", HOUR + 6_000, None, queue="emails", job=None, lang=None, broker="other", outcome="bad_json")
    landing.event("accepted", 2 * DAY, "m3", created_at=landing.at(2 * DAY), seq=15)
    landing.event("delivered", 2 * DAY + 9_000, "m3", created_at=landing.at(2 * DAY), seq=16)
    landing.event("accepted", 2 * DAY + HOUR, "m4", created_at=landing.at(2 * DAY + HOUR), seq=17)
    landing.event("delivered", 2 * DAY + HOUR + 2_000, "m4", created_at=landing.at(2 * DAY + HOUR), seq=18)
    landing.event("acked", 2 * DAY + HOUR + 3_000, "m4", created_at=landing.at(2 * DAY + HOUR), seq=19)
    landing.land()
    bodies = folder / "bodies.ndjson"
    meta = '"meta":{"id":"i","queue":"q","lang":"%s","schema_version":1,"created_at":5}'
    good = '{"job":"urn:a","trace_id":"t","data":{},' + meta + ',"attempts":0}\n'
    bodies.write_text(
        good % "php"
        + good % "php"
        + good.replace('"trace_id":"t",', "") % "php"
        + good % "go"
        + "{\n"
        + good.replace("{},", '{"n":"7"},') % "go"
    )
    (folder / "schemas").mkdir()
    (folder / "schemas" / "a.json").write_text(json.dumps({"$id": "urn:a", "properties": {"n": {"type": "integer"}}}))
    root = folder / "root"
    run("ingest", landing.folder, "--lake", root)
    run("validate", bodies, "--lake", root, "--schemas", folder / "schemas")
    run("metrics", "--lake", root)
    return root


@pytest.fixture(scope="module")
def figures(root):
    run("report", "--lake", root, "--output", root / "all.json")
    return json.loads((root / "all.json").read_bytes())


def by_name(groups, *measures):
    return {group["name"]: tuple(group[measure] for measure in measures) for group in groups}


def test_the_total(figures):
    total = figures["total"]
    expected = {"accepted": 4, "delivered": 5, "retried": 1, "acked": 2, "nacked": 1, "rejected": 1, "dead_lettered": 2}
    assert {name: total[name] for name in expected} == expected
    assert (total["retry_rate"], total["dead_letter_rate"], total["poison"]) == (1 / 5, 2 / 4, 1)
    assert (total["wait_max_ms"], total["e2e_max_ms"]) == (9_000, 13_000)
    assert total["wait_p50_ms"] == pytest.approx(2_000, rel=0.011)
    assert total["wait_p95_ms"] == pytest.approx(9_000, rel=0.011)
    assert (figures["first_date"], figures["last_date"]) == ("2026-01-01", "2026-01-03")


def test_by_queue_job_language_and_broker(figures):
    measures = "accepted", "delivered", "acked", "dead_lettered"
    assert by_name(figures["queues"], *measures) == {"orders": (3, 4, 2, 0), "emails": (1, 1, 0, 2)}
    assert by_name(figures["jobs"], *measures) == {
        "urn:babel:orders:created": (3, 4, 2, 0),
        HOSTILE: (1, 1, 0, 1),
        None: (0, 0, 0, 1),
    }
    assert by_name(figures["languages"], *measures) == {"php": (3, 4, 2, 0), "go": (1, 1, 0, 1), None: (0, 0, 0, 1)}
    assert by_name(figures["brokers"], "wait_max_ms") == {"main": (9_000,), "other": (4_000,)}


def test_the_trend_has_every_day(figures):
    assert figures["unit"] == "day"
    assert [(each["name"], each["accepted"], each["wait_max_ms"]) for each in figures["trend"]] == [
        ("2026-01-01", 2, 4_000),
        ("2026-01-02", 0, None),
        ("2026-01-03", 2, 9_000),
    ]


def test_what_needs_attention(figures):
    assert figures["dead_letters"] == [
        {"reason": "failed", "queue": "emails", "count": 1},
        {"reason": "poison: bad_json", "queue": "emails", "count": 1},
    ]
    (still,) = figures["open"]
    assert (still["queue"], still["state"], still["count"]) == ("orders", "leased", 1)
    assert (figures["lost"], figures["in_holes"], figures["total"]["at_least"]) == (0, 4, True)
    assert figures["checked"] == [
        {"lang": "php", "checked": 3, "quarantined": 1},
        {"lang": "go", "checked": 2, "quarantined": 1},
        {"lang": None, "checked": 1, "quarantined": 1},
    ]
    assert [(each["lang"], each["count"]) for each in figures["violations"]] == [
        ("go", 1),
        ("php", 1),
        (None, 1),
    ]
    assert figures["schema_violations"] == [
        {"job": "urn:a", "pointer": "/data/n", "code": "schema_violation", "bodies": 1}
    ]


def test_the_most_frequent_errors_name_messages(figures):
    assert figures["errors"] == [
        {
            "event": "dead_lettered",
            "reason": "failed",
            "queue": "emails",
            "job": HOSTILE,
            "messages": 1,
            "examples": ["m2"],
        },
        {
            "event": "nacked",
            "reason": None,
            "queue": "orders",
            "job": "urn:babel:orders:created",
            "messages": 1,
            "examples": ["m1"],
        },
    ], "poison without an id is in no lifecycle"


def test_the_last_day_is_compared_with_those_before(root, figures, tmp_path):
    assert [(day["name"], day["accepted"], day["acked"]) for day in figures["comparison"]] == [("2026-01-03", 2, 1)], (
        "the second day is quiet, and there was none a week before"
    )
    days = "--from", "2026-01-02", "--to", "2026-01-02"
    told = run("report", "--lake", root, "--output", tmp_path / "quiet.json", *days, code=1)
    assert "has no events" in told.stderr


def test_a_target_that_is_missed(root, tmp_path):
    output = tmp_path / "targets.json"
    arguments = "report", "--lake", root, "--output", output, "--site", "Shop", "--summary", tmp_path / "summary.json"
    missed = run(*arguments, "--target", "p99=2s", "--target", "emails:wait_max=4s", code=3)
    assert missed.stderr == "Error: orders: done p99 is 13 s, more than 2 s\n"
    made = json.loads(output.read_bytes())
    assert made["site"] == "Shop"
    assert [(each["queue"], each["target"], each["met"]) for each in made["targets"]] == [
        ("orders", "e2e_p99_ms", False),
        ("emails", "e2e_p99_ms", None),
        ("emails", "wait_max_ms", True),
    ]
    assert json.loads((tmp_path / "summary.json").read_text())["targets_missed"] == 1
    run(*arguments, "--target", "p99=14s")
    shown = run(*arguments, "--target", "p99=2", code=2)
    assert "'p99=2' is not [QUEUES:]NAME=TIME" in shown.stderr
    assert "no http URL" in run(*arguments, "--console", "ftp://x", code=2).stderr


def test_one_day_is_told_by_the_hour(root):
    run("report", "--lake", root, "--output", root / "day.json", "--from", "2026-01-03", "--to", "2026-01-03")
    figures = json.loads((root / "day.json").read_bytes())
    assert figures["unit"] == "hour"
    assert [group["name"] for group in figures["trend"]] == [f"2026-01-03T{hour:02d}" for hour in range(24)]
    assert [group["accepted"] for group in figures["trend"]] == [1, 1, *[0] * 22]
    assert figures["total"]["accepted"] == 2
    assert [each["count"] for each in figures["open"]] == [1]
    run("report", "--lake", root, "--output", root / "day.json", "--to", "2026-01-01")
    assert json.loads((root / "day.json").read_bytes())["open"] is None, (
        "nobody has measured that, which is not nothing"
    )


def test_the_same_numbers_in_every_form_and_the_same_bytes_again(root, figures):
    shown = run("report", "--lake", root, "--output", root / "report.html", "--note", "<b>Note</b>")
    page = (root / "report.html").read_text()
    assert "2026-01-01 to 2026-01-03" in shown.output
    assert "&lt;b&gt;Note&lt;/b&gt;" in page and HOSTILE not in page
    assert "4 never arrived" in page
    assert '<td data-head="Place">/data/n</td><td data-head="Code">schema_violation</td>' in page
    run("report", "--lake", root, "--output", root / "report.csv", "--summary", root / "summary.json")
    assert "total,,wait_max_ms,9000\n" in (root / "report.csv").read_text()
    summary = json.loads((root / "summary.json").read_text())
    assert (summary["bytes"], summary["at_least"]) == ((root / "report.csv").stat().st_size, True)
    before = (root / "all.json").read_bytes()
    run("report", "--lake", root, "--output", root / "all.json")
    assert (root / "all.json").read_bytes() == before


def test_it_says_what_is_not_there(root, tmp_path):
    shown = run("report", "--lake", root, "--output", tmp_path / "r.html", "--from", "2027-01-01", code=1)
    assert "has no events from 2027-01-01 to the end" in shown.stderr
    shown = run("report", "--lake", tmp_path, "--output", tmp_path / "r.html", code=1)
    assert "has no dataset journal: run `babelgate pipeline ingest` first" in shown.stderr
    shown = run("report", "--lake", root, "--output", tmp_path / "no" / "r.json", code=2)
    assert f"Invalid value for --output: there is no folder {tmp_path / 'no'}" in shown.stderr
    shown = run("report", "--lake", root, "--from", "2026-01-02", "--to", "2026-01-01", code=2)
    assert "--from is later than --to" in shown.stderr
