"""What each job reads and writes: datasets with their columns, and counts where the job has them.

Names follow https://openlineage.io/docs/spec/naming: the namespace is the store, the name the path in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from babelgate.pipeline.storage.datasets import folder
from babelgate.pipeline.storage.input_files import S3_SCHEMES
from babelgate.pipeline.storage.schemas import DATASETS

_MOST_INPUTS = 100
"""The most inputs that an event names; a shell may expand a pattern to thousands of files."""


class LineageDataset(NamedTuple):
    """A dataset of an event. ``columns``: types by name, of a table of the lake. ``rows``, ``size`` (bytes) and
    ``files``: how much of it a run has read or written, None where the job does not count it."""

    url: str
    columns: Mapping[str, str] | None = None
    rows: int | None = None
    size: int | None = None
    files: int | None = None


class RunDatasets(NamedTuple):
    """What a run reads, and what it writes."""

    inputs: Sequence[LineageDataset]
    outputs: Sequence[LineageDataset]


Options = Mapping[str, Any]
"""The options of a command, by the names of its parameters."""
Facts = Mapping[str, Any]
"""The facts of a summary; empty before the job has any."""


def datasets_of(job: str, options: Options, facts: Facts) -> RunDatasets | None:
    """What a run of ``job`` reads and writes; None for a command that writes nothing."""
    known = _JOBS.get(job)
    return None if known is None or options.get("dry_run") else known(options, facts)


def dataset_name(url: str) -> tuple[str, str]:
    """The namespace and the name of a dataset at ``url``, a path or a URL, without secrets that it may have."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file") or "/" in url.partition(":")[0]:
        path = url if parts.scheme != "file" else unquote(parts.path)
        return "file", str(Path(path).absolute())
    if parts.scheme == "hdfs":
        return f"hdfs://{_without_user(parts.netloc)}", f"/{parts.path.strip('/')}"
    # In Azure's URLs a container stands before the @.
    is_azure = parts.scheme.startswith(("abfs", "wasb")) and ":" not in parts.netloc
    authority = parts.netloc if is_azure else _without_user(parts.netloc)
    scheme = "s3" if parts.scheme in S3_SCHEMES else parts.scheme
    return f"{scheme}://{authority}", parts.path.strip("/") or "/"


def _without_user(authority: str) -> str:
    return authority.rpartition("@")[2]


def _tables(lake: str, names: Iterable[str], rows: Mapping[str, int] | None = None) -> list[LineageDataset]:
    return [LineageDataset(folder(lake, name), DATASETS[name].columns, (rows or {}).get(name)) for name in names]


def _new(facts: Facts) -> bool:
    """Whether a run has written something, so that its counts are not those of a former run."""
    return bool(facts) and not facts.get("unchanged")


def _files(urls: Sequence[str]) -> list[LineageDataset]:
    return [LineageDataset(url) for url in urls[:_MOST_INPUTS]]


def _validate(options: Options, facts: Facts) -> RunDatasets:
    inputs, written = _files(options["inputs"]), {}
    if _new(facts):
        counts, read = facts["counts"], facts["inputs"]
        written = {name: counts[name] for name in ("accepted", "quarantined")}
        if len(inputs) == 1:
            inputs = [inputs[0]._replace(rows=counts["rows"], size=read["bytes"], files=read["files"])]
    return RunDatasets(inputs, _tables(options["lake"], ("accepted", "quarantined"), written))


def _ingest(options: Options, facts: Facts) -> RunDatasets:
    written = {"journal": facts["records"], "journal_corrupt": facts["corrupt"]} if facts else {}
    return RunDatasets(
        [LineageDataset(options["landing"], files=facts.get("files"))],
        _tables(options["lake"], ("journal", "journal_corrupt", "journal_gaps"), written),
    )


def _compact(options: Options, facts: Facts) -> RunDatasets:
    written = {"journal": facts["rows"]} if _new(facts) else {}
    lake = options["lake"]
    return RunDatasets(_tables(lake, ("journal",)), _tables(lake, ("journal",), written))


def _metrics(options: Options, _: Facts) -> RunDatasets:
    from babelgate.pipeline.metrics.stages import DATASETS as MEASURED

    return RunDatasets(_tables(options["lake"], ("journal", "journal_gaps")), _tables(options["lake"], MEASURED))


def _report(options: Options, facts: Facts) -> RunDatasets:
    from babelgate.pipeline.report.duckdb_rows import DATASETS as REPORTED

    output = options["output"] or (f"report.{options['form'] or 'html'}")
    return RunDatasets(_tables(options["lake"], REPORTED), [LineageDataset(str(output), size=facts.get("bytes"))])


def _erase(options: Options, _: Facts) -> RunDatasets:
    from babelgate.pipeline.erase.rows import ERASED

    return RunDatasets(_tables(options["lake"], ERASED), _tables(options["lake"], ERASED))


def _send(options: Options, facts: Facts) -> RunDatasets:
    """Reads files or a dataset; writes queues of a gateway, and the ledger."""
    lake, origin = options["lake"], options.get("origin", "journal")
    sent = facts if _new(facts) else {}
    inputs = _tables(lake, (origin,)) if origin in DATASETS else _files(options["inputs"])
    queues = [
        LineageDataset(f"{options['url'].rstrip('/')}/queues/{name}", rows=by_status.get("accepted", 0))
        for name, by_status in sent.get("by_queue", {}).items()
    ]
    written = {"ledger": sent["counts"]["selected"]} if sent else {}
    return RunDatasets(inputs, [*queues, *_tables(lake, ("ledger",), written)])


_JOBS: Mapping[str, Callable[[Options, Facts], RunDatasets]] = {
    "validate": _validate,
    "ingest": _ingest,
    "compact": _compact,
    "metrics": _metrics,
    "report": _report,
    "erase": _erase,
    "redrive": _send,
    "replay": _send,
    "backfill": _send,
}
