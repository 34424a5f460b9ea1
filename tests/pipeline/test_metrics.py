"""``pipeline metrics``: a date is recomputed if an event touches it, and only then."""

from __future__ import annotations

from datetime import date

import pytest
from pyspark.sql import functions as f

from babelgate.pipeline.metrics import lifecycles
from babelgate.pipeline.metrics.dates import days_before
from babelgate.pipeline.metrics.stages import DATASETS
from tests.pipeline import oracle
from tests.pipeline.compared import check
from tests.pipeline.histories import DAY, START, Days, frame, land, row
from tests.pipeline.ingested import Run

FACTS = {"job": "urn:j", "lang": "go", "trace_id": "late", "message_id": "late", "created_at": START + 5, "bytes": 7}


@pytest.fixture(params=[("spark", "duckdb"), ("duckdb", "spark")], ids=" and ".join)
def run(spark, tmp_path, request):
    """Each engine goes on from the runs of the other; either makes the first one."""
    return Run(spark, tmp_path, request.param)


def measured(run):
    return {name: [each.asDict(recursive=True) for each in run.store.read(name).collect()] for name in DATASETS}


def runs_of(run, dataset):
    """By date, the run that stated it."""
    return run.store.manifest(dataset)["parts"][dataset]


def test_a_late_event_restates_what_it_touches(run):
    rows = land(run.landing, Days(150, days=3).rows(), "a")
    rows += land(run.landing, [row("accepted", START + 9, 0, **FACTS)], "b")
    # Of this one the first event comes last; until then nobody knows when it was created.
    rows += land(run.landing, [row("redriven", START + 20 * DAY, 0, message_id="moved", to_queue="mended")], "d")
    run()
    first = run(command="metrics")
    assert (first["unchanged"], first["at_least"], first["not_followed"]) == (False, False, [])
    assert first["counts"]["accepted"] == sum(each["event"] == "accepted" for each in rows)
    check(measured(run), rows, (), max(each["at"] for each in rows))

    again = run(command="metrics")
    assert again["unchanged"]
    assert again["run_id"] == first["run_id"]
    run(command="compact")
    assert run(command="metrics")["unchanged"], "the same records in other files"
    assert run.store.runs("throughput") == [first["run_id"]]

    late = [row("delivered", START + 2 * DAY + 1, 0, **FACTS), row("acked", START + 2 * DAY + 2, 0, **FACTS)]
    late.append(row("delivered", START + 2 * DAY + 3, 0, **{**FACTS, "message_id": "moved"}))
    rows += land(run.landing, late, "c")
    run()
    second = run(command="metrics")
    assert second["dates"] == ["2026-01-03"]
    assert "2026-01-01" in second["message_dates"]
    of_events, of_messages = runs_of(run, "throughput"), runs_of(run, "latency_hist")
    assert {day for day, by in of_events.items() if by == second["run_id"]} == {"2026-01-03"}
    assert {of_events["2026-01-01"], of_events["2026-01-02"]} == {first["run_id"]}
    assert {day for day, by in of_messages.items() if by == second["run_id"]} | {"2026-01-21"} == set(
        second["message_dates"]
    ), "of the last one, nothing is left there"
    check(measured(run), rows, (), max(each["at"] for each in rows))

    for name in DATASETS[1:]:
        run.store.point([name], first["run_id"])
    assert run(command="metrics")["unchanged"]
    assert {run.store.current(name) for name in DATASETS} == {second["run_id"]}, "it was killed, and all is read now"


def test_a_journal_without_redrives_gives_the_same_without_the_work_for_them(run, monkeypatch):
    rows = land(run.landing, (each for each in Days(150, days=3).rows() if each["event"] != "redriven"), "a")
    run()
    for name in ("_with_home", "without_created_at"):
        monkeypatch.setattr(lifecycles, name, None)
    run(command="metrics")
    check(measured(run), rows, (), max(each["at"] for each in rows))


def test_a_survey_finds_what_needs_more_work(spark, tmp_path):
    late = row("acked", START + DAY + 7, 2, **FACTS)
    plain = [row("accepted", START + 9, 1, **FACTS), late, row("poison", START + DAY + 8, 3)]
    blank = row("delivered", START + 9, 4, **{**FACTS, "created_at": None})
    home = row("redriven", START + 9, 5, to_queue="orders", **FACTS)
    moved = row("redriven", START + 9, 6, to_queue="mended", **FACTS)
    found = {}
    for name, more in {"plain": [], "blank": [blank], "home": [home], "moved": [moved]}.items():
        journal = frame(spark, tmp_path / name, plain + more)
        found[name] = lifecycles.survey(journal, f.col("date") == date(2026, 1, 2))
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    assert found["plain"] == ({first}, {first: START + 9, second: START + DAY + 8}, False, False)
    assert found["home"] == found["plain"]
    assert found["blank"] == found["plain"]._replace(lacks_created_at=True)
    assert found["moved"] == found["plain"]._replace(has_moves=True)


