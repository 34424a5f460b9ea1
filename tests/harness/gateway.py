"""A real ``babelgate serve`` in a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote
from weakref import WeakSet

import httpx
import psutil
import pytest
import yaml

from tests.harness.local import authorities, free_port
from tests.harness.program import Fork

START_SECONDS = 240
STOP_SECONDS = 120
SHOWN_LINES = 40
"""How much of its log a test that fails shows of each gateway."""
_PATIENT_SECONDS = 5
_PATIENT_FILE_SECONDS = 30
"""Of a broker that is a file of this machine, which waits for the disk behind all others."""
_LISTENING = re.compile(rb'"event":"listening","url":"(https?)://[^"]*?:(\d+)')
_ROOT = Path(__file__).parents[2]


class GatewayProcess:
    """One gateway over ``directory``: its configuration file, its state and its log are there.

    ``config`` is the YAML as a dict (host, port, state_dir, a broker where there is none, and time-outs of brokers are
    filled in), ``environ`` more variables. The port is kept over restarts.
    """

    program: ClassVar[Sequence[str]] = ("babelgate", "serve", "--quiet")
    """The module that Python runs, and its arguments."""
    known: ClassVar[WeakSet[GatewayProcess]] = WeakSet()
    """Those that a running test can use."""

    def __init__(
        self, directory: Path, config: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self.known.add(self)
        self.directory = directory
        self.log = directory / "gateway.log"
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith("BABELGATE_")} | dict(environ or {})
        self._config = {"state_dir": str(directory), "port": free_port(), **(config or {})}
        file = Path(str(self._config["state_dir"])) / "babelgate.db"
        self._requires = False
        brokers = self._config.get("brokers") or {"local": f"sqlite:///{quote(str(file))}"}
        if isinstance(brokers, dict):
            self._config["brokers"] = {name: _patient(each) for name, each in brokers.items()}
            self._requires = any(isinstance(each, dict) and each.get("required") for each in brokers.values())
        self._process: subprocess.Popen[bytes] | Fork | None = None
        self.url = ""
        self.root = _ROOT
        """The checkout whose code it runs."""

    @property
    def pid(self) -> int:
        """The process that was started (with workers: their parent)."""
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """The processes that serve."""
        return workers_of(self.pid)

    def start(self, *arguments: str, ready: bool = True) -> GatewayProcess:
        """Start, and wait until /readyz answers 200 unless ``ready`` is false (then: until it listens)."""
        path = self.directory / "babelgate.yaml"
        path.write_text(yaml.safe_dump(self._config, sort_keys=False))
        since = self.log.stat().st_size if self.log.exists() else 0
        self._process = self._run(*self.program, "--config", str(path), *arguments)
        found = self._wait("listen", lambda: _LISTENING.search(self.log.read_bytes(), since))
        scheme, port = found[1].decode(), int(found[2])
        self.url = f"{scheme}://127.0.0.1:{port}{self._config.get('prefix', '')}"
        self._config["port"] = port
        if ready:
            self._wait("be ready", self.is_ready)
        return self

    def _run(self, *program: str) -> subprocess.Popen[bytes] | Fork:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *program],
                cwd=self.root,
                env=self.environ | {"PYTHONPATH": str(self.root / "app")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def is_ready(self) -> bool:
        """Whether /readyz is 200, and calls to the required brokers are sent: on a busy machine one may have been lost
        at the start, and its circuit closes a moment after it answers."""
        with contextlib.suppress(httpx.TransportError):
            query = "?verbose" if self._requires else ""
            answer = httpx.get(f"{self.url}/readyz{query}", timeout=30, verify=False)
            states = answer.json().get("brokers", ()) if query else ()
            return answer.status_code == 200 and not any(
                each["required"] and each["circuit"] == "open" for each in states
            )
        return False

    def client(self, **options: Any) -> httpx.Client:
        """A client of this gateway; paths are relative to its URL."""
        return httpx.Client(base_url=self.url, timeout=120, **{"verify": authorities(), **options})

    def terminate(self) -> None:
        """Send SIGTERM and return at once."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """The exit status, once it has ended."""
        assert self._process is not None
        return self._process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Stop it gracefully; the exit status."""
        self.terminate()
        return self.wait()

    def kill(self) -> None:
        """kill -9 of it and of its workers, as a power cut would."""
        victims = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        assert self._process is not None
        self._process.wait()
        psutil.wait_procs(victims)

    def close(self) -> None:
        """End it in whatever state it is."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def log_text(self) -> str:
        """What it has printed, all starts together."""
        return self.log.read_text("utf-8", "replace")

    def logged(self) -> list[dict[str, Any]]:
        """The lines that it has logged, each of which is JSON."""
        return [json.loads(line) for line in self.log_text().split("\n")[:-1]]

    def unforeseen(self) -> list[str]:
        """The lines that tell of an exception which nobody expected."""
        return [line for line in self.log_text().split("\n") if "Traceback" in line or '"exception":[' in line]

    def _wait(self, what: str, condition: Any) -> Any:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"the gateway ended with {self._process.returncode}:\n{self.log_text()}")
            if found := condition():
                return found
            time.sleep(0.02)
        raise AssertionError(f"the gateway did not {what} within {START_SECONDS} s:\n{self.log_text()}")


class ForkedGateway(GatewayProcess):
    """Starts in a fourth of the time, where the start is not what is tested or measured."""

    def _run(self, *program: str) -> Fork:
        self.log.touch()
        return Fork(*program, environ=self.environ, streams=(Path(os.devnull), self.log, self.log))


def show_logs(report: pytest.TestReport) -> None:
    """Add to the report of a test that failed how the logs of its gateways end."""
    for process in list(GatewayProcess.known):
        if process.log.exists():
            lines = process.log_text().splitlines()[-SHOWN_LINES:]
            report.sections.append((f"end of {process.log}", "\n".join(lines)))


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def workers_of(pid: int) -> list[int]:
    """The processes that serve for the server ``pid``: its workers, or itself."""
    return [child.pid for child in psutil.Process(pid).children() if _is_worker(child)] or [pid]


def _is_worker(child: psutil.Process) -> bool:
    # The other child that a parent of workers has is multiprocessing's resource tracker.
    try:
        return any("spawn_main" in part for part in child.cmdline())
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def gateway(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    kind: type[GatewayProcess] = ForkedGateway,
) -> Iterator[GatewayProcess]:
    """A ready gateway, ended with the block."""
    process = kind(directory, config, environ=environ)
    try:
        yield process.start(*arguments)
    finally:
        process.close()


def _patient(broker: Any) -> Any:
    """A broker of a configuration, with a time-out unless it has one: a busy machine is no hung broker."""
    if isinstance(broker, str):
        broker = {"url": broker}
    if not isinstance(broker, dict):
        return broker
    is_file = str(broker.get("url", "")).startswith("sqlite:")
    return {"timeout_seconds": _PATIENT_FILE_SECONDS if is_file else _PATIENT_SECONDS, **broker}
