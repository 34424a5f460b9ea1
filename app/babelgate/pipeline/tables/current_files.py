"""The Parquet files that a dataset has now, by its manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from babelgate.pipeline.journal.reader import snapshot
from babelgate.pipeline.metrics.stages import DATASETS as MEASURED
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader, Manifest
from babelgate.pipeline.storage.schemas import DATASETS, JOURNAL
from babelgate.pipeline.validate.job import DATASETS as VALIDATED

_NULL = "__HIVE_DEFAULT_PARTITION__"


class TableFile(NamedTuple):
    """A file of a table. ``path``: relative to the dataset's folder; ``size`` in bytes; ``modified_at``: Unix ms."""

    path: str
    size: int
    modified_at: int

    @property
    def partition(self) -> dict[str, str | None]:
        """The partition values in the names of the folders of the file, such as ``date=2026-01-31``."""
        return dict(_pair(each) for each in self.path.split("/")[1:-1] if "=" in each)


def current_folders(reader: DatasetReader, datasets: Sequence[str]) -> dict[str, list[str]] | None:
    """The folders of the rows of each of ``datasets``, relative to its folder; without those that have no data.

    One job makes ``datasets`` current, one after the other. The run of the first holds for all, as the job itself goes
    on from it. None if that run is not complete in all: then they have no rows that belong together.
    """
    if JOURNAL.name in datasets:
        journal = snapshot(reader)
        home = f"{reader.folder(JOURNAL.name)}/"
        has_data = journal.run is not None or journal.batches
        return {JOURNAL.name: [url.removeprefix(home) for url in journal.folders()]} if has_data else {}
    run = reader.current(datasets[0])
    manifests = {name: None if run is None else reader.manifest(name, run) for name in datasets}
    if any(manifest is None and reader.current(name) is not None for name, manifest in manifests.items()):
        return None
    return {name: _folders(name, run, manifest) for name, manifest in manifests.items() if manifest is not None}


def _folders(dataset: str, run: str | None, manifest: Manifest) -> list[str]:
    parts: Mapping[str, str] | None = (manifest.get("parts") or {}).get(dataset)
    if parts is None:
        return [f"run={run}"]
    return [f"run={by}/date={day}" for day, by in sorted(parts.items())]


def files_in(files: ArrowFiles, home: str, folder: str) -> Iterator[TableFile]:
    """The Parquet files below ``folder`` of the dataset at the URL ``home``, sorted. Names of leftovers are skipped."""
    for each in files.walk(f"{home}/{folder}"):
        path = each.url.removeprefix(f"{home}/")
        hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
        if path.endswith(".parquet") and each.size and not hidden:
            yield TableFile(path, each.size, each.modified_at)


def stats_of(files: ArrowFiles, home: str, file: TableFile) -> str:
    """The statistics of a file for the log, JSON: its number of rows, from its footer.

    Least and greatest values are left out. Where they are given of some columns, the pyarrow dataset of deltalake 1.6
    takes them as unknown of all others, and a filter on those, or for nulls, then finds no row.
    """
    footer: Any = files.parquet_metadata(f"{home}/{file.path}")
    return json.dumps({"numRecords": footer.num_rows})


def _pair(folder: str) -> tuple[str, str | None]:
    name, _, value = folder.partition("=")
    return name, None if value == _NULL else unquote(value)


TABLES = tuple(name for name in DATASETS if name not in ("journal_corrupt", "ledger"))
"""The datasets with tables. Rows of ``journal_corrupt`` may repeat, and ``ledger`` has one run for each sending."""
TOGETHER = (tuple(VALIDATED), tuple(MEASURED), *((name,) for name in TABLES if name not in (*VALIDATED, *MEASURED)))
"""The tables, by the job that makes them current at a time."""
