"""The job ``validate``: sorts bodies into ``accepted`` and ``quarantined``, with a reason for the latter."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from babelgate.envelope.contract import LANGS
from babelgate.pipeline.errors import JobFailed, QualityBroken
from babelgate.pipeline.spark.console import progress, say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, Manifest, folder, run_id, unchanged
from babelgate.pipeline.storage.input_files import InputFile, are_small, contents, find
from babelgate.pipeline.storage.inputs import ReadOptions
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.schemas import ddl
from babelgate.pipeline.validate.classify import FAULTS, SCHEMA_FAULTS
from babelgate.pipeline.validate.validation_task import (
    COLUMNS,
    RowKind,
    plan_tasks,
    validate_batches,
    write_files,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATASETS = ("accepted", "quarantined")
REASONS = (
    "invalid_json",
    "too_deep",
    "invalid_job",
    "missing_urn",
    "missing_meta",
    "unsupported_schema_version",
    "invalid_data",
    "missing_trace_id",
    "invalid_attempts",
    "number_out_of_range",
    "invalid_id",
    "invalid_queue",
    "invalid_lang",
    "invalid_created_at",
    "invalid_dead_letter",
    *SCHEMA_FAULTS,
    *FAULTS,
)
_LISTED_INPUTS = 1000
_LISTED_VIOLATIONS = 50
_PRINTED_VIOLATIONS = 10


def validate(
    launch: Launch,
    inputs: Sequence[str],
    output: str,
    reading: ReadOptions,
    max_quarantine_rate: float | None = None,
    force: bool = False,
    schemas: bytes | None = None,
) -> Manifest:
    """Run the job and print its result. Returns the manifest of the run. ``schemas``: a bundle of those to check.

    Raises UsageError for a missing input, JobFailed, QualityBroken.
    """
    files = list_input_files(inputs)
    if not files:
        say(f"warning: {' '.join(inputs)}: there are no files to read")
    options = _options(reading, schemas)
    run = run_id("validate", contents(files), options)
    done = None if force else unchanged(output, DATASETS, run)
    if done is None:
        with launch.spark("validate", short=are_small(file.size for file in files)) as spark:
            store = DatasetStore(spark, output)
            with exclusive_lock(store.files, store.lock("validate"), "validate"):
                done = None if force else _completed(store, run)
                manifest = done or _run(spark, store, files, reading, run, schemas)
                folders = {name: store.current(name) for name in DATASETS}
    else:
        manifest = done
        reader = DatasetReader.without_spark(output)
        folders = {name: reader.current(name) for name in DATASETS}
    # After ``erase`` or a repetition, a run is in another folder than that of its id.
    places = {name: folder(output, name, current) for name, current in folders.items()}
    _print_result(manifest, places, done is not None)
    launch.summarize({**manifest, "unchanged": done is not None, "paths": places})
    counts = manifest["counts"]
    if max_quarantine_rate is not None and counts["quarantine_rate"] > max_quarantine_rate:
        raise QualityBroken(
            f"{counts['quarantine_rate']:.2%} of the bodies are quarantined, more than {max_quarantine_rate:.2%}"
        )
    return manifest


def _completed(store: DatasetStore, run: str) -> Manifest | None:
    """The manifest of the run, or of its last repetition, if it is complete; it is current then."""
    # Only a run that was made once has been repeated. Each kept run has a manifest to read.
    is_made = store.files.exists(store.folder(DATASETS[0], run))
    return store.completed(DATASETS, store.newest(DATASETS[0], run) or run) if is_made else None


def _options(reading: ReadOptions, schemas: bytes | None) -> dict[str, Any]:
    """What a result depends on beside the inputs."""
    digest = {} if schemas is None else {"schemas_sha256": hashlib.sha256(schemas).hexdigest()}
    return {**reading._asdict(), **digest}


def list_input_files(inputs: Sequence[str]) -> list[InputFile]:
    """The files of the arguments ``inputs``, each once. Raises UsageError, JobFailed."""
    found: dict[str, InputFile] = {}
    for url in inputs:
        try:
            found |= {file.url: file for file in find(url)}
        except FileNotFoundError:
            raise click.UsageError(f"{url}: there is no such file or folder") from None
        except ValueError as error:
            raise click.UsageError(f"{url}: {error}") from None
        except OSError as error:
            raise JobFailed(f"{url} cannot be listed: {error}") from None
    return list(found.values())


def _run(
    spark: SparkSession,
    store: DatasetStore,
    files: Sequence[InputFile],
    reading: ReadOptions,
    run: str,
    schemas: bytes | None,
) -> Manifest:
    began = time.monotonic()
    tasks = plan_tasks(files, reading.form)
    say(f"validate: {len(files)} files, {sum(file.size for file in files)} bytes, {len(tasks)} tasks, run {run}")
    folder_id = store.unused(DATASETS, run)
    counts = _write_rows(spark, store, tasks, reading, run, folder_id, schemas)
    if schemas is not None:
        counts["violations"] = _violations(store, folder_id) if set(SCHEMA_FAULTS) & counts["reasons"].keys() else []
    listed = [{"url": file.url, "size": file.size, "modified_ns": file.modified_ns} for file in files]
    facts = {
        "job": "validate",
        "run_id": run,
        "options": _options(reading, schemas),
        "inputs": {
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "first": listed[:_LISTED_INPUTS],
        },
        "counts": counts,
        "seconds": round(time.monotonic() - began, 3),
    }
    return store.publish(DATASETS, folder_id, facts)


def _write_rows(
    spark: SparkSession,
    store: DatasetStore,
    tasks: Sequence[Any],
    reading: ReadOptions,
    run: str,
    folder_id: str,
    schemas: bytes | None,
) -> dict[str, Any]:
    """Write and count the rows of both datasets in one pass. ``run``: its id; ``folder_id``: that of its folder."""
    with progress(spark, "validate"):
        if store.files.is_local:
            return _counts(*_written_by_tasks(spark, store, tasks, reading, run, folder_id, schemas))
        numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
        task = partial(validate_batches, tasks=tasks, reading=reading, run=run, schemas=schemas)
        rows = numbers.mapInArrow(task, ddl(COLUMNS))
        store.write_by(rows, "verdict", DATASETS, folder_id)
        return _counts(*_counted(store, folder_id))


def _written_by_tasks(
    spark: SparkSession,
    store: DatasetStore,
    tasks: Sequence[Any],
    reading: ReadOptions,
    run: str,
    folder_id: str,
    schemas: bytes | None,
) -> tuple[Iterable[tuple[RowKind, int]], int]:
    """Let the tasks write their files, which takes half the time: Java then neither reads nor encodes the rows."""
    staging = store.staging(folder_id)
    folder = store.files.local_path(staging)
    task = partial(write_files, reading=reading, run=run, folder=folder, schemas=schemas)
    written = spark.sparkContext.parallelize(tasks, max(1, len(tasks))).map(task).collect()
    names = {name for each in written for name in each.files}
    store.adopt({name: f"{staging}/verdict={name}" for name in DATASETS}, folder_id, names)
    return [kind for each in written for kind in each.kinds], sum(each.body_bytes for each in written)


def _counted(store: DatasetStore, folder_id: str) -> tuple[Iterable[tuple[RowKind, int]], int]:
    """The same of files that Spark wrote, wherever it can write."""
    from pyspark.sql import functions as f

    lang = f.when(f.col("lang").isin(*LANGS), f.col("lang")).otherwise("unknown").alias("lang")
    columns = {"reason": "string", "rewritten": "boolean"}
    kinds: list[tuple[RowKind, int]] = []
    size = 0
    for dataset in DATASETS:
        rows = store.read(dataset, folder_id)
        absent = {name: f.lit(None).cast(kind) for name, kind in columns.items() if name not in rows.columns}
        by = rows.withColumns(absent).groupBy("reason", lang, "rewritten", "has_dead_letter")
        for row in by.agg(f.count("*").alias("n"), f.sum("body_bytes").alias("bytes")).collect():
            kinds.append((RowKind(dataset, row.reason, row.lang, row.rewritten, row.has_dead_letter), row.n))
            size += row.bytes
    return kinds, size


def _violations(store: DatasetStore, folder_id: str) -> list[dict[str, Any]]:
    """The places that schemas refuse, with the number of bodies; those of most bodies first. An index of an array is
    ``*`` there."""
    from pyspark.sql import functions as f

    place = f.regexp_replace("violation.pointer", "/[0-9]+(?=/|$)", "/*").alias("pointer")
    each = store.read("quarantined", folder_id).select(
        "job", "source_file", "source_at", f.explode("violations").alias("violation")
    )
    places = each.select("job", place, "violation.code", "source_file", "source_at").distinct()
    counted = places.groupBy("job", "pointer", "code").agg(f.count("*").alias("bodies"))
    first = counted.orderBy(f.desc("bodies"), "job", "pointer", "code").limit(_LISTED_VIOLATIONS)
    return [row.asDict() for row in first.collect()]


def _counts(kinds: Iterable[tuple[RowKind, int]], body_bytes: int) -> dict[str, Any]:
    """The counts of the manifest: of ``kinds`` of rows, each with the number of its rows."""
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    langs: dict[str, Counter[str]] = {name: Counter() for name in (*LANGS, "unknown")}
    rewritten = dead_letters = 0
    for kind, count in kinds:
        verdicts[kind.verdict] += count
        langs[kind.lang][kind.verdict] += count
        if kind.reason is not None:
            reasons[kind.reason] += count
        rewritten += count if kind.rewritten else 0
        dead_letters += count if kind.has_dead_letter else 0
    total, quarantined = verdicts.total(), verdicts["quarantined"]
    return {
        "rows": total,
        "accepted": verdicts["accepted"],
        "quarantined": quarantined,
        "quarantine_rate": quarantined / total if total else 0.0,
        "rewritten": rewritten,
        "dead_letters": dead_letters,
        "bytes": body_bytes,
        "reasons": {reason: reasons[reason] for reason in REASONS if reasons[reason]},
        "langs": {name: {verdict: of[verdict] for verdict in DATASETS} for name, of in langs.items() if of},
    }


def _print_result(manifest: Manifest, places: Mapping[str, str], is_old: bool) -> None:
    counts = manifest["counts"]
    if is_old:
        say(f"Nothing has changed since run {manifest['run_id']}; use --force to repeat it.")
    click.echo(
        f"{counts['rows']} bodies: {counts['accepted']} accepted ({counts['rewritten']} of them rewritten), "
        f"{counts['quarantined']} quarantined ({counts['quarantine_rate']:.2%})"
    )
    for reason, count in sorted(counts["reasons"].items(), key=lambda each: -each[1]):
        click.echo(f"  {count:>10}  {reason}")
    for each in counts.get("violations", ())[:_PRINTED_VIOLATIONS]:
        click.echo(f"  {each['bodies']:>10}  {each['code']}: {each['job']} at {each['pointer']}")
    for name, place in places.items():
        click.echo(f"{name}: {place}")
