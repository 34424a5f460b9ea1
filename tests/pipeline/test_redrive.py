"""``pipeline redrive``, ``replay`` and ``backfill``: what is sent, where to, and what is told of it."""

from __future__ import annotations

import pytest

from tests.harness.gateway import gateway
from tests.pipeline.sending import Sends, body, drained, envelopes, write


@pytest.fixture
def sends(spark, tmp_path):
    return Sends(spark, tmp_path)


@pytest.fixture
def running(tmp_path, sends):
    with gateway(tmp_path) as process:
        sends.url = process.url
        yield process


def test_every_message_goes_once(sends, running, tmp_path):
    many = [body(number, f"q{number % 3}") for number in range(300)]
    write(tmp_path / "in.ndjson", *many, many[0], body(1, "q1", attempts=4))
    told = sends("backfill", tmp_path / "in.ndjson", "--from", "bodies")
    assert told["counts"] == {
        "selected": 300,
        "duplicates": 2,
        "accepted": 300,
        "replayed": 0,
        "rejected": 0,
        "unknown": 0,
        "left": 0,
    }
    assert [line["status"] for line in sends.ledger()] == ["accepted"] * 300
    found = envelopes(running, "q1")
    assert sorted(each["data"]["number"] for each in found) == list(range(1, 300, 3))
    assert {each["attempts"] for each in found if each["meta"]["id"] == "id-1"} == {4}, "the last that was found"

    again = sends("backfill", tmp_path / "in.ndjson", "--from", "bodies")
    assert again["completed_at"] == told["completed_at"]
    assert "nothing is left to send" in sends.output
    assert drained(running, "q1") == {}
