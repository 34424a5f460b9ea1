"""Where datasets lie: ``<root>/<dataset>/v=<version>/run=<run id>/``, each run with its ``_manifest.json``.

``<root>/<dataset>/v=<version>/CURRENT`` names the run that readers read; it is replaced whole, once the run is
complete. A run's id comes from what it was made of, so that the same inputs, options and code are the same run, done
once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app import __version__
from app.pipeline.errors import JobFailed
from app.pipeline.storage.files import Files
from app.pipeline.storage.schemas import DATASETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Manifest = dict[str, Any]
_WRITING = {
    # A body is found once: a dictionary of them, and the smallest and the largest, cost memory for nothing.
    "parquet.enable.dictionary#body": "false",
    "parquet.column.statistics.enabled#body": "false",
    # By default the writer looks at its memory after a hundred rows, which may be a hundred large bodies.
    "parquet.block.size.row.check.min": "1",
    "parquet.page.size.row.check.min": "1",
}
_MANIFEST, _CURRENT, _STAGING = "_manifest.json", "CURRENT", "_staging"


def run_id(job: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    """16 hex digits from the job, its inputs, the options that change its result, and the version of this program.

    ``inputs``: anything that JSON holds; of files their URLs, sizes and times. Their order does not count.
    """
    ordered = sorted(json.dumps(each, sort_keys=True) for each in inputs)
    made_of = json.dumps([job, __version__, ordered, dict(options)], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def unchanged(root: str, datasets: Sequence[str], run: str) -> Manifest | None:
    """The manifest of ``run`` where it is complete and current in all of ``datasets``; found without Spark, at once.

    None otherwise, and where Arrow does not read ``root``: :meth:`Store.already` knows better.
    """
    found: list[Manifest] = []
    try:
        for dataset in datasets:
            if _read_bytes(f"{folder(root, dataset)}/{_CURRENT}").decode().strip() != run:
                return None
            found.append(json.loads(_read_bytes(f"{folder(root, dataset, run)}/{_MANIFEST}")))
    except (OSError, ValueError):
        return None
    return _common_facts(found[0])


def folder(root: str, dataset: str, run: str | None = None) -> str:
    """The place of a dataset below ``root``, or of one of its runs."""
    home = f"{root.rstrip('/')}/{dataset}/v={DATASETS[dataset].version}"
    return home if run is None else f"{home}/run={run}"


def _common_facts(manifest: Manifest) -> Manifest:
    """What the manifests of all datasets of a run tell."""
    return {name: value for name, value in manifest.items() if name not in ("dataset", "version")}


def _read_bytes(url: str) -> bytes:
    from app.pipeline.storage.input_files import locate

    system, path = locate(url)
    with system.open_input_stream(path) as stream:
        return bytes(stream.read())


class DatasetStore:
    """The datasets below ``root``, on any file system that Spark writes to.

    Writing: ``write`` or ``write_by``, then ``publish``; until then readers see the former run. Two writers of one run
    at once: one of them fails.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.files = Files(spark, root)
        self.root = self.files.qualified(root).rstrip("/")

    def folder(self, dataset: str, run: str | None = None) -> str:
        """The URL of a dataset, or of one of its runs."""
        return folder(self.root, dataset, run)

    def current(self, dataset: str) -> str | None:
        """The id of the run that readers read; None before the first."""
        name = self.files.read(f"{self.folder(dataset)}/{_CURRENT}")
        return None if name is None else name.decode().strip()

    def manifest(self, dataset: str, run: str | None = None) -> Manifest | None:
        """The manifest of a run, by default the current one; None where it is not complete."""
        run = run or self.current(dataset)
        content = None if run is None else self.files.read(f"{self.folder(dataset, run)}/{_MANIFEST}")
        return None if content is None else dict(json.loads(content))

    def runs(self, dataset: str) -> list[str]:
        """The ids of all complete runs, in no meaningful order."""
        found = self.files.folders(self.folder(dataset), "run=")
        return [run for run in found if self.manifest(dataset, run) is not None]

    def newest(self, dataset: str) -> str | None:
        """The id of the run that was completed last, whatever readers read; None before the first."""
        made = ((self.manifest(dataset, run) or {}, run) for run in self.runs(dataset))
        return max(((told["completed_at"], run) for told, run in made), default=(0, None))[1]

    def read(self, dataset: str, run: str | None = None) -> DataFrame:
        """A run's rows, by default the current one's, with the dataset's schema. Raises JobFailed before the first."""
        run = run or self.current(dataset)
        if run is None:
            raise JobFailed(f"{self.root} has no dataset {dataset}")
        parts = ((self.manifest(dataset, run) or {}).get("parts") or {}).get(dataset)
        if parts is not None:
            return self.read_parts(dataset, parts)
        return self.spark.read.schema(DATASETS[dataset].ddl).parquet(self.folder(dataset, run))

    def read_parts(self, dataset: str, parts: Mapping[str, str]) -> DataFrame:
        """The rows of a dataset by dates of which each has its run: of what is measured, a run states some dates."""
        kind = DATASETS[dataset]
        if not parts:
            return self.spark.createDataFrame([], kind.ddl)
        places = [f"{self.folder(dataset, run)}/date={day}" for day, run in sorted(parts.items())]
        reader = self.spark.read.schema(kind.ddl).option("basePath", self.folder(dataset))
        return reader.parquet(*places).select(*kind.columns)

    def write(self, frame: DataFrame, dataset: str, run: str, *, append: bool = False) -> None:
        """Write a run's rows, in the dataset's columns, over what an earlier attempt may have left, or beside it."""
        kind = DATASETS[dataset]
        missing = set(kind.columns) - set(frame.columns)
        if missing:
            raise ValueError(f"{dataset} lacks the columns {sorted(missing)}")
        writer = frame.select(*kind.columns).write.mode("append" if append else "overwrite").options(**_WRITING)
        writer.partitionBy(*kind.partitions).parquet(self.folder(dataset, run))

    def write_by(self, frame: DataFrame, column: str, datasets: Sequence[str], run: str) -> None:
        """Write the rows of several datasets in one pass: ``column`` names the one that a row belongs to.

        Their files hold the columns of all, null where they are another's.
        """
        staging = f"{self.root}/{_STAGING}/run={run}"
        self.files.remove(staging)
        frame.write.mode("overwrite").options(**_WRITING).partitionBy(column).parquet(staging)
        for dataset in datasets:
            source, target = f"{staging}/{column}={dataset}", self.folder(dataset, run)
            self.files.remove(target)
            self.files.make_folder(target.rpartition("/")[0] if self.files.exists(source) else target)
            if self.files.exists(source) and not self.files.rename(source, target):
                raise JobFailed(f"{source} could not be moved to {target}")
        self.files.remove(staging)

    def publish(self, datasets: Sequence[str], run: str, facts: Mapping[str, Any]) -> Manifest:
        """Complete a run of each of ``datasets``: its manifest, which tells ``facts``, then the pointer to it."""
        made: Manifest = {"run_id": run, "code_version": __version__, "completed_at": time.time_ns() // 1_000_000}
        made |= facts
        for dataset in datasets:
            each = {"dataset": dataset, "version": DATASETS[dataset].version, **made}
            content = json.dumps(each, indent=2, sort_keys=True) + "\n"
            self.files.write(f"{self.folder(dataset, run)}/{_MANIFEST}", content.encode())
        self.point(datasets, run)
        return made

    def point(self, datasets: Sequence[str], run: str) -> None:
        """Let readers read the complete run ``run``."""
        for dataset in datasets:
            if self.current(dataset) != run:
                self.files.write(f"{self.folder(dataset)}/{_CURRENT}", f"{run}\n".encode())

    def already(self, datasets: Sequence[str], run: str) -> Manifest | None:
        """The manifest of a run that is complete in all of ``datasets``, which readers read from now on; else None.

        What a job asks first: with the same inputs, nothing is left to do.
        """
        found = [self.manifest(dataset, run) for dataset in datasets]
        complete = [each for each in found if each is not None]
        if len(complete) < len(found):
            return None
        self.point(datasets, run)
        return _common_facts(complete[0])
