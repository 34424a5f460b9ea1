"""``metrics`` of what is new on random lakes: after a round its rows are those of whole dates.

``BABELGATE_SEEDS=100:400 pytest tests/pipeline/test_metrics_differential.py`` tries these seeds.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest

from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.erase.job import erase
from babelgate.pipeline.metrics import duckdb_increment, since
from babelgate.pipeline.metrics.dates import DateRange
from babelgate.pipeline.metrics.job import measure
from babelgate.pipeline.metrics.lifecycles import EVENTS
from babelgate.pipeline.metrics.stages import DATASETS
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader
from tests.pipeline.histories import DAY, START, Row, row
from tests.pipeline.incremental import HOUR, is_increment, manifest
from tests.pipeline.test_metrics_continuous import Lake

FIRST, LAST = map(int, os.environ.get("BABELGATE_SEEDS", "0:20").split(":"))
ROUNDS = 4
LAUNCH = Launch(None, {}, None, False, "duckdb")
pytestmark = pytest.mark.timeout(600)


class Traffic:
    """Records of messages that live over several rounds, with all that is hard to combine."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._seq = 0
        self._now = START + chance.randrange(DAY)
        self._blank = chance.choice((0.0, 0.0, 0.03, 0.2))
        self._moves = chance.choice((0.0, 0.3))
        self._late = chance.choice((0.0, 0.1, 0.5))
        self._pace = chance.choice((HOUR // 6, HOUR, 10 * HOUR, DAY))
        self._messages: list[Row] = []

    def round(self) -> list[Row]:
        """The records of a round; some are late."""
        self._now += self._chance.randrange(self._pace) + 1
        return [self._record() for _ in range(self._chance.choice((1, 8, 40, 150)))]

    def an_id(self) -> str:
        return str(self._chance.choice(self._messages)["message_id"])

    def _record(self) -> Row:
        chance = self._chance
        at = self._now + chance.randrange(-HOUR // 2, HOUR // 2)
        if chance.random() < self._late:
            at -= chance.randrange(4 * DAY)
        facts = dict(chance.choice(self._messages) if self._messages and chance.random() < 0.7 else self._message(at))
        event = chance.choice(EVENTS)
        if event == "redriven" and chance.random() < self._moves:
            facts["to_queue"] = chance.choice(("q1", "q2", "q3"))
        if chance.random() < self._moves / 2:
            facts["queue"] = chance.choice(("q1", "q2", "q3"))
        if chance.random() < self._blank:
            facts["created_at"] = chance.choice((None, -1, 1_767_225_600, at + 2 * DAY))
        if chance.random() < 0.03:
            facts["message_id"] = None
        if chance.random() < 0.05:
            facts["trace_id"] = chance.choice((None, "t0", "z"))
        self._seq += 1
        facts |= {"node": chance.choice(("n1", "n2")), "attempts": chance.choice((0, 1, None))}
        facts["outcome"] = chance.choice(("failed", "unknown_urn", "poison", None))
        return row(event, at, self._seq, **facts, bytes=chance.choice((0, 1, 300, 5000, None)))

    def _message(self, at: int) -> Row:
        chance = self._chance
        made = at - chance.choice((0, 0, 7, HOUR, 30 * HOUR, 4 * DAY, -20 * HOUR))
        message: Row = {
            # Some ids are used again.
            "message_id": f"m{chance.randrange(30)}" if chance.random() < 0.15 else f"m-{len(self._messages)}",
            "created_at": made,
            "trace_id": f"t{chance.randrange(60)}",
            "queue": chance.choice(("q1", "q2")),
            "job": chance.choice(("urn:j", None)),
            "lang": "go",
            "envelope": b"{}",
        }
        self._messages.append(message)
        return message


def rows_of(root: Path, since_day: str = "") -> dict[str, Counter[str]]:
    """The current rows of each dataset; of ``open`` those from an ISO date on."""
    store = DatasetReader.without_spark(str(root))
    with opened(store) as lake:
        made = {name: lake.rows(lake.current(name)) for name in DATASETS}
    made["open"] = [each for each in made["open"] if each["date"].isoformat() >= since_day]
    return {name: Counter(repr(_comparable(each)) for each in rows) for name, rows in made.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, _comparable(each)) for key, each in value.items())
    return [_comparable(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_rows_are_those_of_whole_dates(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    traffic = Traffic(chance)
    lake = Lake(tmp_path)
    whole = tmp_path / "whole"
    monkeypatch.setattr(duckdb_increment, "DIVIDED_BYTES", chance.choice((0, 0, 2**30)))
    monkeypatch.setattr(since, "REST_MS", chance.choice((0, since.REST_MS)))
    lookback_days = chance.choice((31, 31, 31, 0, 1, 2))
    within = DateRange(None, None, lookback_days)
    first_dates: list[date] = []
    for number in range(ROUNDS):
        batches = [traffic.round() for _ in range(chance.choice((1, 1, 2)))]
        if number and chance.random() < 0.15:
            erase(str(lake.root), [traffic.an_id()], [])
        for each in batches:
            lake.put(each)
        is_compacted = chance.random() < 0.1
        if is_compacted:
            erase(str(lake.root), [traffic.an_id()], [])
        # What is wrong after a round mostly stays so.
        is_compared = number == ROUNDS - 1 or chance.random() < 0.25
        if is_compared:
            shutil.copytree(lake.root, whole)
        monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
        measure(LAUNCH, str(lake.root), within, retain_hours=chance.choice((0.0, 24.0)))
        if is_compared:
            monkeypatch.setattr(since, "WHOLE_RECORDS", 10**9)
            # Beyond the lookback --force computes more than a run of whole dates: rows that are no longer followed.
            is_forced = lookback_days == 31 and chance.random() < 0.6
            measure(LAUNCH, str(whole), within, force=is_forced)
            # It computes ``open`` of all dates again, and any other run only since the first date with new records.
            first = manifest(lake.root)["dates"][0] if is_forced else ""
            made, expected = rows_of(lake.root, first), rows_of(whole, first)
            for name in DATASETS:
                more, less = made[name] - expected[name], expected[name] - made[name]
                assert not more and not less, f"seed {seed}, round {number}: {name} has {more}, and lacks {less}"
            shutil.rmtree(whole)
        first_dates.append(min(each["date"] for each in lake.rows))
        if number and lookback_days == 31 and not is_compacted and first_dates[-1] == first_dates[-2]:
            assert is_increment(lake.root), f"seed {seed}, round {number}: whole dates were computed"
