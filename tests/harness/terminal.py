"""``babelgate`` on a pseudo terminal, as a person sees it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.harness.program import Fork

_ROOT = Path(__file__).parents[2]
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_SECONDS = 240


class Terminal:
    """A program whose standard output and error are one terminal. ``written``: the bytes that it
    has printed; ``shown``: their text, unstyled."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.written = b""

    @property
    def shown(self) -> str:
        # The last character may not have been read whole.
        return _STYLE.sub("", self.written.decode(errors="replace")).replace("\r\n", "\n")

    def until(self, text: str) -> str:
        """Read until the program has printed ``text``; return what it has printed."""
        deadline = time.monotonic() + _SECONDS
        while text not in self.shown:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} was not shown:\n{self.shown}")
        return self.shown

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def edits_lines(self) -> bool:
        """Whether the terminal keeps what is typed until the line ends, as it does for a shell."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ICANON)

    def ended(self) -> int:
        """Read until the program has ended; return its exit status."""
        while self._read(time.monotonic() + _SECONDS):
            pass
        return self.process.wait(_SECONDS)

    def _read(self, deadline: float) -> bool:
        if not select.select([self._master], [], [], max(deadline - time.monotonic(), 0))[0]:
            return False
        # Linux reports the end of the last writer as an error.
        with contextlib.suppress(OSError):
            data = os.read(self._master, 65_536)
            self.written += data
            return bool(data)
        return False


@contextlib.contextmanager
def terminal(*arguments: str, environ: Mapping[str, str], directory: Path) -> Iterator[Terminal]:
    """``babelgate ARGUMENTS`` in ``directory`` with exactly these environment variables, killed with the block."""
    master, slave = pty.openpty()
    program = [sys.executable, "-m", "babelgate", *arguments]
    known = {**environ, "PYTHONPATH": str(_ROOT)}
    process = subprocess.Popen(program, cwd=directory, env=known, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def output_of(*arguments: str, environ: Mapping[str, str], columns: int = 80) -> bytes:
    """The bytes that ``babelgate ARGUMENTS`` writes to a terminal of this width until it ends, with exactly these
    environment variables and without any input."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    screen = Path(os.ttyname(slave))
    written = b""
    try:
        program = Fork("babelgate", *arguments, environ=environ, streams=(Path(os.devnull), screen, screen))
        deadline = time.monotonic() + _SECONDS
        while program.poll() is None:
            assert time.monotonic() < deadline, f"{arguments} does not end: {written!r}"
            if select.select([master], [], [], 0.02)[0]:
                written += os.read(master, 65_536)
        while select.select([master], [], [], 0)[0]:
            written += os.read(master, 65_536)
    finally:
        os.close(slave)
        os.close(master)
    return written
