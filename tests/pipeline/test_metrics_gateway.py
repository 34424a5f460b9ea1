"""``pipeline metrics`` over a real gateway's journal gives the numbers of the gateway's own metrics."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from typing import Any

import pytest

from babelgate.pipeline.metrics.stages import DATASETS
from tests.brokers.sqlite.harness import SqliteBroker
from tests.harness.gateway import gateway
from tests.pipeline.histories import DAY
from tests.pipeline.ingested import Run

QUEUES = ("orders", "mails")
PLAIN = {
    "accepted": "babelgate_published_total",
    "delivered": "babelgate_delivered_total",
    "redriven": "babelgate_redriven_total",
    "lease_expired": "babelgate_lease_expired_total",
    "poison": "babelgate_poison_total",
}


def post(client, path, body=None):
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def received(client, queue, count, lease_seconds=60):
    asked = {"max_messages": count, "lease_seconds": lease_seconds, "wait_seconds": 10}
    return [each["ack_token"] for each in post(client, f"queues/{queue}/messages:receive", asked)["messages"]]


async def traffic(client, broker):
    """Messages of both queues, and all that can go wrong with them."""
    for queue, count in zip(QUEUES, (40, 9), strict=True):
        drafts = [
            {"job": f"urn:babel:{queue}:{number % 3}", "data": {"n": "x" * number}, "meta": {"lang": "go"}}
            for number in range(count)
        ]
        post(client, f"queues/{queue}/messages:batch", drafts)
    lapsing = received(client, "mails", 2, lease_seconds=1)
    asked = time.monotonic()
    await broker.inject("orders", b"no envelope", b'{"job":"urn:a"}')
    first, second, third, *rest = received(client, "orders", 40)
    post(client, "queues/orders/messages:nack", {"ack_tokens": [first, second], "delay_seconds": 0})
    post(client, "queues/orders/messages:reject", {"ack_tokens": [third, rest.pop()], "error": {"message": "no"}})
    post(client, "queues/orders/messages:ack", {"ack_tokens": rest})
    post(client, "queues/orders/messages:ack", {"ack_tokens": received(client, "orders", 10)})
    post(
        client, "queues/orders/dead-letters:redrive", {"limit": 1, "to_queue": "mails", "filter": {"reason": "failed"}}
    )
    await asyncio.sleep(max(0, 1.1 - (time.monotonic() - asked)))
    mails = received(client, "mails", 40)
    assert len(lapsing) == 2
    assert len(mails) == 10
    post(client, "queues/mails/messages:ack", {"ack_tokens": mails[:-1]})


def counters(text):
    """By name and queue, with what else is in the labels."""
    found: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    for name, labels, value in re.findall(r"^(babelgate_\w+)\{(.*?)\} (\S+)$", text, re.M):
        told = dict(re.findall(r'(\w+)="(.*?)"', labels))
        queue = told.pop("queue", None)
        told.pop("broker", None)
        found[name][queue, *told.values()] = float(value)
    return found


async def test_the_sums_are_those_of_the_gateway(spark, tmp_path):
    run = Run(spark, tmp_path)
    broker = SqliteBroker(tmp_path)
    config = {"brokers": {"local": broker.url}, "default": {"broker": "local"}}
    with gateway(tmp_path, {**config, "journal": {"landing": str(run.landing)}}) as process:
        with process.client() as client:
            await traffic(client, broker)
            told = counters(client.get("metrics").text)
        assert process.stop() == 0
    run()
    summary = run(command="metrics")
    tables = {name: run.store.read(name) for name in DATASETS}
    days = tables["throughput"].where("grain = 'day'")
    sums = {
        row.queue: row
        for row in days.groupBy("queue").sum("nacked", "rejected", "acked", "dead_lettered", *PLAIN).collect()
    }
    for queue in QUEUES:
        for column, metric in PLAIN.items():
            assert sums[queue][f"sum({column})"] == told[metric].get((queue,), 0), (queue, column)
        for outcome in ("acked", "nacked", "rejected"):
            assert sums[queue][f"sum({outcome})"] == told["babelgate_settled_total"][queue, outcome]
        by_reason = {reason: told["babelgate_dead_lettered_total"][queue, reason] for reason in ("failed", "poison")}
        assert sums[queue]["sum(dead_lettered)"] == sum(by_reason.values())
    assert told["babelgate_dead_lettered_total"]["orders", "poison"] == 2
    assert told["babelgate_lease_expired_total"]["mails",] == 2
    check_times(tables, told)
    rows = tables["lifecycle"].groupBy("outcome").count().collect()
    assert {row.outcome: row["count"] for row in rows} == {"acked": 47, "dead_lettered": 1, "open": 1}
    moved = tables["lifecycle"].where("queue = 'orders' and last_queue = 'mails'").collect()
    assert [hop.event for hop in moved[0].hops][:5] == [
        "accepted",
        "delivered",
        "dead_lettered",
        "rejected",
        "redriven",
    ]
    (left,) = tables["open"].collect()
    assert (left.queue, left.state, left.n) == ("mails", "leased", 1)
    assert not summary["at_least"]


def check_times(tables, told):
    """The gateway counts an ack where it happened, a life begins where the message was first."""
    ends = tables["latency"].where("grain = 'day' and kind = 'end_to_end'")
    n, total = ends.selectExpr("sum(n)", "sum(sum_ms)").first()
    count = sum(value for key, value in told["babelgate_end_to_end_seconds_count"].items())
    seconds = sum(value for key, value in told["babelgate_end_to_end_seconds_sum"].items())
    assert n == count
    # The gateway's metrics read its clock on their own: a ms or two later than the journal, for every message.
    assert total / 1000 == pytest.approx(seconds, abs=0.05 * count)
    assert 0 < total < DAY
