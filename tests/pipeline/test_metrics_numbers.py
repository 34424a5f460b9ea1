"""Compares every number of ``metrics`` with a second computation, over generated histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babelgate.pipeline.metrics.events import payload, rates, throughput
from babelgate.pipeline.metrics.histogram import bucket_of
from babelgate.pipeline.metrics.lifecycles import EVENTS, lifecycle, lifecycle_at, with_message_dates
from babelgate.pipeline.metrics.messages import latency, latency_hist, open_messages, traces
from babelgate.pipeline.storage.schemas import DATASETS
from tests.pipeline import oracle
from tests.pipeline.histories import DAY, START, Days, frame, row

OF = ("queue", "job", "lang", "broker")
AT = ("date", "grain", "at")


def table(dataset, rows, keys):
    """The rows by their keys, each with all columns of the dataset's schema and no other."""
    found = {}
    assert set(rows.columns) == set(DATASETS[dataset].columns)
    for each in rows.collect():
        values = each.asDict()
        key = tuple(values.pop(name) for name in keys)
        assert key not in found
        found[key] = values
    return found


def computed(journal, folder, spans, as_of):
    """Every dataset by its name, as the job chains them."""
    made = {"throughput": throughput(journal, spans).cache(), "payload": payload(journal, spans)}
    made["rates"] = rates(made["throughput"])
    lifecycle(with_message_dates(journal), spans).write.parquet(str(folder / "lives"))
    made["lifecycle"] = lives = journal.sparkSession.read.parquet(str(folder / "lives"))
    made["latency_hist"] = latency_hist(lives).cache()
    made["latency"] = latency(made["latency_hist"])
    made["open"] = open_messages(lifecycle_at(lives, as_of), as_of)
    made["traces"] = traces(lives)
    return made


def check(made, rows, spans, as_of):
    """Compare all datasets with what the rows come to."""
    counts = oracle.throughput(rows, spans)
    assert table("throughput", made["throughput"], (*AT, *OF)) == counts
    assert table("rates", made["rates"], (*AT, *OF)) == oracle.rates(counts)
    check_payload(table("payload", made["payload"], (*AT, "event", *OF)), oracle.payloads(rows), spans)

    lived = oracle.lives(rows, spans)
    found = table("lifecycle", made["lifecycle"], ("message_id", "created_at", "queue"))
    for life in found.values():
        life["hops"] = [tuple(hop) for hop in life["hops"]]
    assert found == lived
    check_latency(made["latency_hist"], made["latency"], oracle.latencies(lived))
    still = table("open", made["open"].where(f"as_of = {as_of}"), ("queue", "state", "from_seconds", "below_seconds"))
    assert {key: each["n"] for key, each in still.items()} == oracle.still_open(rows, as_of)
    told = table("traces", made["traces"], ("trace_id",))
    for trace in told.values():
        trace["ids"] = [hop["message_id"] for hop in trace.pop("hops")]
    assert {key: each for (key,), each in told.items()} == oracle.traces(lived)
    return lived


def check_payload(found, expected, spans):
    assert found.keys() == expected.keys()
    for key, sizes in expected.items():
        each = found[key]
        assert (each["n"], each["sum_bytes"], each["max_bytes"]) == (len(sizes), sum(sizes), max(sizes))
        assert each["at_least"] == oracle.of_row(key[1], key[2], spans)
        assert [tuple(pair) for pair in each["buckets"]] == buckets(sizes)
        for percent in (50, 95, 99):
            assert each[f"p{percent}_bytes"] == pytest.approx(oracle.percentile(sizes, percent), rel=0.0101)


def buckets(values):
    counted: defaultdict[int, int] = defaultdict(int)
    for value in values:
        counted[oracle.bucket(value)] += 1
    return sorted(counted.items())


