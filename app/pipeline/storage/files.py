"""Files of any URL that Spark reads, through Hadoop's FileSystem: what Spark itself offers no function for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ABORTABLE = "fs.capability.outputstream.abortable"
"""Of Hadoop's object stores: a file is there, or replaced, when its stream is closed, and not before."""


class FileStatus(NamedTuple):
    """A file or folder: full URL, ``size`` in bytes, ``modified_at`` in Unix ms."""

    url: str
    size: int
    modified_at: int
    is_folder: bool


class Files:
    """The file system of ``url``, asked from the driver. Py4JJavaError where it fails; each call is one round trip."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        self._hadoop = jvm.org.apache.hadoop
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        fs = self._hadoop.fs.Path(url).getFileSystem(conf)
        self.is_local = fs.getScheme() == "file"
        # Hadoop's checksum files beside local ones cannot be replaced together with them: a reader in between fails.
        self._fs = fs.getRawFileSystem() if self.is_local else fs
        self._conf = conf

    def qualified(self, url: str) -> str:
        """``url`` with its scheme, absolute."""
        return str(self._fs.makeQualified(self._path(url)).toString())

    def exists(self, url: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._fs.exists(self._path(url)))

    def is_folder(self, url: str) -> bool:
        """Whether there is such a folder."""
        return self.exists(url) and _status(self._fs.getFileStatus(self._path(url))).is_folder

    def list(self, url: str) -> list[FileStatus]:
        """What stands in the folder ``url``, by name; nothing where there is no such folder."""
        if not self.exists(url):
            return []
        return sorted(map(_status, self._fs.listStatus(self._path(url))))

    def folders(self, url: str, prefix: str) -> Sequence[str]:
        """What the names of the folders in ``url`` that begin with ``prefix`` go on with, by name."""
        names = (each.url.rstrip("/").rpartition("/")[2] for each in self.list(url) if each.is_folder)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def walk(self, url: str) -> Iterator[FileStatus]:
        """The files below ``url``, or the file itself, by name."""
        status = _status(self._fs.getFileStatus(self._path(url)))
        if not status.is_folder:
            yield status
            return
        for each in self.list(url):
            yield from self.walk(each.url)

    def read(self, url: str) -> bytes | None:
        """A small file's content; None where there is none."""
        if not self.exists(url):
            return None
        stream = self._fs.open(self._path(url))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, url: str, content: bytes) -> None:
        """Write a small file whole: readers see the former content or this one, nothing in between.

        On an object store the file appears when it is closed; elsewhere it is renamed over the former one. That is one
        step on local file systems and HDFS; others may have none of both for a moment.
        """
        appears_whole = not self.is_local and self._fs.hasPathCapability(self._path(url), _ABORTABLE)
        temporary = f"{url.rpartition('/')[0]}/.{url.rpartition('/')[2]}.{self._jvm.java.util.UUID.randomUUID()}"
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
            # The raw file system renames as the operating system does, over what is there.
            self._fs.rename(self._path(source), self._path(target))
            return
        options = self._gateway.new_array(getattr(self._hadoop.fs, "Options$Rename"), 1)
        options[0] = getattr(self._hadoop.fs, "Options$Rename").OVERWRITE
        context = self._hadoop.fs.FileContext.getFileContext(self._path(source).toUri(), self._conf)
        context.rename(self._path(source), self._path(target), options)

    def rename(self, source: str, target: str) -> bool:
        """Move a file or folder to a place that is free; whether it was done."""
        return bool(self._fs.rename(self._path(source), self._path(target)))

    def make_folder(self, url: str) -> None:
        """Make a folder and those above it."""
        self._fs.mkdirs(self._path(url))

    def remove(self, url: str) -> None:
        """Remove a file, or a folder with what is in it; nothing where there is none."""
        self._fs.delete(self._path(url), True)

    def _path(self, url: str) -> Any:
        return self._hadoop.fs.Path(url)


def _status(status: Any) -> FileStatus:
    return FileStatus(
        str(status.getPath().toString()), status.getLen(), status.getModificationTime(), status.isDirectory()
    )