def test_what_is_not_stated_again_stays(run):
    rows = land(run.landing, Days(100, days=2).rows(), "a")
    run()
    first = run(command="metrics")
    for name in DATASETS:
        url = f"{run.store.folder(name, first['run_id'])}/_manifest.json"
        run.store.files.write(url, run.store.files.read(url).replace(b'"code_version": "', b'"code_version": "0.'))
    second = run("--to", "2026-01-01", command="metrics")
    assert second["dates"] == ["2026-01-01"], "another version has stated it"
    check(measured(run), rows, (), second["as_of"])
    check_open(run, rows, first["as_of"])

    rows += land(run.landing, [row("accepted", START + DAY - 2, 0, **{**FACTS, "created_at": START + DAY - 3})], "b")
    run()
    third = run("--force", command="metrics")
    assert third["dates"][-1] > "2026-01-02"
    check(measured(run), rows, (), third["as_of"])
    check_open(run, rows, START + DAY - 2)


def test_what_was_stated_again_is_removed_in_time(run):
    rows = land(run.landing, Days(100, days=2).rows(), "a")
    run()
    first = run(command="metrics")
    killed = f"{run.store.folder('rates')}/run={'0' * 16}"
    run.store.files.write(f"{killed}/date=2026-01-01/half.parquet", b"PAR1")
    more = [row("accepted", START + DAY + 7, 0, **{**FACTS, "message_id": "m", "created_at": START + DAY + 6})]
    rows += land(run.landing, more, "b")
    run()
    second = run(command="metrics")
    assert second["removed"] == [killed.removeprefix(f"{run.store.root}/")]
    assert {first["run_id"], second["run_id"]} == set(runs_of(run, "throughput").values())
    assert run(command="metrics")["removed"] == [], "somebody may still read what the first run stated"

    removed = run("--retain-hours", "0", command="metrics")["removed"]
    assert removed
    assert all(folder.partition("/run=")[2].startswith(f"{first['run_id']}") for folder in removed)
    for name in DATASETS:
        kept = [each.url for each in run.store.files.walk(run.store.folder(name)) if each.url.endswith(".parquet")]
        assert {url.rpartition("/")[0] for url in kept} == {
            f"{run.store.folder(name, by)}/date={day}" for day, by in runs_of(run, name).items()
        }
    check(measured(run), rows, (), max(each["at"] for each in rows))

    again = run("--force", "--retain-hours", "0", command="metrics")
    assert set(runs_of(run, "throughput").values()) == {again["run_id"]}
    run("--retain-hours", "0", command="metrics")
    assert {run_id for name in DATASETS for run_id in run.store.runs(name)} == {again["run_id"]}
    check(measured(run), rows, (), max(each["at"] for each in rows))


def check_open(run, rows, as_of):
    still = run.store.read("open").where(f"as_of = {as_of}").collect()
    found = {(each.queue, each.state, each.from_seconds, each.below_seconds): each.n for each in still}
    assert found == oracle.still_open(rows, as_of)


def test_there_is_no_day_before_the_first():
    assert days_before(date(2026, 1, 1), 31) == date(2025, 12, 1)
    assert days_before(date(2026, 1, 1), 10**9) == date.min


def test_what_is_missing_makes_it_at_least(run):
    rows = [row("accepted", START + 1000 * number, 0, **{**FACTS, "message_id": f"m{number}"}) for number in range(200)]
    kept = land(run.landing, rows[:90], "a") + land(run.landing, rows[100:], "a", first_seq=101)
    run()
    summary = run("--lookback-days", "2", command="metrics")
    assert summary["at_least"]
    assert "at least 190 accepted" in run.output
    spans = [(kept[89]["at"], kept[90]["at"])]
    check(measured(run), kept, spans, kept[-1]["at"])

    land(run.landing, rows[90:100], "a", first_seq=91)
    run()
    assert not run(command="metrics")["at_least"]
    check(measured(run), rows_of(rows), (), rows[-1]["at"])

    old = {**FACTS, "created_at": START - 40 * DAY, "message_id": "old"}
    land(run.landing, [row("delivered", START + 60_000, 0, **old)], "b")
    run()
    assert run("--lookback-days", "2", command="metrics")["not_followed"] == ["2025-11-22"]
    assert "older than --lookback-days" in run.output
    run("--from", "2026-01-02", code=0, command="metrics")
    assert "Nothing has changed" in run.output

    # On the earliest day that is followed, a message of a producer whose clock is ahead.
    ahead = {**FACTS, "created_at": START + 1, "message_id": "ahead"}
    land(run.landing, [row("accepted", START - 2, 0, **ahead), row("acked", START + 2 * DAY, 0, **ahead)], "c")
    run()
    run(command="metrics")
    land(run.landing, [row("acked", START + 2 * DAY + 1, 0, **ahead)], "d")
    run()
    assert run("--lookback-days", "2", command="metrics")["dates"] == ["2026-01-03"]
    (life,) = run.store.read("lifecycle").where("message_id = 'ahead'").collect()
    assert (life.accepted_at, life.acks) == (START - 2, 2)


def rows_of(rows):
    return [{**each, "node": "a", "seq": number} for number, each in enumerate(rows, 1)]


def test_without_a_journal_there_is_nothing_to_measure(run):
    run(code=1, command="metrics")
    assert "run `babelgate pipeline ingest` first" in run.output
    land(run.landing, Days(3).rows(), "a")
    run()
    run("--from", "2027-01-01", code=1, command="metrics")
    assert "no journal of these dates" in run.output
    run("--from", "2027-01-01", "--to", "2026-01-01", code=2, command="metrics")
