"""Workers of pytest-xdist as forks of one process that has collected the tests: to collect takes seconds, to fork
milliseconds.

:class:`ForkedWorkers` is a plugin of the process that distributes the tests. It starts the process that collects, and
has execnet start ``tests/harness/worker.py`` where it would start Python. Where the tests cannot be collected, or a
fork is not safe, xdist starts its ordinary workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Generator, MutableSequence, Sequence
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from _pytest.tmpdir import TempPathFactory

if TYPE_CHECKING:
    from execnet import XSpec

_ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("worker.py")
_END_SECONDS = 10
"""How long a worker may take to end, as in xdist."""
ONE_THREAD = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""What keeps libraries from starting threads when they are imported: a fork has none of them."""


class ForkedWorkers:
    """Lets all workers of a run be forks of one process, which ends with the run."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._collected = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: MutableSequence[XSpec]) -> None:
        """Collect the tests before there is a worker."""
        # With loadgroup the worker's options change the names of tests.
        if sys.platform != "linux" or config.option.dist == "loadgroup" or not all(map(_is_plain, specs)):
            return
        self._folder = tempfile.TemporaryDirectory(prefix="babelgate-workers-")
        address = f"{self._folder.name}/forks"
        order = {
            "address": address,
            "arguments": list(map(str, config.invocation_params.args)),
            "folder": str(config.invocation_params.dir),
            "path": sys.path,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{json.dumps(order)}\n".encode())
            self._process.stdin.flush()
        self._collected = bool(self._process.stdout.readline())
        if self._collected:
            for spec in specs:
                spec.python = shlex.join([sys.executable, "-I", "-S", str(PROGRAM), address])

    def pytest_unconfigure(self) -> None:
        if self._process is not None and self._folder is not None:
            if not self._collected:
                self._process.kill()
            # It ends with its input.
            self._process.communicate()
            self._folder.cleanup()


def _is_plain(spec: XSpec) -> bool:
    """Whether a worker is a Python like this one, in the same directory."""
    return bool(spec.popen) and not (spec.python or spec.chdir or spec.via or spec.nice or spec.env)


class _Collected:
    """A plugin of the process that collects, and then of its forks, each of which is a worker."""

    def __init__(self, address: str, distributor: tuple[int, int], temporary: Collection[str]) -> None:
        self._address = address
        self._temporary = temporary
        """Variables of the environment that a worker does not have."""
        self._distributor = distributor
        """Where the process that distributes the tests is heard and told."""
        self._reports: list[pytest.CollectReport] = []
        self._channels: Queue[Any] = Queue()
        self._ended = Event()
        self._serving: Thread | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, Any, Any]:
        from xdist import remote

        remote.setup_config(config, None)
        # What a plugin takes for a worker.
        vars(config).update(workerinput={}, workeroutput={})
        return (yield)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the process that collects: wait for workers, until the input ends. In a fork: what the worker does."""
        for name in self._temporary:
            del os.environ[name]
        heard, told = self._distributor
        if len(tasks := os.listdir("/proc/self/task")) > 1:
            names = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in tasks]
            print(f"Workers are not forked, because there are threads: {names}", file=sys.__stderr__)
            return True
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(64)
            os.write(told, b"ready\n")
            waited_for: list[Any] = [heard, listener]
            while heard not in select.select(waited_for, [], [])[0]:
                with listener.accept()[0] as client:
                    streams = socket.recv_fds(client, 1, 3)[1]
                if os.fork() == 0:
                    break
                for stream in streams:
                    os.close(stream)
            else:
                _end_all()
                return True
        os.close(heard)
        os.close(told)
        return self._work(session, streams)

    def _work(self, session: pytest.Session, streams: Sequence[int]) -> bool:
        from execnet.gateway_base import get_execmodel, init_popen_io
        from xdist import remote

        config = session.config
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # The files of captured output are the worker's own.
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        io: Any = init_popen_io(get_execmodel("main_thread_only"))
        # The source of execnet, which is here.
        io.infile.buffer.readline()
        io.write(b"1")
        self._serving = Thread(target=_gateway(io, self._hand_over).serve, daemon=True)
        self._serving.start()
        capture.start_global_capturing()
        capture.suspend_global_capture()

        channel = self._channels.get()
        told, _, options, _ = channel.receive()
        os.environ["PYTEST_XDIST_TESTRUNUID"] = told["testrunuid"]
        os.environ["PYTEST_XDIST_WORKER"] = told["workerid"]
        os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(told["workercount"])
        config.option.basetemp = options.get("basetemp")
        factory = TempPathFactory.from_config(config, _ispytest=True)
        vars(config).update(workerinput=told, _tmp_path_factory=factory)
        # The hooks that the worker's session has gone through.
        interactor = _interactor(config, channel)
        vars(remote).update(interactor=interactor)
        interactor.pytest_sessionstart(session)
        interactor.pytest_collection()
        for report in self._reports:
            interactor.pytest_collectreport(report)
        interactor.pytest_collection_finish(session)
        return bool(interactor.pytest_runtestloop(session))

    def _hand_over(self, channel: Any) -> None:
        """Give the channel to the thread that runs the tests, and keep it open until they have run."""
        self._channels.put(channel)
        self._ended.wait()

    def end(self) -> None:
        """Wait until the process that distributes the tests has let go of this worker."""
        if self._serving is not None:
            self._ended.set()
            self._serving.join()


def _gateway(io: Any, run: Callable[[Any], None]) -> Any:
    """The worker's end of execnet. Instead of xdist's program it runs ``run``, with the channel."""
    from execnet.gateway_base import WorkerGateway
    from xdist import remote

    class Gateway(WorkerGateway):
        def executetask(self, item: Any) -> None:
            channel, (source, file, *rest) = item
            if file == remote.__file__:
                channel.run = run
                source = "channel.run(channel)"
            super().executetask((channel, (source, file, *rest)))

    return Gateway(io=io, id="forked", _startcount=2)


def _interactor(config: pytest.Config, channel: Any) -> Any:
    """What reports a worker's tests by ``channel``. Each message takes worker and distributor half a millisecond.

    Of a test that passes three of six messages are left out, unless an option has them printed or timed: its start,
    and that its fixtures were set up and torn down without output. A plugin that reads the reports of
    setup or teardown on the distributor would miss them.
    """
    from xdist import remote

    class Interactor(remote.WorkerInteractor):  # type: ignore[misc]
        @pytest.hookimpl
        def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
            """No option in use prints it."""

        @pytest.hookimpl
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or not report.passed or report.sections:
                super().pytest_runtest_logreport(report)

    options = config.option
    shown = options.verbose > 0 or options.durations is not None or options.xmlpath is not None
    return remote.WorkerInteractor(config, channel) if shown else Interactor(config, channel)


def _end_all() -> None:
    """Wait for all forks; kill those that do not end."""
    _, alive = psutil.wait_procs(psutil.Process().children(), _END_SECONDS)
    for each in alive:
        each.kill()
    psutil.wait_procs(alive)


def _collect() -> int:
    # pytest and the tests find other files in their place.
    distributor = os.dup(0), os.dup(1)
    order = json.loads(os.fdopen(os.dup(0)).readline())
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    os.chdir(order["folder"])
    sys.path[:] = order["path"]
    temporary = {name: value for name, value in ONE_THREAD.items() if name not in os.environ}
    os.environ.update(temporary)
    plugin = _Collected(order["address"], distributor, temporary)
    status = pytest.main(order["arguments"], [plugin])
    plugin.end()
    return int(status)


if __name__ == "__main__":
    sys.exit(_collect())
