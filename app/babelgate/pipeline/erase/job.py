"""The job ``erase``: makes runs without the bodies of some messages, and then makes them current.

Rows stay, and so do all figures. Files with bodies stay until ``maintain`` and ``compact`` remove replaced files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from typing import Any

import msgspec

from babelgate.pipeline.erase.rows import ERASED, DatasetFiles, Found, Messages
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.compact import merged_with, retired_by
from babelgate.pipeline.journal.reader import Compacted, CompactedDate, Snapshot, now_ms, snapshot
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader, run_id
from babelgate.pipeline.storage.input_files import find
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.schemas import JOURNAL, JOURNAL_CORRUPT
from babelgate.pipeline.validate.job import DATASETS as VALIDATED

_AUDIT = "_erasures"


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """The result, and a line of the audit. ``at``: Unix ms; ``rows``: whose bodies were erased, by dataset.

    ``sources``: input files that exist and have these bodies, too. ``traces``: as given, ``messages``: with their ids.
    """

    at: int
    messages: Sequence[str]
    traces: Sequence[str]
    rows: Mapping[str, int]
    sources: Sequence[str]


def erase(root: str, messages: Iterable[str], traces: Iterable[str], dry_run: bool = False) -> Erasure:
    """Run the job. Raises JobFailed, also while ``compact`` or ``validate`` is at work.

    A killed run has changed nothing, or some of the datasets; another run does the rest.
    """
    try:
        files = ArrowFiles(root)
        reader = DatasetReader(files, files.root)
        if not any(files.exists(reader.folder(name)) for name in ERASED):
            raise JobFailed(f"{root} has no dataset: run `babelgate pipeline ingest` or `validate` first")
        with ExitStack() as held:
            for job, name in (("compact", JOURNAL.name), ("validate", VALIDATED[0])):
                if files.exists(reader.folder(name)):
                    held.enter_context(exclusive_lock(files, reader.lock(job), job))
            return _Job(reader, files, frozenset(messages), frozenset(traces)).run(dry_run)
    except (OSError, ValueError) as error:
        raise JobFailed(f"Bodies in {root} could not be erased: {error}") from error


class _Job:
    def __init__(self, reader: DatasetReader, files: ArrowFiles, ids: frozenset[str], traces: frozenset[str]) -> None:
        self._reader = reader
        self._files = files
        self._of = {name: DatasetFiles(files, name) for name in ERASED}
        self._messages = Messages(ids, traces)
        self._found: dict[str, dict[str, Found]] = {name: {} for name in ERASED}

    def run(self, dry_run: bool) -> Erasure:
        """Find the rows, and unless ``dry_run`` write what has some of them again."""
        reader = self._reader
        validated = reader.current(VALIDATED[0])
        if validated is not None and not dry_run:
            # Completes an erasure that was killed after the first of them.
            reader.completed(VALIDATED, validated)
        journal = snapshot(reader)
        folders = self._folders(journal)
        urls = {name: [url for each in of for url in self._parquet(each)] for name, of in folders.items()}
        traced = (self._of[name].ids_of(url, self._messages.traces) for name, of in urls.items() for url in of)
        self._messages = self._messages._replace(ids=self._messages.ids.union(*traced))
        for name, of in urls.items():
            self._found[name] = {url: self._of[name].find(url, self._messages) for url in of}
        made = Erasure(
            at=now_ms(),
            messages=sorted(self._messages.ids),
            traces=sorted(self._messages.traces),
            rows={name: sum(each.rows for each in of.values()) for name, of in self._found.items()},
            sources=sorted(self._sources()),
        )
        if not dry_run:
            if made.rows[JOURNAL.name] or made.rows[JOURNAL_CORRUPT.name]:
                self._rewrite_journal(journal)
            if any(made.rows[name] for name in VALIDATED):
                self._rewrite_validated()
            self._disown_former_runs()
            self._keep_audit(made)
        return made

    def _folders(self, journal: Snapshot) -> dict[str, list[str]]:
        """The URLs of the folders with the current rows of each dataset."""
        reader = self._reader
        corrupt = [*journal.compacted.corrupt, *(each.corrupt_folder for each in journal.batches)]
        folders = {
            JOURNAL.name: journal.folders(),
            JOURNAL_CORRUPT.name: [f"{reader.folder(JOURNAL_CORRUPT.name)}/{each}" for each in corrupt if each],
        }
        current = {name: reader.current(name) for name in VALIDATED}
        return folders | {name: [reader.folder(name, run)] for name, run in current.items() if run is not None}

    def _parquet(self, folder: str) -> Iterator[str]:
        for each in self._files.walk(folder):
            name = each.url.rpartition("/")[2]
            if name.endswith(".parquet") and not name.startswith(("_", ".")):
                yield each.url

    def _sources(self) -> set[str]:
        """The input files of the rows that were found, as far as they exist."""
        named = {url for of in self._found.values() for each in of.values() for url in each.sources}
        return {url for url in named if _exists(url)}

    def _rewrite_journal(self, before: Snapshot) -> None:
        """Compact the batches and write the dates with bodies of the messages again, as ``compact`` does with Spark."""
        reader, home = self._reader, self._reader.folder(JOURNAL.name)
        run = run_id("erase", sorted(self._messages.ids), {"after": before.run, "attempt": uuid.uuid4().hex})
        parts = before.compacted.parts
        touched = {day for day, part in parts.items() if self._has(JOURNAL.name, f"{home}/{part.folder}")}
        touched |= {day for each in before.batches for day in each.dates}
        rows = before.dates()
        made = {day: self._write_day(before, day, rows[day], run) for day in sorted(touched)}
        corrupt = self._write_corrupt(before, run)
        compacted = Compacted(
            parts=parts | made,
            corrupt=corrupt,
            merged=merged_with(reader, before, (each.batch for each in before.batches)),
            retired=retired_by(reader, before, made, corrupt),
            newest_at=before.newest_at(),
            content=before.known().content(),
        )
        counts = {"batches": len(before.batches), "dates": len(made), "rows": sum(rows[day] for day in made)}
        facts = {"job": "erase", "counts": counts, "compacted": msgspec.to_builtins(compacted)}
        self._files.make_folder(reader.folder(JOURNAL.name, run))
        reader.publish([JOURNAL.name], run, facts)

    def _write_day(self, before: Snapshot, day: str, rows: int, run: str) -> CompactedDate:
        home = self._reader.folder(JOURNAL.name)
        folder = f"run={run}/date={day}"
        target = f"{home}/{folder}"
        former = before.compacted.parts.get(day)
        if former is not None:
            self._write_again(JOURNAL.name, f"{home}/{former.folder}", target)
        batches = [each.folder for each in before.batches if each.folder is not None and day in each.dates]
        urls = [url for each in batches for url in self._parquet(f"{home}/{each}")]
        if urls:
            # Files of former runs keep their names, so this one has a name of its own.
            name = f"{target}/part-batches-{run}.parquet"
            self._of[JOURNAL.name].write(urls, name, self._messages, date.fromisoformat(day))
        footers: list[Any] = [self._files.parquet_metadata(url) for url in self._parquet(target)]
        written = sum(each.num_rows for each in footers)
        if written != rows:
            raise JobFailed(f"{day} has {rows} records, but {written} were written. Nothing was changed.")
        return CompactedDate(folder, rows)

    def _write_corrupt(self, before: Snapshot, run: str) -> list[str]:
        """The folders of ``journal_corrupt`` after this run: one, unless they are as before."""
        home = self._reader.folder(JOURNAL_CORRUPT.name)
        batches = [each.corrupt_folder for each in before.batches if each.corrupt_folder is not None]
        folders = [*before.compacted.corrupt, *batches]
        if not (batches or any(self._has(JOURNAL_CORRUPT.name, f"{home}/{each}") for each in folders)):
            return before.compacted.corrupt
        urls = [url for each in folders for url in self._parquet(f"{home}/{each}")]
        self._of[JOURNAL_CORRUPT.name].write(urls, f"{home}/run={run}/part-0.parquet", self._messages)
        return [f"run={run}"]

    def _write_again(self, dataset: str, source: str, target: str) -> None:
        """Write the files of the folder ``source`` to ``target``, without bodies of the messages.

        Files without such bodies are copied as they are.
        """
        for url in self._parquet(source):
            place = f"{target}/{url.rpartition('/')[2]}"
            if self._found[dataset][url].rows:
                self._of[dataset].write([url], place, self._messages)
            else:
                self._files.copy(url, place)

    def _rewrite_validated(self) -> None:
        """Copy the current run without these bodies. It keeps the id, so the same inputs still give nothing new."""
        reader, former = self._reader, self._reader.current(VALIDATED[0])
        facts = None if former is None else reader.manifest(VALIDATED[0], former)
        if former is None or facts is None or reader.current(VALIDATED[1]) != former:
            raise JobFailed("The datasets of validate are not of one run: start validate once more.")
        run = run_id("erase", sorted(self._messages.ids), {"after": former, "attempt": uuid.uuid4().hex})
        for name in VALIDATED:
            self._files.make_folder(reader.folder(name, run))
            self._write_again(name, reader.folder(name, former), reader.folder(name, run))
        kept = {key: value for key, value in facts.items() if key not in ("dataset", "version", "completed_at")}
        reader.publish(VALIDATED, run, kept)

    def _disown_former_runs(self) -> None:
        """Remove the manifests of former runs of ``validate`` with such bodies: they must not be current again."""
        for name in VALIDATED:
            current = self._reader.current(name)
            for run in self._reader.runs(name):
                folder = self._reader.folder(name, run)
                if run != current and any(self._find(name, url).rows for url in self._parquet(folder)):
                    self._files.remove(f"{folder}/_manifest.json")

    def _find(self, dataset: str, url: str) -> Found:
        found = self._found[dataset].get(url)
        return self._of[dataset].find(url, self._messages) if found is None else found

    def _has(self, dataset: str, folder: str) -> bool:
        return any(self._found[dataset][url].rows for url in self._parquet(folder))

    def _keep_audit(self, made: Erasure) -> None:
        folder = f"{self._reader.root}/{_AUDIT}"
        self._files.make_folder(folder)
        self._files.write(f"{folder}/{made.at}-{uuid.uuid4().hex[:8]}.json", msgspec.json.encode(made) + b"\n")


def _exists(url: str) -> bool:
    """Whether the input file is there. One that cannot be looked for counts as there."""
    try:
        return bool(find(url))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
