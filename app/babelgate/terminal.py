"""Keeps text of others, such as messages, names and errors, from controlling the terminal that shows it."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, TextIO, cast


def printable(text: str) -> str:
    """Replace each unprintable character of ``text`` by its JSON escape, such as ``\\u001b``.

    These are control characters (C0, DEL, C1), line and paragraph separators, format characters, which include those
    that change the direction of text, spaces other than U+0020, and characters that Unicode does not define. A JSON
    text on one line keeps its meaning.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


class Guard(io.TextIOBase):
    """A text stream that writes printable characters and line feeds to ``below``, and escapes all others."""

    def __init__(self, below: TextIO) -> None:
        self.below = below
        self.buffer = _BinaryGuard(below)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.below.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.below.errors

    def write(self, text: str) -> int:
        self.below.write(_guarded(text))
        return len(text)

    def flush(self) -> None:
        self.below.flush()

    def fileno(self) -> int:
        return self.below.fileno()

    def isatty(self) -> bool:
        return self.below.isatty()

    def writable(self) -> bool:
        return True


class _BinaryGuard(io.BufferedIOBase):
    """The ``buffer`` of a Guard, for UTF-8."""

    def __init__(self, below: TextIO) -> None:
        self._below = below

    def write(self, data: Any) -> int:
        text = bytes(data).decode(errors="backslashreplace")
        self._below.flush()
        self._below.buffer.write(_guarded(text).encode())
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._below.buffer.flush()

    def writable(self) -> bool:
        return True


def guarded(stream: TextIO | Guard) -> TextIO:
    """Return a Guard of ``stream``, or ``stream`` itself if it is one."""
    return cast("TextIO", stream if isinstance(stream, Guard) else Guard(stream))


def unguarded(stream: TextIO | Guard) -> TextIO:
    """Return the stream below a Guard, for a writer that styles its lines and passes all text of others to
    :func:`printable`. Any other ``stream`` is returned as it is."""
    return stream.below if isinstance(stream, Guard) else stream


def guard_output() -> None:
    """Guard standard error, and standard output if it is a terminal, for the rest of this process.

    Standard output that is a file or a pipe stays as it is: its reader may need the exact bytes.
    """
    sys.stderr = guarded(sys.stderr)
    if sys.stdout.isatty():
        sys.stdout = guarded(sys.stdout)


def _guarded(text: str) -> str:
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
