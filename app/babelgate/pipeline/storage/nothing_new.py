"""What a job asks before it starts Spark: whether there is anything to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.locks import exclusive_lock

_Found = TypeVar("_Found")
_Result = TypeVar("_Result")


def without_spark(root: str, check: Callable[[DatasetReader], _Result | None]) -> _Result | None:
    """What ``check`` finds in the lake at ``root``, a local folder, s3:// or gs://; None: the job is for Spark.

    That is so too for other stores, and for an object store that Arrow does not reach. Spark has other credentials
    there. Raises what ``check`` raises, but of an object store no OSError.
    """
    try:
        reader = DatasetReader.without_spark(root)
    except (OSError, ValueError):
        return None
    if reader.files.is_local:
        return check(reader)
    assert isinstance(reader.files, ArrowFiles)
    try:
        return check(reader) if reader.files.is_object_store else None
    except OSError:
        return None


def done_under_lock(
    reader: DatasetReader,
    job: str,
    find: Callable[[DatasetReader], _Found | None],
    finish: Callable[[DatasetReader, _Found], _Result],
) -> _Result | None:
    """What ``finish`` makes of what ``find`` has found under the lock of ``job``; None if that is nothing.

    ``find`` only reads. Raises JobFailed if another ``job`` is at work, on an object store only with something found.
    """
    # On an object store the lock takes two seconds. A job that starts Spark would lose them.
    if not reader.files.is_local and find(reader) is None:
        return None
    with exclusive_lock(reader.files, reader.lock(job), job):
        found = find(reader)
        return None if found is None else finish(reader, found)
