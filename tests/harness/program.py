"""Runs commands of ``babelgate`` in forks of one process that has loaded it: each starts in milliseconds.

Started as ``python -m tests.harness.program`` it reads one order per line, and answers each with an exit status.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_ROOT = Path(__file__).parents[2]
_STREAMS = (("in", os.O_RDONLY), ("out", os.O_WRONLY | os.O_CREAT), ("err", os.O_WRONLY | os.O_CREAT))


def run(*arguments: str, environ: Mapping[str, str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What ``babelgate ARGUMENTS`` does with exactly these environment variables, once it has ended."""
    loaded = _loaded()
    assert loaded.stdin and loaded.stdout
    with TemporaryDirectory() as folder:
        Path(folder, "in").write_bytes(stdin)
        order = json.dumps({"arguments": arguments, "environ": dict(environ), "folder": folder})
        try:
            loaded.stdin.write(f"{order}\n".encode())
            loaded.stdin.flush()
            status = int(loaded.stdout.readline())
        except BaseException:
            _loaded.cache_clear()
            loaded.kill()
            loaded.communicate()
            raise
        out, err = (Path(folder, name).read_bytes() for name in ("out", "err"))
        return subprocess.CompletedProcess(arguments, status, out, err)


@cache
def _loaded() -> subprocess.Popen[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BABELGATE_", "OTEL_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], cwd=_ROOT, env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    # It ends with its input.
    atexit.register(process.communicate)
    return process


def _serve() -> None:
    from app.cli.main import main
    from app.server import server, wiring  # noqa: F401

    # A fork neither copies nor searches what is there already.
    gc.freeze()
    for line in sys.stdin.buffer:
        order = json.loads(line)
        if (child := os.fork()) == 0:
            for number, (name, flags) in enumerate(_STREAMS):
                os.dup2(os.open(Path(order["folder"], name), flags), number)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            os.environ.clear()
            os.environ.update(order["environ"])
            sys.argv[1:] = order["arguments"]
            main()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
