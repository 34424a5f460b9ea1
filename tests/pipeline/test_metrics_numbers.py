"""Compares every number of ``metrics`` with a second computation, over generated histories."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babelgate.pipeline.metrics.events import payload, rates, throughput
from babelgate.pipeline.metrics.histogram import bucket_of
from babelgate.pipeline.metrics.lifecycles import lifecycle, lifecycle_at, with_message_dates
from babelgate.pipeline.metrics.messages import latency, latency_hist, open_messages, traces
from tests.pipeline.compared import SPANS, check, nonsense
from tests.pipeline.histories import DAY, START, Days, frame


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
    return {name: [each.asDict(recursive=True) for each in frame.collect()] for name, frame in made.items()}


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


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_histories_that_make_no_sense(spark, tmp_path_factory, seed):
    """Of 60 to 120 messages with one to nine events each. Hypothesis draws the seed alone: it would draw the thousands
    of facts again and again, because they are more than it keeps of an example."""
    rows = nonsense(seed)
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
