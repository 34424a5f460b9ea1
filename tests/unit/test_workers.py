"""Workers of pytest-xdist as forks: what they report is what workers of xdist report, also when they crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness import workers

_ROOT = Path(__file__).parents[2]
_CONFTEST = """
import json, os, pathlib
import pytest
from tests.harness.workers import ForkedWorkers

place = pathlib.Path(__file__).parent

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ForkedWorkers())

@pytest.fixture(autouse=True)
def note(request, tmp_path):
    facts = {"worker": os.environ["PYTEST_XDIST_WORKER"], "process": os.getpid(), "parent": os.getppid()}
    facts |= {"directory": str(tmp_path), "variables": sorted(os.environ)}
    (place / f"{request.node.name}.json").write_text(json.dumps(facts))
    print(f"set up for {request.node.name}")
    yield
    print(f"torn down after {request.node.name}")
"""
_PASSES = """
import pathlib

with (pathlib.Path(__file__).parent / "collected").open("a") as file:
    file.write("1")

def test_passes():
    pass
"""
_CRASHES = """
import os, signal

def test_crashes():
    os.kill(os.getpid(), signal.SIGKILL)
"""
_WARNS = """
import pytest, warnings

warnings.warn("the collection warns")
pytest.skip("no need", allow_module_level=True)
"""
_THREADS = """
import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
_FAILURES = 10
_WITHOUT = ("anyio", "asyncio", "cacheprovider", "hypothesispytest", "schemathesis")
"""Plugins that take time to load."""


class Run:
    """A run of pytest with two workers over ``modules``, the sources of the tests by their name."""

    def __init__(self, place: Path, modules: Mapping[str, str], *arguments: str) -> None:
        self.place = place
        (place / "conftest.py").write_text(_CONFTEST)
        without = " ".join(f"-p no:{each}" for each in _WITHOUT)
        (place / "pytest.ini").write_text(f"[pytest]\naddopts = -n2 -rA {without}")
        for name, source in modules.items():
            (place / f"test_{name}.py").write_text(source)
        # What the run that runs this test has set is none of its business.
        foreign = {*workers.ONE_THREAD, *(name for name in os.environ if name.startswith("PYTEST_"))}
        environ = {name: value for name, value in os.environ.items() if name not in foreign}
        environ["PYTHONPATH"] = f"{_ROOT}{os.pathsep}{_ROOT / 'app'}"
        command = [sys.executable, "-m", "pytest", f"--basetemp={place}/base", *arguments]
        done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True)
        self.status = done.returncode
        self.output = done.stdout + done.stderr

    @property
    def collected(self) -> int:
        """How many processes have collected the tests."""
        return len((self.place / "collected").read_text())

    def notes(self) -> Sequence[Mapping[str, Any]]:
        """The facts that the tests have noted."""
        return [json.loads(path.read_text()) for path in sorted(self.place.glob("test_*.json"))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with whatever can happen."""
    failing = "".join(f"def test_{n}():\n    print('output of {n}!')\n    assert {n} < 0\n" for n in range(_FAILURES))
    modules = {
        "a": _PASSES,
        "broken": "import no_such_module\n",
        "crashes": _CRASHES,
        "fails": failing,
        "warns": _WARNS,
    }
    return Run(tmp_path_factory.mktemp("run"), modules)


def test_workers_are_forks_of_one_process_that_collects(run: Run) -> None:
    assert run.collected == 1, run.output
    notes = run.notes()
    assert len(notes) == _FAILURES + 2
    assert len({each["parent"] for each in notes}) == 1
    assert len({each["process"] for each in notes}) in {2, 3}
    assert {each["worker"] for each in notes} <= {"gw0", "gw1", "gw2"}


def test_a_fork_has_the_directory_and_the_variables_of_a_worker(run: Run) -> None:
    for each in run.notes():
        assert Path(each["directory"]).parent.name == f"popen-{each['worker']}"
        assert not {*workers.ONE_THREAD} & {*each["variables"]}


def test_a_worker_that_crashes_is_replaced(run: Run) -> None:
    assert "crashed while running 'test_crashes.py::test_crashes'" in run.output
    assert "replacing crashed worker" in run.output


def test_what_has_happened_is_counted(run: Run) -> None:
    assert run.status == 1
    for count in (f"{_FAILURES + 1} failed", "1 passed", "1 skipped", "3 warnings", "1 error"):
        assert count in run.output, run.output


def test_what_a_test_prints_is_its_own(run: Run) -> None:
    assert [run.output.count(f"\noutput of {n}!") for n in range(_FAILURES)] == [1] * _FAILURES, run.output


def test_what_a_fixture_prints_is_shown_with_a_failure(run: Run) -> None:
    assert run.output.count("\nset up for") == run.output.count("\ntorn down after") == _FAILURES + 1, run.output


def test_durations_are_of_all_phases(tmp_path: Path) -> None:
    run = Run(tmp_path, {"passes": _PASSES}, "--durations=0", "-vv")
    assert [f"s {phase} " in run.output for phase in ("setup", "call", "teardown")] == [True] * 3, run.output


def test_what_happens_in_the_collection_is_reported(run: Run) -> None:
    assert "No module named 'no_such_module'" in run.output
    assert "the collection warns" in run.output
    assert "no need" in run.output


def test_the_run_ends_at_the_first_failure(tmp_path: Path) -> None:
    failing = "import time\n" + "".join(f"def test_{n}():\n    time.sleep(0.1)\n    assert False\n" for n in range(200))
    run = Run(tmp_path, {"failing": failing}, "-x")
    assert run.status == 2 and "stopping after 1 failures" in run.output, run.output
    assert len(run.notes()) < 100


def test_what_has_threads_is_not_forked(tmp_path: Path) -> None:
    run = Run(tmp_path, {"passes": _THREADS + _PASSES})
    assert run.status == 0, run.output
    assert "Workers are not forked, because there are threads" in run.output
    # By the process that could not be forked, and by two workers.
    assert run.collected == 3


def test_without_the_process_a_worker_is_the_python_that_execnet_wants(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(workers.PROGRAM), str(tmp_path / "forks")]
    wanted = subprocess.run([*command, "-u", "-c", "print(input())"], input=b"words\n", capture_output=True, check=True)
    assert wanted.stdout == b"words\n"
