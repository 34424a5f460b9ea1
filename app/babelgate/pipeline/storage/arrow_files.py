"""Reads and lists files through Arrow, without Spark: what a command asks before it starts Spark, or instead."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from babelgate.pipeline.storage.files import FileStatus
from babelgate.pipeline.storage.input_files import locate


class ArrowFiles:
    """The file system of ``url``, with the reading methods of :class:`~babelgate.pipeline.storage.files.Files`.

    Raises OSError, and ValueError for a URL that Arrow does not read. All URLs of a call are at or below ``url``.
    """

    def __init__(self, url: str) -> None:
        self._system, path = locate(url)
        self._path = path.rstrip("/")
        self.is_local = isinstance(self._system, fs.LocalFileSystem)
        # There a file appears, or is replaced, when it is closed. On Azure Arrow makes an empty one first.
        self.is_object_store = self._system.type_name in ("s3", "gcs")
        # Of folders without an object of their own: https://github.com/apache/arrow/issues/35993
        self._lists_folders = self._system.type_name != "gcs"
        self.root = self._path if self.is_local else url.rstrip("/")

    def qualified(self, url: str) -> str:
        """``url``, absolute."""
        return str(Path(url).absolute()) if len(urlsplit(url).scheme) < 2 else url

    def path(self, url: str) -> str:
        """The path of ``url`` in the file system."""
        return self._path + url.removeprefix(self.root)

    def exists(self, url: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._system.get_file_info(self.path(url)).type != fs.FileType.NotFound)

    def list(self, url: str) -> list[FileStatus]:
        """The entries of the folder ``url``, sorted by name; empty if there is no such folder."""
        if not self._lists_folders:
            return sorted(self._children(url))
        return sorted(self._below(url))

    def folders(self, url: str, prefix: str) -> Sequence[str]:
        """The names of the folders in ``url`` that begin with ``prefix``, without the prefix, sorted."""
        names = (each.url.rpartition("/")[2] for each in self.list(url) if each.is_folder)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def walk(self, url: str) -> Iterator[FileStatus]:
        """The files below the folder ``url``, sorted by name."""
        if self.is_local:
            for each in self.list(url):
                if each.is_folder:
                    yield from self.walk(each.url)
                else:
                    yield each
        else:
            # One request lists a thousand files of any folders.
            files = (each for each in self._below(url, recursive=True) if not each.is_folder)
            yield from sorted(files, key=lambda each: each.url.split("/"))

    def size(self, url: str) -> int:
        """The size in bytes of the file ``url``, or of all files below the folder ``url``; 0 without either."""
        info = self._system.get_file_info(self.path(url))
        return sum(each.size for each in self.walk(url)) if info.type == fs.FileType.Directory else info.size or 0

    def read(self, url: str) -> bytes | None:
        """The content of a small file; None if there is no such file."""
        try:
            with self._system.open_input_stream(self.path(url)) as stream:
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, url: str, content: bytes, content_type: str | None = None) -> None:
        """Write a small file atomically, and its folder. On an object store it appears when it is closed.

        ``content_type``: with which an object store serves it; None: its default.
        """
        path = self.path(url)
        if not self.is_local:
            metadata = None if content_type is None else {"Content-Type": content_type}
            with self._system.open_output_stream(path, metadata=metadata) as stream:
                stream.write(content)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(path).with_name(f".{Path(path).name}.{uuid.uuid4()}")
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def remove(self, url: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        path = self.path(url)
        kind = self._system.get_file_info(path).type
        if kind == fs.FileType.Directory:
            self._system.delete_dir(path)
        elif kind != fs.FileType.NotFound:
            self._system.delete_file(path)

    def make_folder(self, url: str) -> None:
        """Make a folder and its parents. An object store has none."""
        if self.is_local:
            Path(self.path(url)).mkdir(parents=True, exist_ok=True)

    def copy(self, source: str, target: str) -> None:
        """Copy a file to a URL where nothing exists. On a local file system its folder is made."""
        self.make_folder(target.rpartition("/")[0])
        self._system.copy_file(self.path(source), self.path(target))

    def fetch(self, url: str, path: str) -> None:
        """Copy the file ``url`` to the local file ``path``, whose folder exists. Raises OSError."""
        fs.copy_files(self.path(url), path, self._system, fs.LocalFileSystem())

    def send(self, path: str, url: str) -> None:
        """Copy the local file ``path`` to the file ``url``, which appears whole on an object store. Raises OSError."""
        fs.copy_files(path, self.path(url), fs.LocalFileSystem(), self._system)

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder to a URL where nothing exists."""
        self._system.move(self.path(source), self.path(target))

    def new_file(self, url: str) -> Any:
        """A stream that writes the file ``url``, a context manager. On a local file system its folder is made."""
        self.make_folder(url.rpartition("/")[0])
        return self._system.open_output_stream(self.path(url))

    @contextmanager
    def open_parquet(self, url: str, read_ahead_bytes: int = 0) -> Iterator[Any]:
        """The Parquet file ``url``, as Arrow's ParquetFile. ``read_ahead_bytes``: of a column at once; 0: all of a row
        group."""
        from pyarrow import parquet

        with self._system.open_input_file(self.path(url)) as file:
            yield parquet.ParquetFile(file, buffer_size=read_ahead_bytes)

    def parquet(self, url: str, columns: Sequence[str]) -> Any:
        """The ``columns`` of the Parquet file ``url``, as Arrow's Table."""
        with self.open_parquet(url) as file:
            return file.read(list(columns))

    def parquet_metadata(self, url: str) -> object:
        """The footer of the Parquet file ``url``, as Arrow's FileMetaData."""
        from pyarrow import parquet

        with self._system.open_input_file(self.path(url)) as file:
            return parquet.read_metadata(file)

    def _below(self, url: str, *, recursive: bool = False) -> Iterator[FileStatus]:
        selected = fs.FileSelector(self.path(url), allow_not_found=True, recursive=recursive)
        return map(self._status, self._system.get_file_info(selected))

    def _children(self, url: str) -> Iterable[FileStatus]:
        """The entries of the folder ``url``, of all files below it."""
        found: dict[str, FileStatus] = {}
        for each in self.walk(url):
            name, below, _ = each.url.removeprefix(f"{url}/").partition("/")
            found[name] = FileStatus(f"{url}/{name}", 0, 0, True) if below else each
        return found.values()

    def _status(self, info: fs.FileInfo) -> FileStatus:
        url = self.root + info.path.rstrip("/").removeprefix(self._path)
        modified_at = (info.mtime_ns or 0) // 1_000_000
        return FileStatus(url, info.size or 0, modified_at, info.type == fs.FileType.Directory)
