"""Decides whether a run computes what is new, instead of whole dates: if exactly that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from babelgate import __version__
from babelgate.pipeline.journal.commits import Commit
from babelgate.pipeline.journal.reader import Snapshot
from babelgate.pipeline.metrics.dates import DateRange, State, changed, days_before
from babelgate.pipeline.metrics.missing_spans import MissingSpans
from babelgate.pipeline.storage.datasets import Manifest

WHOLE_RECORDS = 400_000
"""Up to this number of records to read, whole dates cost little."""


class Former(NamedTuple):
    """What a run goes on from. ``run``: its id; ``fresh``: the batches since; ``last_at``: its last record of each ISO
    date, Unix ms."""

    run: str
    fresh: Sequence[Commit]
    last_at: Mapping[str, int]


def window_of(now: State, days: Sequence[date], within: DateRange) -> list[str]:
    """The dates whose records a run of ``days`` needs."""
    # If a producer's clock is ahead, events of a message may be dated one day before the message.
    first = days_before(days_before(days[0], within.lookback_days), 1)
    return [iso for iso in now if date.fromisoformat(iso) >= first]


def facts_of(journal: Snapshot, missing_spans: MissingSpans) -> dict[str, Any]:
    """What the manifest of a run says of the journal, so that the next run knows what is new."""
    newest = max(((each.committed_at, each.batch) for each in journal.batches), default=(0, ""))
    return {"newest_batch": list(newest), "missing_spans": [list(span) for span in missing_spans]}


def since(
    former: Manifest, journal: Snapshot, now: State, missing_spans: MissingSpans, within: DateRange
) -> Former | None:
    """What is new since the run of the manifest ``former``. None: it is to be computed by whole dates, as some records
    are missing or were found, the options are others, new records were compacted, or there is little to read."""
    options = {"from": None, "to": None, "lookback_days": within.lookback_days}
    is_like_it = former.get("code_version") == __version__ and former.get("options") == options
    if not is_like_it or within.first or within.last or "newest_batch" not in former:
        return None
    if former["missing_spans"] != facts_of(journal, missing_spans)["missing_spans"]:
        return None
    measured: State = former["state"]
    days = changed(measured, now, within)
    if not days:
        return None
    window = window_of(now, days, within)
    last_at: Mapping[str, int] = former["last_at"]
    if sum(now[iso][0] for iso in window) <= WHOLE_RECORDS or any(
        iso in measured and iso not in last_at for iso in window
    ):
        return None
    newest = tuple(former["newest_batch"])
    fresh = [each for each in journal.batches if (each.committed_at, each.batch) > newest]
    counts = {iso: measured[iso][0] for iso in measured}
    for each in fresh:
        for iso, count in each.dates.items():
            counts[iso] = counts.get(iso, 0) + count
    # Compaction may have merged a batch, or a clock may have been set back: then these do not add up.
    if counts != {iso: signature[0] for iso, signature in now.items()}:
        return None
    return Former(former["run_id"], fresh, last_at)