def check_latency(histogram, percentiles, expected):
    keys = (*AT, "kind", *OF)
    by_key: defaultdict[tuple[Any, ...], dict[int, Any]] = defaultdict(dict)
    for key, cell in table("latency_hist", histogram, (*keys, "bucket")).items():
        by_key[key[:-1]][key[-1]] = cell
    found = table("latency", percentiles, keys)
    assert by_key.keys() == found.keys() == expected.keys()
    for key, told in expected.items():
        times = [ms for ms, _, _ in told]
        cells = by_key[key]
        assert sorted((bucket, cell["n"]) for bucket, cell in cells.items()) == buckets(times)
        assert sum(cell["sum_ms"] for cell in cells.values()) == sum(times)
        each = found[key]
        assert (each["n"], each["sum_ms"], each["max_ms"]) == (len(times), sum(times), max(times))
        assert each["skewed"] == sum(skewed for _, skewed, _ in told)
        assert each["at_least"] == any(at_least for _, _, at_least in told)
        for percent in (50, 95, 99):
            assert each[f"p{percent}_ms"] == pytest.approx(oracle.percentile(times, percent), rel=0.0101)


SPANS = ((START + 60_000, START + 61_000), (START + 2 * DAY, START + 2 * DAY + 5))


@pytest.fixture
def abroad(spark):
    """A session whose time zone is not UTC: dates are."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_days_of_plausible_traffic(spark, abroad, tmp_path):
    rows = list(Days(2500, seed=7).rows())
    as_of = START + 2 * DAY
    lived = check(computed(frame(spark, tmp_path, rows), tmp_path, SPANS, as_of), rows, SPANS, as_of)
    outcomes = {life["outcome"] for life in lived.values()}
    assert outcomes == {"acked", "dropped", "dead_lettered", "open"}
    assert any(life["skewed"] for life in lived.values())
    assert any(life["at_least"] for life in lived.values())
    assert any(life["last_queue"] != key[2] for key, life in lived.items())
    brokers = {life["broker"] for life in lived.values() if life["last_queue"] == "mended"}
    assert brokers == {"main", "other"}, "that of the first queue, and not that of the redrive"


FACTS: dict[str, Sequence[Any]] = {
    "event": [*EVENTS, *EVENTS, "gap", "of_a_later_version"],
    "at": [START + step * (DAY // 13) for step in range(41)],
    "node": ["n1", "n2"],
    "message_id": ["a", "a", "b", None],
    "queue": ["q1", "q2", "q/3"],
    "broker": ["main", "other", "aged", None],
    "to_queue": [None, "q1", "q2", "q4"],
    "job": ["urn:j", None],
    "lang": ["go", None],
    "trace_id": ["t", None],
    "attempts": [0, 1, None],
    "created_at": [START, START, START + DAY, None, -1, 1_767_225_600, 2**62],
    "bytes": [0, 1, 300, None],
    "outcome": ["failed", "unknown_urn", "poison", None],
}


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_histories_that_make_no_sense(spark, tmp_path_factory, seed):
    """Of 60 to 120 messages with one to nine events each. Hypothesis draws the seed alone: it would draw the thousands
    of facts again and again, because they are more than it keeps of an example."""
    chosen = Random(seed)
    rows: list[Any] = []
    for number in range(chosen.randint(60, 120)):
        for _ in range(chosen.randint(1, 9)):
            facts = {name: chosen.choice(values) for name, values in FACTS.items()}
            facts |= {name: facts[name] and f"{facts[name]}-{number}" for name in ("message_id", "trace_id")}
            rows.append(row(facts.pop("event"), facts.pop("at"), len(rows), **facts))
    folder = tmp_path_factory.mktemp("history")
    as_of = START + 4 * DAY
    check(computed(frame(spark, folder, rows), folder, SPANS, as_of), rows, SPANS, as_of)


def test_buckets_are_exact_at_every_bound(spark):
    """The logarithm is a float: it must not put a whole number on the wrong side of a bound."""
    expected = {0: -1, -1: -1, -(2**63): -1, 2**63 - 1: 2205}
    for exponent in range(2205):
        bound = Fraction(51, 50) ** exponent
        least = -(-bound.numerator // bound.denominator)
        following = Fraction(51, 50) ** (exponent + 1)
        if least < following:
            expected[least] = exponent
            expected[-(-following.numerator // following.denominator) - 1] = exponent
    assert sorted(expected)[-2] > 2**62
    numbers = spark.createDataFrame([(number,) for number in expected], "ms bigint")
    found = {each.ms: each.bucket for each in numbers.withColumn("bucket", bucket_of(numbers.ms)).collect()}
    assert found == expected
