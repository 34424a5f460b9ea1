"""Reads the schemas of jobs for ``validate``, in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from babelgate.extras import how_to_install, missing
from babelgate.pipeline.errors import ExtraMissing, JobFailed
from babelgate.schemas.files import SchemaFault, bundled
from babelgate.schemas.job_schemas import LIBRARY, JobSchemas, compiled, compiled_bundle
from babelgate.schemas.source import BundleNotRead, BundleSource
from babelgate.urls import refusal_of


def read_schemas(place: str, ca_file: Path | None = None, bearer_file: Path | None = None) -> bytes:
    """A bundle of the schemas at ``place``: a directory, a file with a bundle, or the URL of one.

    ``ca_file``: certificates that verify the server's; ``bearer_file``: a token that is sent. Compiles the schemas, and
    blocks for the disk, or for the URL some 10 s. Raises JobFailed for the first fault, ExtraMissing.
    """
    if "://" not in place:
        if ca_file is not None or bearer_file is not None:
            raise click.UsageError("--schemas-ca-file and --schemas-bearer-file are for a URL")
        return _read_path(Path(place))
    if (refused := refusal_of(place, may_have_query=True)) is not None:
        raise click.UsageError(f"--schemas {refused}")
    try:
        fetched = BundleSource(place, Path(), ca_file=ca_file, bearer_file=bearer_file).fetch()
    except BundleNotRead as error:
        raise JobFailed(f"The schemas were not read: {error}") from None
    assert fetched is not None, "nothing was read before"
    _checked(*compiled_bundle(fetched[0]))
    return fetched[0]


def _read_path(path: Path) -> bytes:
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
