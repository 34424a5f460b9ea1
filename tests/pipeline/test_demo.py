"""The day of the demo: its clients' counts equal the journal's, and the gateway uses its clock."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from babelgate.demo import shop
from babelgate.demo.__main__ import console_address
from babelgate.demo.day import HOUR_MS, run_day
from babelgate.demo.gateway import Clock, configuration, gateway
from babelgate.pipeline.storage.inputs import Body
from babelgate.pipeline.validate.classify import classify
from tests.harness.gateway import GatewayProcess
from tests.harness.journal import read

START = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.fixture
def levels_of_logs() -> Iterator[None]:
    """The gateway of the demo sets the levels of its process, which is that of the tests here."""
    loggers = [logging.getLogger(name) for name in (None, "babelgate", "httpx", "opentelemetry.trace.span")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("levels_of_logs")
def test_the_journal_tells_what_the_clients_were_told(tmp_path):
    clock = Clock(START)
    hours: list[float] = []
    with gateway(tmp_path, clock, shop.QUEUES) as url:
        day = run_day(url, clock, tmp_path / "sent.ndjson", 7, hours.append, hours=6)
    records = read(tmp_path / "landing")
    events = Counter(record.event for record in records)
    assert {kind: events[kind] for kind in ("accepted", "delivered", "acked", "nacked", "rejected")} == {
        kind: day.counts[kind] for kind in ("accepted", "delivered", "acked", "nacked", "rejected")
    }
    assert events["accepted"] > 300 and events["nacked"] > 3
    assert {record.lang for record in records} >= {"php", "java", "go", "node", "python"}
    assert all(START <= record.at < START + 6 * HOUR_MS for record in records)
    assert hours == sorted(hours) and hours[-1] > 5.9
    sent = (tmp_path / "sent.ndjson").read_bytes().splitlines()
    assert len(sent) > events["accepted"], "those that break the contract are there too"
    accepted = {record.message_id for record in records if record.event == "accepted"}
    kept = [body for body in sent if classify(Body(0, body, len(body)), "sent", "run").verdict == "accepted"]
    assert len(kept) == len(accepted) + day.unsent, "`validate` counts those that were not published any more"
    traced = Counter(record.trace_id for record in records if record.event == "accepted")
    assert traced[day.traces["ack"]] >= 1 and max(traced.values()) == 4, "order, payment, stock, receipt"
    served = GatewayProcess(tmp_path, configuration(tmp_path, shop.QUEUES)).start()
    try:
        with served.client() as client:
            failed = client.get(f"/traces/{day.traces['reject']}").json()
        assert failed["messages"][-1]["status"] == "dead_lettered", "the console finds it by its trace"
    finally:
        served.stop()


def test_the_console_is_where_the_environment_says(tmp_path):
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps(configuration(tmp_path, shop.QUEUES)))
    assert console_address(path, {}) == "http://127.0.0.1:8080/console/"
    elsewhere = {"BABELGATE_PORT": "9090", "BABELGATE_HOST": "::1", "BABELGATE_PREFIX": "/mq"}
    assert console_address(path, elsewhere) == "http://[::1]:9090/mq/console/"


def test_a_seed_is_a_day_in_five_accents():
    assert list(shop.arrivals(Random(3))) == list(shop.arrivals(Random(3)))
    bodies = [
        shop.encoded(shop.envelope(kind, START, "t", Random(3)))
        for kind in (shop.ORDER, shop.PAYMENT, shop.STOCK, shop.RECEIPT, shop.WELCOME)
    ]
    assert len(set(bodies)) == 5
    assert all(msgspec.json.decode(body)["trace_id"] == "t" for body in bodies)
