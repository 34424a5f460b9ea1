"""Datasets on disk: ``<root>/<dataset>/v=<version>/run=<run id>/``, each run with a ``_manifest.json``.

``<root>/<dataset>/v=<version>/CURRENT`` names the run to read. It is replaced atomically after the run is complete. A
run id is a hash of the job, its inputs, its options and the program version, so the same work has the same id and is
done once. A repetition of it has a folder of its own: its manifest has the run id, and the folder another one.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from babelgate import __version__
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.files import Files
from babelgate.pipeline.storage.input_files import find, locate
from babelgate.pipeline.storage.schemas import DATASETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from babelgate.pipeline.storage.arrow_files import ArrowFiles

Manifest = dict[str, Any]
_WRITING = {
    # Ids are nearly all different, so a dictionary only costs time.
    **{
        f"parquet.enable.dictionary#{column}": "false"
        for column in ("message_id", "trace_id", "hops.list.element.message_id")
    },
    # Bodies are nearly all different, so a dictionary and min/max statistics only cost memory.
    "parquet.enable.dictionary#body": "false",
    "parquet.column.statistics.enabled#body": "false",
    # By default the writer checks its memory use every 100 rows, which may be 100 large bodies.
    "parquet.block.size.row.check.min": "1",
    "parquet.page.size.row.check.min": "1",
}
_MANIFEST, _CURRENT, STAGING = "_manifest.json", "CURRENT", "_staging"
_LOCKED_BY = {
    "ingest": "journal",
    "compact": "journal",
    "metrics": "throughput",
    "metrics-continuous": "throughput",
    "validate": "accepted",
}
"""The dataset in whose folder the lock of a job is."""


def run_id(job: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The run id: 16 hex digits.

    ``inputs``: JSON values, such as URL, size and time of each file, in any order. ``options``: those that change the
    result.
    """
    ordered = sorted(json.dumps(each, sort_keys=True) for each in inputs)
    made_of = json.dumps([job, __version__, ordered, dict(options)], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def unchanged(root: str, datasets: Sequence[str], run: str) -> Manifest | None:
    """The manifest of ``run`` if it is complete and current in all of ``datasets``, read without starting Spark.

    None otherwise, or if Arrow cannot read ``root``; :meth:`DatasetStore.completed` then decides.
    """
    found: dict[str, Manifest] = {}
    try:
        for dataset in datasets:
            current = _read_bytes(f"{folder(root, dataset)}/{_CURRENT}").decode().strip()
            found[current] = json.loads(_read_bytes(f"{folder(root, dataset, current)}/{_MANIFEST}"))
            # A repetition, and a run without the bodies of some messages, have another folder than that of their id.
            if found[current].get("run_id", current) != run:
                return None
    except (OSError, ValueError):
        return None
    # With two folders, a repetition was killed after it became current in one dataset.
    return _common_facts(*found.values()) if len(found) == 1 else None


def require(root: str, dataset: str, advice: str) -> None:
    """Raise JobFailed, without starting Spark, if ``root`` has nothing of ``dataset``; ``advice``: what to do then.

    A root that Arrow cannot read is left to Spark.
    """
    try:
        found = find(folder(root, dataset), hidden=True)
    except FileNotFoundError:
        found = []
    except (OSError, ValueError):
        return
    if not found:
        raise JobFailed(f"{root} has no dataset {dataset}: {advice}")


def folder(root: str, dataset: str, run: str | None = None) -> str:
    """The URL of a dataset below ``root``, or of one of its runs."""
    home = f"{root.rstrip('/')}/{dataset}/v={DATASETS[dataset].version}"
    return home if run is None else f"{home}/run={run}"


def _common_facts(manifest: Manifest) -> Manifest:
    """The members that the manifests of all datasets of a run share."""
    return {name: value for name, value in manifest.items() if name not in ("dataset", "version")}


def _read_bytes(url: str) -> bytes:
    system, path = locate(url)
    with system.open_input_stream(path) as stream:
        return bytes(stream.read())


class DatasetReader:
    """The runs and manifests of the datasets below ``root``. Needs no Spark, unless ``files`` does.

    Writers write the files of a run, then call ``publish``. Until then readers see the former run.
    """

    files: Files | ArrowFiles

    def __init__(self, files: Files | ArrowFiles, root: str) -> None:
        self.files = files
        self.root = files.qualified(root).rstrip("/")

    @classmethod
    def without_spark(cls, root: str) -> DatasetReader:
        """A reader through Arrow. Raises OSError, and ValueError for a URL that Arrow does not read."""
        from babelgate.pipeline.storage.arrow_files import ArrowFiles

        files = ArrowFiles(root)
        return cls(files, files.root)

    @classmethod
    def of_local(cls, root: str) -> DatasetReader | None:
        """A reader of a local folder; None for any other place."""
        try:
            reader = cls.without_spark(root)
        except (OSError, ValueError):
            return None
        return reader if reader.files.is_local else None

    def folder(self, dataset: str, run: str | None = None) -> str:
        """The URL of a dataset, or of one of its runs."""
        return folder(self.root, dataset, run)

    def lock(self, job: str) -> str:
        """The URL of the lock that ``job`` owns while it works: ingest, compact, metrics or validate. An endless run of
        ``metrics`` owns that of metrics-continuous, and that of metrics during each round."""
        return f"{self.folder(_LOCKED_BY[job])}/_{job}.lock"

    def current(self, dataset: str) -> str | None:
        """The id of the current run; None before the first."""
        name = self.files.read(f"{self.folder(dataset)}/{_CURRENT}")
        return None if name is None else name.decode().strip()

    def manifest(self, dataset: str, run: str | None = None) -> Manifest | None:
        """The manifest of a run, by default the current one; None if it is not complete."""
        run = run or self.current(dataset)
        content = None if run is None else self.files.read(f"{self.folder(dataset, run)}/{_MANIFEST}")
        return None if content is None else dict(json.loads(content))

    def current_run(self, dataset: str) -> tuple[str, Manifest]:
        """The id and the manifest of the current run. Raises JobFailed if there is none, or no manifest of it."""
        run = self.current(dataset)
        if run is None:
            raise JobFailed(f"{self.root} has no dataset {dataset}")
        manifest = self.manifest(dataset, run)
        if manifest is None:
            # An earlier version, which repeated a run in its folder, was killed.
            raise JobFailed(f"The current run {run} of {dataset} in {self.root} is not complete: repeat its job.")
        return run, manifest

    def current_folders(self, dataset: str) -> list[str]:
        """The URLs of the folders with the rows of the current run. Raises JobFailed as :meth:`current_run` does."""
        run, manifest = self.current_run(dataset)
        parts = (manifest.get("parts") or {}).get(dataset)
        if parts is None:
            return [self.folder(dataset, run)]
        return [f"{self.folder(dataset, by)}/date={day}" for day, by in sorted(parts.items())]

    def runs(self, dataset: str) -> list[str]:
        """The ids of all complete runs, in any order."""
        return [run for run, _ in self._complete(dataset)]

    def newest(self, dataset: str, of: str | None = None) -> str | None:
        """The folder of the run that was completed last, current or not; None before the first.

        ``of``: a run id, to find the last repetition of that run.
        """
        found = ((run, made) for run, made in self._complete(dataset) if of is None or made.get("run_id", run) == of)
        return max(((made["completed_at"], run) for run, made in found), default=(0, None))[1]

    def _complete(self, dataset: str) -> Iterator[tuple[str, Manifest]]:
        for run in self.files.folders(self.folder(dataset), "run="):
            if (manifest := self.manifest(dataset, run)) is not None:
                yield run, manifest

    def unused(self, datasets: Sequence[str], run: str) -> str:
        """``run``, or if one of ``datasets`` has a folder of it, a new id: readers may be at the files there."""
        if not any(self.files.exists(self.folder(dataset, run)) for dataset in datasets):
            return run
        return run_id("repetition", [run], {"attempt": uuid.uuid4().hex})

    def publish(self, datasets: Sequence[str], run: str, facts: Mapping[str, Any]) -> Manifest:
        """Complete a run of each of ``datasets``: write the manifest with ``facts``, then make the run current.

        ``run``: its folder, and its id unless ``facts`` has a ``run_id``.
        """
        made: Manifest = {"run_id": run, "code_version": __version__, "completed_at": time.time_ns() // 1_000_000}
        made |= facts
        for dataset in datasets:
            each = {"dataset": dataset, "version": DATASETS[dataset].version, **made}
            content = json.dumps(each, indent=2, sort_keys=True) + "\n"
            self.files.write(f"{self.folder(dataset, run)}/{_MANIFEST}", content.encode())
        self.point(datasets, run)
        return made

    def point(self, datasets: Sequence[str], run: str) -> None:
        """Make the complete run ``run`` the current one."""
        for dataset in datasets:
            if self.current(dataset) != run:
                self.files.write(f"{self.folder(dataset)}/{_CURRENT}", f"{run}\n".encode())

    def completed(self, datasets: Sequence[str], run: str) -> Manifest | None:
        """The manifest of ``run`` if it is complete in all of ``datasets``; the run is then made current. Else None.

        A job calls this first: if the run is complete, nothing is left to do.
        """
        current = self.current(datasets[0])
        if current is not None and (self.manifest(datasets[0], current) or {}).get("run_id") == run:
            # It may be the run without the bodies of some messages.
            run = current
        found = [self.manifest(dataset, run) for dataset in datasets]
        complete = [each for each in found if each is not None]
        if len(complete) < len(found):
            return None
        self.point(datasets, run)
        return _common_facts(complete[0])


class DatasetStore(DatasetReader):
    """Reads and writes the datasets below ``root``, on any file system that Spark supports.

    Writers call ``write`` or ``write_by``, then ``publish``. If two writers write the same run at once, one of them
    fails.
    """

    files: Files

    def __init__(self, spark: SparkSession, root: str) -> None:
        super().__init__(Files(spark, root), root)
        self.spark = spark

    def read(self, dataset: str, run: str | None = None) -> DataFrame:
        """The rows of a run with the dataset's schema. ``run``: by default the complete one that is current.

        Raises JobFailed as :meth:`current_run` does.
        """
        run, manifest = (run, self.manifest(dataset, run) or {}) if run else self.current_run(dataset)
        parts = (manifest.get("parts") or {}).get(dataset)
        if parts is not None:
            return self.read_parts(dataset, parts)
        return self.spark.read.schema(DATASETS[dataset].ddl).parquet(self.folder(dataset, run))

    def read_parts(self, dataset: str, parts: Mapping[str, str]) -> DataFrame:
        """The rows of the dates in ``parts``, which maps each ISO date to the run that wrote it."""
        kind = DATASETS[dataset]
        if not parts:
            return self.spark.createDataFrame([], kind.ddl)
        places = [f"{self.folder(dataset, run)}/date={day}" for day, run in sorted(parts.items())]
        reader = self.spark.read.schema(kind.ddl).option("basePath", self.folder(dataset))
        return reader.parquet(*places).select(*kind.columns)

    def write(self, frame: DataFrame, dataset: str, run: str, *, append: bool = False) -> None:
        """Write a run's rows in the dataset's columns. Overwrites an earlier attempt, or with ``append`` adds to it."""
        kind = DATASETS[dataset]
        missing = set(kind.columns) - set(frame.columns)
        if missing:
            raise ValueError(f"{dataset} lacks the columns {sorted(missing)}")
        writer = frame.select(*kind.columns).write.mode("append" if append else "overwrite").options(**_WRITING)
        writer.partitionBy(*kind.partitions).parquet(self.folder(dataset, run))

    def write_by(self, frame: DataFrame, column: str, datasets: Sequence[str], run: str) -> None:
        """Write the rows of several datasets in one pass. ``column`` holds the name of each row's dataset.

        Each file has the columns of all these datasets, null where they belong to another one.
        """
        staging = self.staging(run)
        frame.write.mode("overwrite").options(**_WRITING).partitionBy(column).parquet(staging)
        self.adopt({name: f"{staging}/{column}={name}" for name in datasets}, run)

    def staging(self, run: str) -> str:
        """The URL of a folder for the files of ``run`` until :meth:`adopt`. It does not exist."""
        staging = f"{self.root}/{STAGING}/run={run}"
        self.files.remove(staging)
        return staging

    def adopt(self, sources: Mapping[str, str], run: str, names: Collection[str] | None = None) -> None:
        """Move the files of ``run`` from the staging folders ``sources``, by dataset, and remove the rest of them.

        ``names``: of the files to move, if there may be others; None: all. Raises JobFailed where one is missing.
        """
        missing = set(names or ())
        for dataset, source in sources.items():
            target = self.folder(dataset, run)
            self.files.remove(target)
            is_whole = names is None and self.files.exists(source)
            self.files.make_folder(target.rpartition("/")[0] if is_whole else target)
            if is_whole:
                self._move(source, target)
            else:
                listed = (each.url.rpartition("/")[2] for each in self.files.list(source))
                for name in listed:
                    if names is not None and name in names:
                        self._move(f"{source}/{name}", f"{target}/{name}")
                        missing.discard(name)
        if missing:
            raise JobFailed(f"{self.root} lacks files that tasks have written, such as {min(missing)}")
        self.files.remove(f"{self.root}/{STAGING}/run={run}")

    def _move(self, source: str, target: str) -> None:
        if not self.files.rename(source, target):
            raise JobFailed(f"{source} could not be moved to {target}")
