"""File operations on any URL that Spark reads, through Hadoop's FileSystem. Spark itself has no API for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ABORTABLE = "fs.capability.outputstream.abortable"
"""Capability of Hadoop's object stores: a file appears, or is replaced, when its stream is closed."""


class FileStatus(NamedTuple):
    """A file or folder: full URL, ``size`` in bytes, ``modified_at`` in Unix ms."""

    url: str
    size: int
    modified_at: int
    is_folder: bool


class Files:
    """The file system of ``url``, used from the driver. Each call is one round trip and may raise Py4JJavaError."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        # By its whole name: otherwise each package in it would be looked up, as a class in all jar files.
        self._path = getattr(jvm, "org.apache.hadoop.fs.Path")
        fs = self._path(url).getFileSystem(conf)
        self.is_local = fs.getScheme() == "file"
        # A checksum file beside a local file cannot be replaced together with it, so a reader in between would fail.
        self._fs = fs.getRawFileSystem() if self.is_local else fs
        self._conf = conf

    def qualified(self, url: str) -> str:
        """``url`` with its scheme, absolute."""
        return str(self._fs.makeQualified(self._path(url)).toString())

    def local_path(self, url: str) -> str:
        """The path of a local ``url``, in which nothing is escaped."""
        return str(self._path(url).toUri().getPath())

    def exists(self, url: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._fs.exists(self._path(url)))

    def is_folder(self, url: str) -> bool:
        """Whether there is such a folder."""
        return self.exists(url) and _status(self._fs.getFileStatus(self._path(url))).is_folder

    def list(self, url: str) -> list[FileStatus]:
        """The entries of the folder ``url``, sorted by name; empty if there is no such folder."""
        if not self.exists(url):
            return []
        return sorted(map(_status, self._fs.listStatus(self._path(url))))

    def folders(self, url: str, prefix: str) -> Sequence[str]:
        """The names of the folders in ``url`` that begin with ``prefix``, without the prefix, sorted."""
        names = (each.url.rstrip("/").rpartition("/")[2] for each in self.list(url) if each.is_folder)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def walk(self, url: str) -> Iterator[FileStatus]:
        """The files below the folder ``url``, sorted by name, or the file itself."""
        status = _status(self._fs.getFileStatus(self._path(url)))
        if not status.is_folder:
            yield status
            return
        for each in self.list(url):
            yield from self.walk(each.url)

    def read(self, url: str) -> bytes | None:
        """The content of a small file; None if there is no such file."""
        if not self.exists(url):
            return None
        stream = self._fs.open(self._path(url))
        try:
            return bytes(getattr(self._jvm, "org.apache.commons.io.IOUtils").toByteArray(stream))
        finally:
            stream.close()

    def write(self, url: str, content: bytes) -> None:
        """Write a small file atomically: readers see the former content or the new one.

        On an object store the file appears when it is closed. Elsewhere a temporary file is renamed over the former
        one, which is atomic on local file systems and HDFS. On others the file may be absent for a moment.
        """
        appears_whole = not self.is_local and self._fs.hasPathCapability(self._path(url), _ABORTABLE)
        temporary = f"{url.rpartition('/')[0]}/.{url.rpartition('/')[2]}.{uuid.uuid4()}"
        stream = self._fs.create(self._path(url if appears_whole else temporary), True)
        try:
            stream.write(bytearray(content))
            if self.is_local or stream.hasCapability("hsync"):
                stream.hsync()
        except BaseException:
            if appears_whole:
                stream.abort()
            raise
        finally:
            stream.close()
        if not appears_whole:
            self._replace(temporary, url)

    def _replace(self, source: str, target: str) -> None:
        if self.is_local:
            # The raw file system renames as the operating system does, and replaces an existing file.
            self._fs.rename(self._path(source), self._path(target))
            return
        rename = getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename")
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        context = getattr(self._jvm, "org.apache.hadoop.fs.FileContext").getFileContext(
            self._path(source).toUri(), self._conf
        )
        context.rename(self._path(source), self._path(target), options)

    def rename(self, source: str, target: str) -> bool:
        """Move a file or folder to a URL where nothing exists; whether it was moved."""
        return bool(self._fs.rename(self._path(source), self._path(target)))

    def make_folder(self, url: str) -> None:
        """Make a folder and its parents."""
        self._fs.mkdirs(self._path(url))

    def remove(self, url: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        self._fs.delete(self._path(url), True)


def _status(status: Any) -> FileStatus:
    return FileStatus(
        str(status.getPath().toString()), status.getLen(), status.getModificationTime(), status.isDirectory()
    )
