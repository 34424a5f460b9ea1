"""Runs programs in forks of one process that has loaded babelgate: each starts in milliseconds.

Started as ``python -m tests.harness.program`` it reads one order per line, and answers each with a number.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import json
import os
import runpy
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NoReturn

_ROOT = Path(__file__).parents[2]
_FLAGS = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class Fork:
    """What ``python -m MODULE ARGUMENTS`` does with exactly these environment variables, like ``subprocess.Popen``.

    ``streams``: the files of its standard input, output and error.
    """

    returncode: int | None = None

    def __init__(
        self, module: str, *arguments: str, environ: Mapping[str, str], streams: tuple[Path, Path, Path]
    ) -> None:
        self._loaded = _loaded()
        order = {"module": module, "arguments": arguments, "environ": dict(environ), "streams": [*map(str, streams)]}
        self.pid = self._loaded.answer(order)
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit status, as ``Popen`` has it; None while it runs."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended. Raises TimeoutExpired after ``timeout`` seconds."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0)
        return status

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            self.returncode = self._loaded.answer({"ended": self.pid})
            os.close(self._ended)
        return self.returncode


def run(*arguments: str, environ: Mapping[str, str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What ``babelgate ARGUMENTS`` does with exactly these environment variables, once it has ended."""
    with TemporaryDirectory() as folder:
        source, out, err = (Path(folder, name) for name in ("in", "out", "err"))
        source.write_bytes(stdin)
        status = Fork("babelgate", *arguments, environ=environ, streams=(source, out, err)).wait()
        return subprocess.CompletedProcess(arguments, status, out.read_bytes(), err.read_bytes())


class _Loaded:
    """The process that is forked."""

    def __init__(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("BABELGATE_", "OTEL_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=_ROOT, env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._turn = Lock()
        # It ends with its input.
        atexit.register(self._process.communicate)

    def answer(self, order: dict[str, Any]) -> int:
        assert self._process.stdin and self._process.stdout
        with self._turn:
            self._process.stdin.write(f"{json.dumps(order)}\n".encode())
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


_loaded = cache(_Loaded)


def _serve() -> None:
    # What a start loads when it is needed first.
    for name in ("encodings.idna", "fastapi_swagger", "uvicorn.lifespan.on", "uvloop"):
        importlib.import_module(name)
    # Of the brokers, the one without an extra: tests/harness/without.py lets those of the others be missing.
    from babelgate.brokers.sqlite import binding  # noqa: F401
    from babelgate.cli import client, main  # noqa: F401
    from babelgate.console.files import Assets
    from babelgate.http import rest
    from babelgate.server import accept, checks, server, wiring  # noqa: F401

    for module in filter(inspect.ismodule, vars(rest).values()):
        if hasattr(module, "routes"):
            module.routes()
    Assets()
    # A fork neither copies nor searches what is there already.
    gc.freeze()
    for line in sys.stdin.buffer:
        order = json.loads(line)
        if "ended" in order:
            _, status = os.waitpid(order["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif (answer := os.fork()) == 0:
            _run(**order)
            return
        print(answer, flush=True)


def _run(module: str, arguments: Sequence[str], environ: Mapping[str, str], streams: Sequence[str]) -> None:
    for number, (path, flags) in enumerate(zip(streams, _FLAGS, strict=True)):
        file = os.open(path, flags, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        # The interpreter prints what is no number.
        if not isinstance(ended.code, int | None):
            raise
        end(ended.code or 0)
    end(0)


def end(status: int) -> NoReturn:
    """End this process as the interpreter does, but for the objects: to free all that a fork has of the process that
    loaded it takes four times as long as a command."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve()
