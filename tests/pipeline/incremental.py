"""Lakes whose runs of ``metrics`` measure what is new, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from babelgate.pipeline.storage.datasets import DatasetReader
from tests.pipeline.histories import DAY, START, Row
from tests.pipeline.test_metrics_continuous import LATE, Lake

HOUR = DAY // 24
_PLAIN = {name: value for name, value in LATE.items() if name not in ("message_id", "trace_id", "created_at")}


def message(name: str, hour: int) -> Row:
    """The facts of a message that was made at an hour, counted from START."""
    return {**_PLAIN, "message_id": name, "trace_id": f"t-{name}", "created_at": START + hour * HOUR}


def manifest(root: Path) -> dict[str, Any]:
    """The manifest of the current run."""
    found = DatasetReader.without_spark(str(root)).manifest("throughput")
    assert found is not None
    return found


def run_folder(root: Path, dataset: str = "lifecycle") -> Path:
    """The folder of the current run."""
    return Path(DatasetReader.without_spark(str(root)).folder(dataset, manifest(root)["run_id"]))


def is_increment(root: Path) -> bool:
    """Whether the current run measured what was new."""
    return (run_folder(root) / "_open.parquet").exists()


def measure(lake: Lake, rows: list[Row], *arguments: str, is_new: bool | None = None) -> dict[str, Any]:
    """The manifest of a run after a batch of ``rows``, whose datasets are right. ``is_new``: whether it must have
    measured what was new; None: that does not matter."""
    if rows:
        lake.put(rows)
    found = lake.once(*arguments)
    assert found.exit_code == 0, found.output
    lake.check()
    assert is_new is None or is_increment(lake.root) == is_new
    return manifest(lake.root)
