"""What a job asks before it starts Spark: whether there is anything to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyarrow import ArrowInvalid

from babelgate.masking import mask_text, mask_url
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.inputs import first_line
from babelgate.pipeline.storage.locks import exclusive_lock

_Found = TypeVar("_Found")
_Result = TypeVar("_Result")


def without_spark(root: str, check: Callable[[DatasetReader], _Result | None]) -> _Result | None:
    """What ``check`` finds in the lake at ``root``, a local folder or s3:// or gs://. None: the job is for Spark.

    Also None for other stores, and where Arrow fails in an object store: Spark may have other credentials, and it reads
    URLs that Arrow refuses. Otherwise raises what ``check`` raises.
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
    except (OSError, ArrowInvalid):
        return None


@contextmanager
def owning(reader: DatasetReader, lock: str, job: str) -> Iterator[None]:
    """Own the lock at the URL ``lock`` during the block, as :func:`exclusive_lock` does.

    An OSError of an object store is a JobFailed once the lock is owned: Spark would find the lock that is left.
    """
    is_owned = False
    try:
        with exclusive_lock(reader.files, lock, job):
            is_owned = True
            yield
    except OSError as error:
        if not is_owned or reader.files.is_local:
            raise
        where = mask_url(reader.root)
        raise JobFailed(f"{job} of {where} failed, with its lock: {mask_text(first_line(error))}") from error


def done_under_lock(
    reader: DatasetReader,
    job: str,
    find: Callable[[DatasetReader], _Found | None],
    finish: Callable[[DatasetReader, _Found], _Result],
) -> _Result | None:
    """What ``finish`` makes of what ``find`` has found under the lock of ``job``; None if that is nothing.

    ``find`` only reads. None, without a lock, in a local folder where ``job`` has never run. Raises JobFailed if
    another ``job`` is at work, on an object store only with something found.
    """
    lock = reader.lock(job)
    if reader.files.is_local:
        # A lock makes its folder.
        if not reader.files.exists(lock.rpartition("/")[0]):
            return None
    # On an object store the lock takes two seconds. A job that starts Spark would lose them.
    elif find(reader) is None:
        return None
    with owning(reader, lock, job):
        found = find(reader)
        return None if found is None else finish(reader, found)
