"""The columns of datasets are stable: new ones are only added at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from babelgate.pipeline.storage.columns import MEANINGS, described
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.validate.classify import ValidatedRow
from babelgate.pipeline.validate.validation_task import COLUMNS

GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize("name", DATASETS)
def test_columns_are_only_added_at_the_end(name: str) -> None:
    """A new column is written into the golden file; a change of one that is there is a new version of the dataset."""
    path = GOLDEN / f"{name}.json"
    dataset = DATASETS[name]
    now = {"version": dataset.version, "partitions": list(dataset.partitions), "columns": dict(dataset.columns)}
    nothing: dict[str, Any] = {"version": dataset.version, "columns": {}}
    before = json.loads(path.read_text()) if path.exists() else nothing
    if now["version"] == before["version"]:
        kept = list(before["columns"].items())
        assert list(dataset.columns.items())[: len(kept)] == kept, "a column is lost, changed, or no more in its place"
    assert now == before, f"golden/{path.name} is to hold: {json.dumps(now)}"


def test_one_pass_writes_the_columns_of_both() -> None:
    assert tuple(COLUMNS) == ValidatedRow._fields
    for dataset in ("accepted", "quarantined"):
        assert DATASETS[dataset].columns.items() <= COLUMNS.items()


def test_every_column_has_a_meaning_and_every_meaning_a_column() -> None:
    assert MEANINGS.keys() == DATASETS.keys()
    for name, meanings in MEANINGS.items():
        columns = {column for column, _, meaning in described(DATASETS[name]) if meaning}
        assert columns >= DATASETS[name].columns.keys()
        assert meanings.keys() <= columns, name
