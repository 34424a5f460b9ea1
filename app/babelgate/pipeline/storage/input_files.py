"""Lists and opens input files of any URL that Arrow reads: local paths, ``file:``, ``s3:``, ``gs:``, etc.

Spark's own readers fail the job on a damaged file, or drop its end silently. Tasks therefore open their files here and
read them as streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from pyarrow import fs

LITTLE_BYTES = 4 * 1024 * 1024
"""Up to this size of all input files, Spark costs less with the settings of a short job: some 200,000 records."""

S3_SCHEMES = "s3", "s3a", "s3n"
"""Schemes of one store: that of its own clients, and those of Hadoop."""
OBJECT_STORE_SCHEMES = (*S3_SCHEMES, "gs")
"""Schemes of the stores where Arrow replaces a file atomically: it appears when it is closed."""


class InputFile(NamedTuple):
    """A file as it was listed: ``size`` in bytes, ``modified_ns`` in Unix ns (0 if unknown).

    ``is_regular`` is false for anything else, such as a pipe, because opening a pipe could block forever.
    """

    url: str
    size: int
    modified_ns: int
    is_regular: bool


def locate(url: str) -> tuple[Any, str]:
    """The Arrow file system of ``url`` and the path in it. Raises ValueError, OSError."""
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return fs.LocalFileSystem(), url2pathname(urlsplit(url).path)
    if len(scheme) < 2:
        # No scheme, or a Windows drive.
        return fs.LocalFileSystem(), str(Path(url).absolute())
    found: tuple[Any, str] = fs.FileSystem.from_uri(native_url(url))
    return found


def native_url(url: str) -> str:
    """``url`` as the clients of its store spell it: Hadoop has schemes of its own for S3."""
    scheme, separator, rest = url.partition("://")
    return f"{S3_SCHEMES[0]}://{rest}" if separator and scheme in S3_SCHEMES else url


def find(url: str, *, hidden: bool = False) -> list[InputFile]:
    """The file ``url``, or the files below the folder ``url``, sorted by name. Raises FileNotFoundError, OSError.

    In folders, names that begin with ``_`` or ``.`` are skipped, as Spark does, unless ``hidden``.
    """
    system, path = locate(url)
    info = system.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(url)
    if info.type != fs.FileType.Directory:
        return [_input_file(url, path, info)]
    below = system.get_file_info(fs.FileSelector(path, recursive=True))
    return sorted(_visible(url, path, below, hidden))


def are_small(sizes: Iterable[int]) -> bool:
    """Whether files of these sizes have at most :data:`LITTLE_BYTES` together."""
    return sum(sizes) <= LITTLE_BYTES


def contents(files: Iterable[InputFile]) -> list[list[Any]]:
    """The content of each file as a JSON value, of which a run id is made: it differs once the file has changed."""
    return [[file.url, file.size, file.modified_ns] for file in files]


def _visible(url: str, root: str, below: list[Any], hidden: bool = False) -> Iterator[InputFile]:
    for info in below:
        inner = info.path.removeprefix(root).strip("/")
        shown = hidden or not any(part.startswith(("_", ".")) for part in inner.split("/"))
        if info.type != fs.FileType.Directory and shown:
            yield _input_file(_below(url, inner), info.path, info)


def _below(url: str, inner: str) -> str:
    """The URL of the file ``inner`` below the folder ``url``, with its name percent-encoded."""
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(inner)}").geturl()


def _input_file(url: str, path: str, info: Any) -> InputFile:
    local = len(urlsplit(url).scheme) < 2 or url.startswith("file:")
    regular = info.type == fs.FileType.File
    return InputFile(Path(path).as_uri() if local else url, info.size or 0, info.mtime_ns or 0, regular)
