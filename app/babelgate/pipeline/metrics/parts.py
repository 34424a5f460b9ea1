"""The parts of a dataset: its dates, or slices of a large date, each in the folder of the run that wrote it.

A part is named by its ISO date, or by date and slice (``2026-01-31/slice-2945376``). The folder of a part is
``run=<run>/date=<part>`` below that of the dataset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import date
from typing import Protocol

SLICE = "slice-"
SLICE_MS = 600_000
"""The time that a slice spans. It is whole minutes, so a row by minute belongs to one slice."""
DIVIDED = ("lifecycle", "traces")
"""The datasets whose large dates are in slices."""
ENTANGLED = "_entangled-"
"""A file in the folder of ``lifecycle``: the ids of messages whose events cannot be found by ``created_at`` alone,
with dates of each (:func:`~babelgate.pipeline.metrics.duckdb_lifecycles.entangled`). Its name ends with the first date
of the records from which they are known."""
OPEN = "_open.parquet"
"""A file in the folder of ``lifecycle``: of messages without an end, the columns that ``open`` is made of."""

DatasetParts = dict[str, str]
"""By part: the run that wrote its rows."""
Parts = dict[str, DatasetParts]
"""The parts of each dataset, by its name."""


class _Folders(Protocol):
    def folders(self, url: str, prefix: str) -> Collection[str]: ...


def part_of(day: date, number: int | None) -> str:
    """The name of a slice of ``day``; None: of the whole date."""
    return day.isoformat() if number is None else f"{day.isoformat()}/{SLICE}{number}"


def day_of_part(part: str) -> date:
    """The date of a part."""
    return date.fromisoformat(part.partition("/")[0])


def days_of(parts: Collection[str]) -> list[date]:
    """The dates of parts, each once, sorted."""
    return sorted(set(map(day_of_part, parts)))


def divided_days(parts: Collection[str]) -> list[date]:
    """The dates that are in slices, sorted."""
    return days_of([part for part in parts if "/" in part])


def parts_of_days(parts: Mapping[str, str], days: Collection[date]) -> DatasetParts:
    """Those of ``parts`` that are of ``days``."""
    wanted = {day.isoformat() for day in days}
    return {part: run for part, run in parts.items() if part.partition("/")[0] in wanted}


def parts_in(files: _Folders, run_folder: str) -> Iterator[str]:
    """The parts that are below the folder of a run."""
    for day in files.folders(run_folder, "date="):
        slices = files.folders(f"{run_folder}/date={day}", SLICE)
        yield from (f"{day}/{SLICE}{each}" for each in slices) if slices else [day]
