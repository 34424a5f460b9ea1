"""The directory of the Unix sockets of all gateways of one host, each named by its incarnation."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from pathlib import Path

from babelgate.errors import ConfigError

_NAME = re.compile(r"[0-9a-f]{16}\.sock")
_MAX_PATH_BYTES = 107
"""sun_path of unix(7) has 108 bytes, the closing zero included."""
_BACKLOG = 1_024


class SocketDirectory:
    """Binds the socket of this process and finds those of other processes. ``path``: a directory on this host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._base: str | None = None
        self._descriptor: int | None = None
        self._own: str | None = None

    def open(self) -> None:
        """Create the directory with mode 0700 and remove the sockets of killed processes; idempotent.

        Raises ConfigError naming ``peers.directory``.
        """
        if self._base is not None:
            return
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._base = self._short(self.path.resolve())
            self._sweep()
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None

    def bind(self, incarnation: str) -> socket.socket:
        """The listening socket of this process. Raises ConfigError naming ``peers.directory``."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # It gets its final name once it listens: a socket that refuses connections counts as dead and is removed.
        draft = f"{self._base}/{incarnation}.new"
        try:
            listener.bind(draft)
            os.chmod(draft, 0o600)
            listener.listen(_BACKLOG)
            os.rename(draft, self._socket_path(incarnation))
            self._own = f"{incarnation}.sock"
        except OSError as error:
            listener.close()
            raise self._refused(error.strerror or str(error)) from None
        return listener

    @property
    def is_bound(self) -> bool:
        """Whether this process has its socket, by which others call it."""
        return self._own is not None

    def find(self, incarnation: str) -> str | None:
        """The path of the socket of ``incarnation``; None if there is none."""
        path = self._socket_path(incarnation)
        if self._base is None or not _NAME.fullmatch(path.rpartition("/")[2]):
            return None
        return path if os.path.exists(path) else None

    def others(self) -> list[str]:
        """The paths of the sockets of all other processes; empty before :meth:`open`."""
        if self._base is None:
            return []
        try:
            names = sorted(filter(_NAME.fullmatch, os.listdir(self._base)))
        except OSError:
            return []
        return [f"{self._base}/{name}" for name in names if name != self._own]

    def remove(self, incarnation: str) -> None:
        """Remove the socket of ``incarnation``; idempotent."""
        with contextlib.suppress(OSError):
            os.unlink(self._socket_path(incarnation))

    def close(self) -> None:
        """Close the directory; idempotent."""
        self._base = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _socket_path(self, incarnation: str) -> str:
        return f"{self._base}/{incarnation}.sock"

    def _short(self, path: Path) -> str:
        """A path to the same directory that is short enough for the sockets in it."""
        longest = path / f"{'0' * 16}.sock"
        if len(os.fsencode(longest)) <= _MAX_PATH_BYTES:
            return str(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        short = f"/proc/self/fd/{self._descriptor}"
        if not os.path.isdir(short):
            raise self._refused(f"longer than the {_MAX_PATH_BYTES} bytes that a Unix socket's path may have")
        return short

    def _sweep(self) -> None:
        for name in os.listdir(self._base):
            if _NAME.fullmatch(name) and _is_dead(f"{self._base}/{name}"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._base}/{name}")

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(key="peers.directory", reason=f"{self.path}: {why}")


def _is_dead(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) == errno.ECONNREFUSED
