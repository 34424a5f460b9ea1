"""Stores for landed segments: a directory, or a store of fsspec. A reader never sees an incomplete file."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from babelgate.errors import ConfigError
from babelgate.extras import how_to_install
from babelgate.masking import mask_url
from babelgate.observe.journal.frames import Compression, pack
from babelgate.observe.journal.record import COMPRESSED, PART, parse_segment
from babelgate.observe.journal.segments import sync
from babelgate.runtime.files import check_writable

_KEY = "journal.landing"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss"})
"""Stores where an object appears only when it is complete, as documented by their vendors, for example
https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html ("never adds partial objects")."""
_INCOMING = ".incoming"
"""Folder for incomplete files, below the landing folder. Spark and Hive ignore names that begin with a dot."""
_READ_BYTES = 1 << 20


class LandedSegment(Struct, frozen=True):
    """A landed segment: its path below the landing folder, its size in bytes, and when it was written, Unix seconds."""

    path: str
    size: int
    written_at: float


def segment_name(path: str) -> str:
    """The name of the plain file of a landed segment, given as its path."""
    return path.rpartition("/")[2].rpartition(".")[0]


class Store(Protocol):
    """A landing place. For one thread; every call may block as long as the network does."""

    def check(self) -> None:
        """Raise ConfigError naming ``journal.landing`` if the store cannot work. Creates nothing, uses no network."""

    def prepare(self) -> None:
        """Create the directories it needs. Raises ConfigError naming ``journal.landing``."""

    def put(self, source: Path, name: str) -> tuple[str, list[tuple[int, int]]]:
        """Compress ``source`` to ``name`` (``/`` separates, without the suffix of the compression).

        The write is durable, atomic for readers, and replaces an existing file. Raises any error of the store. Returns
        where it landed, a path that ends with the file's name and that suffix, and for each frame its plain and its
        packed size, of which the ``start`` and ``end`` of :meth:`read` are sums.
        """

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return bytes ``start`` to ``end`` of a landed file. Raises FileNotFoundError, or any error of the store."""

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a landed file. Raises FileNotFoundError, or any error of the store."""

    def files(self) -> list[LandedSegment]:
        """Return all landed segments. Raises any error of the store; FileNotFoundError if it is not there, and
        io.UnsupportedOperation if it never can."""


def store(landing: str, compression: Compression) -> Store:
    """Return the store for ``landing``, a path or a URL. Raises ConfigError naming ``journal.landing``."""
    scheme = _SCHEME.match(landing)
    if scheme is None:
        return Directory(Path(landing), compression)
    if scheme[1] == "file":
        return Directory(Path(unquote(urlsplit(landing).path)), compression)
    return Remote(landing, scheme[1], compression)


class Directory:
    """A local directory. Files are fsynced before they are renamed, and the directories afterwards."""

    def __init__(self, path: Path, compression: Compression) -> None:
        self._path = path
        self._compression = compression

    def check(self) -> None:
        for directory in (self._path, self._path / _INCOMING):
            check_writable(directory, _KEY)

    def prepare(self) -> None:
        incoming = self._path / _INCOMING
        try:
            incoming.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=incoming):
                pass
        except OSError as error:
            raise ConfigError(key=_KEY, reason=f"{self._path}: {error.strerror}") from None

    def put(self, source: Path, name: str) -> tuple[str, list[tuple[int, int]]]:
        target = self._path / f"{name}{COMPRESSED[self._compression]}"
        incoming = self._path / _INCOMING / target.name
        incoming.parent.mkdir(parents=True, exist_ok=True)
        try:
            sizes = compress(source, incoming, self._compression)
            made = [each for each in target.parents if each.is_relative_to(self._path) and not each.exists()]
            target.parent.mkdir(parents=True, exist_ok=True)
            incoming.rename(target)
        except OSError:
            incoming.unlink(missing_ok=True)
            raise
        for directory in {target.parent, *(each.parent for each in made)}:
            sync(directory)
        return f"{name}{COMPRESSED[self._compression]}", sizes

    def read(self, path: str, start: int, end: int) -> bytes:
        try:
            with (self._path / path).open("rb", buffering=0) as file:
                return os.pread(file.fileno(), end - start, start)
        except FileNotFoundError:
            self._require()
            raise

    def pieces(self, path: str) -> Iterator[bytes]:
        with (self._path / path).open("rb", buffering=0) as file:
            while piece := file.read(_READ_BYTES):
                yield piece

    def files(self) -> list[LandedSegment]:
        self._require()
        found = []
        for folder, folders, names in os.walk(self._path):
            folders[:] = [each for each in folders if not each.startswith(".")]
            below = os.path.relpath(folder, self._path)
            for name in names:
                if name.endswith(tuple(COMPRESSED.values())) and parse_segment(name):
                    with contextlib.suppress(FileNotFoundError):  # deleted since
                        state = os.stat(os.path.join(folder, name))
                        found.append(LandedSegment(os.path.normpath(f"{below}/{name}"), state.st_size, state.st_mtime))
        return found

    def delete(self, path: str) -> None:
        """Delete a landed file, and its folders if they are empty then. Raises OSError."""
        target = self._path / path
        target.unlink(missing_ok=True)
        for folder in target.parents:
            if folder == self._path or any(folder.iterdir()):
                break
            with contextlib.suppress(OSError):  # another process has just landed a segment there
                folder.rmdir()

    def _require(self) -> None:
        """Raise an OSError if the folder is not there, so that a disk that is not mounted is not an empty journal."""
        if not self._path.is_dir():
            raise NotADirectoryError(f"{self._path} is not a directory")


class Remote:
    """A store of fsspec. Its library reads credentials from the environment."""

    def __init__(self, url: str, scheme: str, compression: Compression) -> None:
        fsspec = _fsspec(url)
        try:
            fsspec.get_filesystem_class(scheme)
        except (ImportError, ValueError) as error:
            raise ConfigError(key=_KEY, reason=f"{mask_url(url)}: {error}") from None
        self._connect: Callable[..., tuple[Any, str]] = fsspec.core.url_to_fs
        self._url = url
        self._atomic = scheme in _OBJECT_STORES
        self._compression = compression
        self._connected: tuple[Any, str] | None = None

    def check(self) -> None:
        """Do nothing: the constructor has checked all that needs no network."""

    def prepare(self) -> None:
        """Do nothing: a gateway may start while its store is down."""

    def put(self, source: Path, name: str) -> tuple[str, list[tuple[int, int]]]:
        name += COMPRESSED[self._compression]
        packed = source.with_name(f"{name.rpartition('/')[2]}{PART}")
        try:
            sizes = compress(source, packed, self._compression)
            self._upload(packed, name)
        finally:
            packed.unlink(missing_ok=True)
        return name, sizes

    def read(self, path: str, start: int, end: int) -> bytes:
        with self._connection() as (files, root):
            return bytes(files.cat_file(f"{root}/{path}", start=start, end=end))

    def pieces(self, path: str) -> Iterator[bytes]:
        with self._connection() as (files, root), files.open(f"{root}/{path}", "rb", block_size=_READ_BYTES) as file:
            while piece := file.read(_READ_BYTES):
                yield bytes(piece)

    def files(self) -> list[LandedSegment]:
        with self._connection() as (files, root):
            found = files.find(root, detail=True)
        below = [(path[len(root) :].lstrip("/"), facts) for path, facts in found.items() if path.startswith(root)]
        return [
            LandedSegment(path, int(facts.get("size") or 0), 0.0)
            for path, facts in below
            if not path.startswith(".")
            and path.endswith(tuple(COMPRESSED.values()))
            and parse_segment(path.rpartition("/")[2])
        ]

    def _upload(self, packed: Path, name: str) -> None:
        with self._connection() as (files, root):
            self._move_in(files, root, packed, name)

    @contextmanager
    def _connection(self) -> Iterator[tuple[Any, str]]:
        # Connect again after a failure, because fsspec caches connections, even broken ones. A missing file is none.
        connected, self._connected = self._connected or self._connect(self._url, skip_instance_cache=True), None
        try:
            yield connected
        except FileNotFoundError:
            self._connected = connected
            raise
        self._connected = connected

    def _move_in(self, files: Any, root: str, packed: Path, name: str) -> None:
        target = f"{root}/{name}"
        if self._atomic:
            files.put_file(str(packed), target)
        else:
            incoming = f"{root}/{_INCOMING}/{packed.name}"
            for path in (incoming, target):
                files.makedirs(path.rpartition("/")[0], exist_ok=True)
            files.put_file(str(packed), incoming)
            files.mv(incoming, target)


def compress(
    source: Path, target: Path, compression: Compression, most_bytes: int | None = None
) -> list[tuple[int, int]]:
    """Compress ``source`` to ``target`` and fsync it; return the plain and the packed size of each frame.

    ``most_bytes``: see :func:`~babelgate.observe.journal.frames.pack`. The output is deterministic. Raises OSError.
    """
    with source.open("rb") as plain, target.open("wb") as packed:
        sizes = pack(plain, packed, compression, most_bytes)
        packed.flush()
        os.fsync(packed.fileno())
    return sizes


def _fsspec(url: str) -> Any:
    try:
        return importlib.import_module("fsspec")
    except ImportError:
        reason = f"{mask_url(url)} needs the package fsspec: {how_to_install('journal')}"
        raise ConfigError(key=_KEY, reason=reason, extra="journal") from None
