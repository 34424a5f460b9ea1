"""Time spans in which records are missing. Counts within them are lower bounds (``at_least``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

MissingSpans = tuple[tuple[int, int], ...]
"""Spans in which records are missing: first and last Unix ms, sorted, neither overlapping nor adjacent. A span concerns
all queues, because lost records are known per process only."""
NEVER, ALWAYS = -(2**62), 2**62


def merged(spans: Iterable[tuple[int | None, int | None]]) -> MissingSpans:
    """``spans`` sorted and merged; None means unbounded."""
    found: list[tuple[int, int]] = []
    known = ((NEVER if first is None else first, ALWAYS if last is None else last) for first, last in spans)
    for first, last in sorted((min(each), max(each)) for each in known):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def missing_spans_of(missing: Iterable[tuple[Any, ...]]) -> MissingSpans:
    """The spans of the rows ``lost`` and ``hole`` of ``journal_gaps``, as
    :func:`~babelgate.pipeline.journal.reader.gaps`."""
    return merged((from_at, to_at) for kind, *_, from_at, to_at in missing if kind in ("lost", "hole"))


def overlaps(missing_spans: MissingSpans, first: Column, last: Column) -> Column:
    """Whether a span overlaps ``first`` to ``last``, both included; a null ``last`` means no end."""
    from pyspark.sql import functions as f

    if not missing_spans:
        return f.lit(False)
    spans = f.array(*(f.struct(f.lit(start).alias("first"), f.lit(end).alias("last")) for start, end in missing_spans))
    until = f.coalesce(last, f.lit(ALWAYS))
    return f.exists(spans, lambda span: (span["first"] <= until) & (span["last"] >= first))
