"""Decides whether a run computes what is new, instead of whole dates: if exactly that is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from babelgate import __version__
from babelgate.pipeline.journal.commits import Commit
from babelgate.pipeline.journal.reader import Snapshot
from babelgate.pipeline.metrics.dates import DAY_MS, DateRange, State, changed, days_before
from babelgate.pipeline.metrics.missing_spans import MissingSpans
from babelgate.pipeline.metrics.parts import DIVIDED, Parts, days_of, divided_days
from babelgate.pipeline.storage.datasets import Manifest

WHOLE_RECORDS = 400_000
"""Up to this number of records to read, whole dates cost little."""
REST_MS = DAY_MS
"""A divided date becomes whole after this time without new rows."""


class WholeDatesNeeded(Exception):
    """Only whole dates give the right rows, which became known during a run."""


class Former(NamedTuple):
    """What a run goes on from. ``run``: its id; ``fresh``: the batches since; ``last_at``: its last record of each ISO
    date, Unix ms.

    ``seen_from``: for each followed date of ``lifecycle``, the first date of the records that its rows were made of; of
    another date of the journal, the first date of those by which it has no rows.
    ``resting``: by dataset, the divided dates to which nothing has come for :data:`REST_MS`.
    """

    run: str
    fresh: Sequence[Commit]
    last_at: Mapping[str, int]
    seen_from: Mapping[date, date]
    resting: Mapping[str, Sequence[date]]


def window_of(now: State, days: Sequence[date], within: DateRange) -> list[str]:
    """The dates whose records a run of ``days`` needs."""
    # If a producer's clock is ahead, events of a message may be dated one day before the message.
    first = days_before(days_before(days[0], within.lookback_days), 1)
    return [iso for iso in now if date.fromisoformat(iso) >= first]


def since(
    former: Manifest, journal: Snapshot, now: State, missing_spans: MissingSpans, within: DateRange, at: int
) -> Former | None:
    """What is new since the run of the manifest ``former``. ``at``: the time now, Unix ms.

    None: it is to be computed by whole dates, as some records are missing or were found, the options are others, new
    records were compacted, rows are not those of all their records, or there is little to read.
    """
    options = {"from": None, "to": None, "lookback_days": within.lookback_days}
    basis = former.get("basis")
    is_like_it = former.get("code_version") == __version__ and former.get("options") == options
    if basis is None or not is_like_it or within.first or within.last:
        return None
    if has_other_gaps(former, missing_spans):
        return None
    measured: State = former["state"]
    days = changed(measured, now, within)
    if not days:
        return None
    window = window_of(now, days, within)
    last_at: Mapping[str, int] = basis["last_at"]
    if sum(now[iso][0] for iso in window) <= WHOLE_RECORDS or any(
        iso in measured and iso not in last_at for iso in window
    ):
        return None
    newest = tuple(basis["newest_batch"])
    fresh = [each for each in journal.batches if (each.committed_at, each.batch) > newest]
    counts = {iso: measured[iso][0] for iso in measured}
    for each in fresh:
        for iso, count in each.dates.items():
            counts[iso] = counts.get(iso, 0) + count
    # Compaction may have merged a batch, or a clock may have been set back: then these do not add up.
    if counts != {iso: signature[0] for iso, signature in now.items()}:
        return None
    followed = days_before(days[0], within.lookback_days)
    known = {iso: first for iso, first in basis["seen_from"].items() if date.fromisoformat(iso) >= followed}
    lived = {day for day in days_of(former["parts"]["lifecycle"]) if day >= followed}
    if None in known.values() or not lived <= {date.fromisoformat(iso) for iso in known}:
        return None
    seen_from = {date.fromisoformat(iso): date.fromisoformat(first) for iso, first in known.items()}
    resting = {
        name: [date.fromisoformat(iso) for iso, since in of.items() if since + REST_MS <= at]
        for name, of in basis["divided"].items()
    }
    return Former(former["run_id"], fresh, last_at, seen_from, resting)


def has_other_gaps(former: Manifest, missing_spans: MissingSpans) -> bool:
    """Whether other spans were missing in the run of the manifest ``former``; False if that is unknown."""
    return "basis" in former and former["basis"]["missing_spans"] != [list(span) for span in missing_spans]


def unsure_dates(former: Manifest) -> list[date]:
    """The dates of messages whose rows may not be right after the run of the manifest ``former``."""
    seen_from = former.get("basis", {}).get("seen_from", {})
    return [date.fromisoformat(iso) for iso, first in seen_from.items() if first is None]


class Made(NamedTuple):
    """What a run has done. ``window``: the first of the dates whose records it read; ``written``: the dates of messages
    whose rows are right now, ``not_followed``: those whose rows are not; ``is_whole``: all rows of these dates were
    made of these records; ``parts``: of its datasets; ``at``: the time, Unix ms."""

    run: str
    window: str
    written: Collection[date]
    not_followed: Collection[date]
    is_whole: bool
    parts: Parts
    last_at: Mapping[str, int]
    at: int


def basis_of(former: Manifest, journal: Snapshot, missing_spans: MissingSpans, made: Made) -> dict[str, Any]:
    """What the manifest of a run says, so that the next run knows what is new: the arguments of :func:`since`."""
    before = former.get("basis") or {"last_at": {}, "seen_from": {}, "divided": {}}
    newest = max(((each.committed_at, each.batch) for each in journal.batches), default=(0, ""))
    seen_from: dict[str, str | None] = {}
    lived = {day.isoformat() for day in days_of(made.parts["lifecycle"])}
    written = {day.isoformat() for day in made.written}
    for iso in lived.union(before["seen_from"], made.last_at):
        # By these records a date of the window without a row has none.
        known = before["seen_from"].get(iso, None if iso in lived else made.window)
        if iso in written:
            known = made.window if made.is_whole or known is None else min(known, made.window)
        seen_from[iso] = known
    seen_from |= {day.isoformat(): None for day in made.not_followed}
    divided = {}
    for name in DIVIDED:
        times = before["divided"].get(name, {})
        parts = made.parts[name]
        rewritten = set(days_of([part for part, run in parts.items() if run == made.run]))
        divided[name] = {
            day.isoformat(): made.at if day in rewritten else times.get(day.isoformat(), made.at)
            for day in divided_days(parts)
        }
    return {
        "newest_batch": list(newest),
        "missing_spans": [list(span) for span in missing_spans],
        "last_at": {**before["last_at"], **made.last_at},
        "seen_from": seen_from,
        "divided": divided,
    }
