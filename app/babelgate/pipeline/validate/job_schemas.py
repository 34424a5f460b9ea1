"""The schemas of jobs for ``validate``: the driver reads them, and each process of the tasks compiles them once.

Spark's Python workers import this module, so it imports neither Spark nor click at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from babelgate.extras import how_to_install, missing
from babelgate.pipeline.errors import ExtraMissing, JobFailed
from babelgate.schemas.files import SchemaFault, bundled
from babelgate.schemas.job_schemas import LIBRARY, JobSchemas, compiled, compiled_bundle
from babelgate.urls import refusal_of

REASONS = ("schema_violation", "schema_missing", "schema_check_too_long")
"""The codes of what a schema refuses."""


def read_schemas(place: str, ca_file: Path | None = None, bearer_file: Path | None = None) -> bytes:
    """A bundle of the schemas at ``place``: a directory, a file with a bundle, or the URL of one.

    ``ca_file``: certificates that verify the server's; ``bearer_file``: a token that is sent. Compiles the schemas, and
    blocks for the disk, or for the URL some 10 s. Raises JobFailed for the first fault, ExtraMissing.
    """
    import click

    if "://" not in place:
        if ca_file is not None or bearer_file is not None:
            raise click.UsageError("--schemas-ca-file and --schemas-bearer-file are for a URL")
        return _read_path(Path(place))
    if (refused := refusal_of(place, may_have_query=True)) is not None:
        raise click.UsageError(f"--schemas {refused}")
    from babelgate.schemas.source import BundleNotRead, BundleSource

    try:
        fetched = BundleSource(place, Path(), ca_file=ca_file, bearer_file=bearer_file).fetch()
    except BundleNotRead as error:
        raise JobFailed(f"The schemas were not read: {error}") from None
    assert fetched is not None, "nothing was read before"
    _checked(*compiled_bundle(fetched[0]))
    return fetched[0]


def _read_path(path: Path) -> bytes:
    import click

    if path.is_dir():
        return bundled(_checked(*compiled(path)))
    try:
        bundle = path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--schemas {path}: {error.strerror}") from None
    _checked(*compiled_bundle(bundle))
    return bundle


def _checked(schemas: JobSchemas, faults: Sequence[SchemaFault]) -> JobSchemas:
    if lacking := missing(LIBRARY):
        raise ExtraMissing(f"not installed here: {lacking}; {how_to_install('schemas')}")
    if faults:
        raise JobFailed(f"--schemas: {faults[0]}")
    return schemas


@lru_cache(maxsize=1)
def schemas_of(bundle: bytes) -> JobSchemas:
    """The compiled schemas of ``bundle``, which has no faults. Compiles them at the first call in a process.

    Raises ModuleNotFoundError where the library is missing, as an import would.
    """
    if lacking := missing(LIBRARY):
        raise ModuleNotFoundError(f"No module named {lacking!r}")
    return _checked(*compiled_bundle(bundle))
