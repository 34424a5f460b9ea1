"""``metrics`` of what is new on random lakes: after a round its rows are those of whole dates.

``BABELGATE_SEEDS=100:400 pytest tests/pipeline/test_metrics_differential.py`` tries these seeds.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import AbstractContextManager, suppress
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest

from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.erase.job import erase
from babelgate.pipeline.journal.commits import CommitContent, LostRecords, ProcessRecords
from babelgate.pipeline.journal.ranges import Range
from babelgate.pipeline.metrics import duckdb_increment, duckdb_lifecycles, duckdb_messages, since
from babelgate.pipeline.metrics.dates import DateRange
from babelgate.pipeline.metrics.duckdb_stages import DuckDBMetricsWriter
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
_OF_MESSAGES = ("message_id", "created_at", "trace_id", "queue", "job", "lang", "envelope")
pytestmark = pytest.mark.timeout(600)


class Traffic:
    """Records of messages that live over several rounds, with all that is hard to combine."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._seq = 0
        self._now = START + chance.randrange(DAY)
        self.blank = chance.choice((0.0, 0.0, 0.03, 0.2))
        self._moves = chance.choice((0.0, 0.3))
        self._late = chance.choice((0.0, 0.1, 0.5))
        self._pace = chance.choice((HOUR // 6, HOUR, 10 * HOUR, DAY))
        self._fails = chance.choice((0.0, 0.1))
        self._rests = chance.choice((False, True))
        """Whether, after the first round, only losses are new of former dates."""
        self._is_resting = False
        self._loses = 0.4 if self._rests else chance.choice((0.0, 0.0, 0.4))
        self._lossy_seq = 1
        self._hole: Range | None = None
        self._messages: list[Row] = []

    def round(self) -> list[Row]:
        """The records of a round; some are late."""
        self._now += self._chance.randrange(self._pace) + 1
        records = [self._record() for _ in range(self._chance.choice((1, 8, 40, 150)))]
        if self._chance.random() < self._fails * len(records):
            records += self._attempts(self._chance.choice(records))
        self._is_resting = self._rests
        return records

    def losses(self) -> CommitContent:
        """What a batch says about missing records: some were lost, are missing, or are found again."""
        chance = self._chance
        if chance.random() >= self._loses:
            return CommitContent()
        begin = self._now - chance.randrange(2 * DAY)
        if self._is_resting:
            begin -= chance.randrange(6 * DAY)
        end = begin + chance.randrange(chance.choice((HOUR, HOUR, 2 * DAY)))
        if chance.random() < 0.4:
            return CommitContent(lost=[LostRecords("lossy", "e1", self._lossy_seq, 1, begin, end)])
        if self._hole is None:
            first = self._lossy_seq
            self._lossy_seq += 3
            self._hole = first + 1, first + 1, begin, end
            found = [(first, first, begin, begin), (first + 2, first + 2, end, end)]
        else:
            found, self._hole = [self._hole], None
        return CommitContent(processes=[ProcessRecords("lossy", "e1", found, [])])

    def an_id(self) -> str:
        return str(self._chance.choice(self._messages)["message_id"])

    def _record(self) -> Row:
        chance = self._chance
        at = self._now + chance.randrange(-HOUR // 2, HOUR // 2)
        if not self._is_resting and chance.random() < self._late:
            at -= chance.randrange(4 * DAY)
        is_known = self._messages and not self._is_resting and chance.random() < 0.7
        facts = dict(chance.choice(self._messages) if is_known else self._message(at))
        event = chance.choice(EVENTS)
        if event == "redriven" and chance.random() < self._moves:
            facts["to_queue"] = chance.choice(("q1", "q2", "q3"))
        if chance.random() < self._moves / 2:
            facts["queue"] = chance.choice(("q1", "q2", "q3"))
        if chance.random() < self.blank:
            facts["created_at"] = chance.choice((None, -1, 1_767_225_600, at + 2 * DAY))
        if chance.random() < 0.03:
            facts["message_id"] = None
        if chance.random() < 0.05:
            facts["trace_id"] = chance.choice((None, "t0", "z"))
        self._seq += 1
        facts |= {"node": chance.choice(("n1", "n2")), "attempts": chance.choice((0, 1, None))}
        facts["outcome"] = chance.choice(("failed", "unknown_urn", "poison", None))
        return row(event, at, self._seq, **facts, bytes=chance.choice((0, 1, 300, 5000, None)))

    def _attempts(self, record: Row) -> list[Row]:
        """Failed deliveries of a message, one after the other."""
        made = []
        for number in range(self._chance.randrange(2, 12)):
            at = record["at"] + number * self._chance.choice((0, 1, HOUR // 100))
            event = ("delivered", self._chance.choice(("nacked", "lease_expired")))[number % 2]
            self._seq += 1
            facts = {name: record[name] for name in (*_OF_MESSAGES, "node", "bytes")}
            made.append(row(event, at, self._seq, **facts, attempts=number // 2, outcome="failed"))
        return made

    def _message(self, at: int) -> Row:
        chance = self._chance
        made = at - (0 if self._is_resting else chance.choice((0, 0, 7, HOUR, 30 * HOUR, 4 * DAY, -20 * HOUR)))
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
    monkeypatch.setattr(duckdb_messages, "MAX_MESSAGES", chance.choice((1000, 1000, 3)))
    monkeypatch.setattr(duckdb_lifecycles, "MAX_HOPS", chance.choice((256, 256, 4)))
    within = DateRange(None, None, chance.choice((31, 31, 31, 0, 1, 2)))
    changes = chance.choice((0.0, 0.0, 0.3))
    # This is so for all rounds up to now.
    follows_all = within.lookback_days == 31
    spans: list[Any] = []
    first_dates: list[date] = []
    for number in range(ROUNDS):
        batches = [traffic.round() for _ in range(chance.choice((1, 1, 2)))]
        if number and chance.random() < 0.15:
            erase(str(lake.root), [traffic.an_id()], [])
        for each in batches:
            lake.put(each, content=traffic.losses())
        is_compacted = chance.random() < 0.1
        if is_compacted:
            erase(str(lake.root), [traffic.an_id()], [])
        monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
        has_changed = number > 0 and chance.random() < changes
        if has_changed:
            within = change(lake, within, chance)
            follows_all = False
        if chance.random() < 0.1:
            # After a run with other options there may be nothing to do.
            ends: AbstractContextManager[Any] = suppress(TypeError) if has_changed else pytest.raises(TypeError)
            with monkeypatch.context() as patched, ends:
                patched.setattr(DuckDBMetricsWriter, "still_open", None)
                measure(LAUNCH, str(lake.root), within)
        # What is wrong after a round mostly stays so.
        is_compared = number == ROUNDS - 1 or chance.random() < 0.25
        if is_compared:
            shutil.copytree(lake.root, whole)
        measure(LAUNCH, str(lake.root), within, retain_hours=chance.choice((0.0, 24.0)))
        if is_compared:
            monkeypatch.setattr(since, "WHOLE_RECORDS", 10**9)
            # Beyond the lookback --force computes more than a run of whole dates: rows that are no longer followed.
            is_forced = follows_all and chance.random() < 0.6
            measure(LAUNCH, str(whole), within, force=is_forced)
            # It computes ``open`` of all dates again, and any other run only since the first date with new records.
            first = manifest(lake.root)["dates"][0] if is_forced else ""
            made, expected = rows_of(lake.root, first), rows_of(whole, first)
            for name in DATASETS:
                more, less = made[name] - expected[name], expected[name] - made[name]
                assert not more and not less, f"seed {seed}, round {number}: {name} has {more}, and lacks {less}"
            shutil.rmtree(whole)
        first_dates.append(min(each["date"] for each in lake.rows))
        former_spans, spans = spans, manifest(lake.root)["basis"]["missing_spans"]
        is_usual = follows_all and spans == former_spans and not is_compacted
        # Once records came before all others, a message that lacks created_at may be on a date not yet made of these.
        is_usual = is_usual and (not traffic.blank or len(set(first_dates)) == 1)
        if number and is_usual and first_dates[-1] == first_dates[-2]:
            assert is_increment(lake.root), f"seed {seed}, round {number}: whole dates were computed"


def change(lake: Lake, within: DateRange, chance: Random) -> DateRange:
    """Other options for the next rounds, or those of before after a run with others."""
    if chance.random() < 0.5:
        return DateRange(None, None, chance.choice((31, 2, 0)))
    days = sorted({each["date"] for each in lake.rows})
    first = chance.choice(days)
    last = chance.choice([None, *(day for day in days if day >= first)])
    measure(LAUNCH, str(lake.root), DateRange(first, last, within.lookback_days))
    return within
