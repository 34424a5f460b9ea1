"""A file that a command writes when it ends: the report, or that of ``--summary``."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from babelgate.masking import mask_text, mask_url
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.input_files import OBJECT_STORE_SCHEMES
from babelgate.pipeline.storage.inputs import first_line


class OutputFile:
    """A local path, or a URL of an object store.

    Raises ValueError, with a text for people, for another scheme, a folder, a file in a folder that does not exist, and
    a store that Arrow cannot find. Otherwise an object store is not asked before :meth:`write`.
    """

    def __init__(self, place: str) -> None:
        is_url = "://" in place or place.startswith("file:/")
        # Without its password.
        self._shown = mask_url(place) if is_url else place
        if is_url and urlsplit(place).scheme not in ("file", *OBJECT_STORE_SCHEMES):
            raise ValueError(f"{self._shown} is neither a local file nor a URL of s3a://, s3:// or gs://")
        try:
            # A colon in the name of a file makes no URL of it.
            self._files = ArrowFiles(place if is_url else str(Path(place).absolute()))
        except (OSError, ValueError) as error:
            raise ValueError(f"{self._shown} cannot be written: {mask_text(first_line(error))}") from error
        path = self._files.path(self._files.root)
        self._path = PurePosixPath(path)
        if self._files.is_local:
            if not Path(self._path.parent).is_dir():
                raise ValueError(f"there is no folder {self._path.parent}")
            if Path(self._path).is_dir():
                raise ValueError(f"{self._path} is a folder")
        elif place.endswith("/") or len(self._path.parts) < 2:
            raise ValueError(f"{self._shown} names no file")
        elif "//" in path:
            raise ValueError(f"{self._shown} has two slashes in its path, with no name between them")

    def __str__(self) -> str:
        return self._shown

    @property
    def suffix(self) -> str:
        """The ending of the name with its dot, or nothing."""
        return self._path.suffix

    def write(self, content: bytes, content_type: str) -> None:
        """Replace the file atomically. ``content_type``: with which an object store serves it. Raises JobFailed."""
        try:
            self._files.write(self._files.root, content, content_type)
        except OSError as error:
            raise JobFailed(f"{self} cannot be written: {error.strerror or first_line(error)}") from error
