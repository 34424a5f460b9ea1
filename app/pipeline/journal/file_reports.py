"""What the tasks of ``ingest`` tell the driver of each file, besides its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.accumulators import AccumulatorParam

from app.pipeline.journal.ranges import Range

Owner = tuple[str, str]
"""Node and epoch."""


class Lost(NamedTuple):
    """A gap record: so many ``records`` were lost, before the record ``seq`` that tells of it."""

    node: str
    epoch: str
    seq: int
    records: int
    first_lost_at: int
    last_lost_at: int


@dataclass
class Report:
    """What became of a file. ``damage``: why it is to be read once more."""

    records: int = 0
    duplicates: int = 0
    corrupt: int = 0
    damage: str | None = None
    seqs: dict[Owner, list[Range]] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    dates: dict[str, int] = field(default_factory=dict)


class ByFile(AccumulatorParam[Any]):
    """Reports by file: a task that was tried twice tells the same again."""

    def zero(self, value: Any) -> Any:
        return {}

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        value1.update(value2)
        return value1
