"""What all jobs share: fast --help, one-line errors, progress, and few libraries on executors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
import zipfile
from functools import partial
from pathlib import Path

import click
import pyspark
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkStageInfo, StatusTracker
from pyspark.errors import AnalysisException, PythonException

from babelgate.pipeline.cli.main import COMMANDS
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.spark import console, session
from babelgate.pipeline.spark.launch import Launch, explain
from babelgate.pipeline.storage.output_file import OutputFile

TASK_MODULES = {
    "babelgate.pipeline.validate.validation_task": {"pyarrow", "msgspec"},
    "babelgate.pipeline.journal.tasks": {"pyarrow", "msgspec"},
    "babelgate.pipeline.send.tasks": {"msgspec", "httpx"},
    "babelgate.pipeline.source.data_source": {"pyarrow", "msgspec", "httpx", "pyspark"},
}
"""What Spark's Python workers import, and the libraries that it needs; Spark brings its own along."""


def loaded_by(code):
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in printed.stdout.split()}


def test_help_loads_neither_spark_nor_arrow():
    for command in COMMANDS:
        assert "Options:" in CliRunner().invoke(command, ["--help"]).output
    code = "from babelgate.pipeline.cli.main import pipeline"
    assert loaded_by(code).isdisjoint({"pyspark", "pyarrow", "pandas", "msgspec", "rich"})


@pytest.mark.parametrize("module", TASK_MODULES)
def test_tasks_need_little_of_an_executor(module):
    absent = {"pyspark", "click", "rich", "httpx", "fastapi", "pydantic", "yaml"} - TASK_MODULES[module]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import {module}"
    assert loaded_by(code) >= TASK_MODULES[module], "the others cannot be imported there"


@pytest.fixture
def java(tmp_path):
    """A function that makes a JAVA_HOME whose java says what is given."""

    def make(said):
        path = tmp_path / "bin" / "java"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        path.chmod(0o755)
        return {"JAVA_HOME": str(tmp_path)}

    return make


def checked(environ):
    code = "from babelgate.pipeline.spark.session import check_environment; check_environment()"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[-1] if done.returncode else "fine"


def test_java_is_looked_at_before_spark_starts(java, tmp_path):
    assert "there is none in JAVA_HOME, /nowhere" in checked({"JAVA_HOME": "/nowhere"})
    assert "there is none in PATH, and JAVA_HOME is not set" in checked({"PATH": str(tmp_path)})
    environ = java('openjdk version "1.8.0_392"')
    assert "is version 8. Set JAVA_HOME" in checked(environ)
    script = tmp_path / "bin" / "java"
    script.write_text(script.read_text().replace("1.8.0_392", "21.0.1"))
    assert checked(environ) == "fine"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    assert "has spark-core_2.13-3.5.1, and pyspark here is" in checked({**environ, "SPARK_HOME": str(tmp_path)})
    (tmp_path / "jars" / f"spark-core_2.13-{pyspark.__version__}.jar").touch()
    assert checked({**environ, "SPARK_HOME": str(tmp_path)}) == "fine"
    script.write_text("#!/bin/sh\necho 'no such library' >&2; exit 1\n")
    assert "does not run: no such library" in checked(environ)


def test_the_workers_python_is_looked_at_before_spark_starts(tmp_path):
    session._check_python(sys.executable)
    other = tmp_path / "python3"
    with pytest.raises(JobFailed, match="does not run; Python"):
        session._check_python(str(other))
    other.write_text("#!/bin/sh\necho 3.4\n")
    other.chmod(0o755)
    with pytest.raises(JobFailed, match=r"is of version 3\.4"):
        session._check_python(str(other))
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    session._check_python(str(other))


@pytest.mark.parametrize(
    ("asked", "used"),
    [("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2,9]", "local[2,9]"), ("spark://a:7077",) * 2],
)
def test_a_local_master_retries_tasks_as_a_cluster_does(asked, used):
    assert session._with_retries(asked) == used


def test_the_package_is_shipped_as_it_is_installed(tmp_path):
    first = session.packed(tmp_path)
    assert first is not None
    content = first.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
    assert {
        "babelgate/__init__.py",
        "babelgate/envelope/editing.py",
        "babelgate/pipeline/validate/validation_task.py",
    } <= set(names)
    session.packed(tmp_path)
    assert first.read_bytes() == content
    sys_path = (
        f"import sys; sys.path.insert(0, {str(first)!r}); import babelgate.pipeline.validate.validation_task as m"
    )
    sys_path += "; print(m.__file__)"
    done = subprocess.run([sys.executable, "-c", sys_path], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(first)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PythonException("Traceback\nModuleNotFoundError: No module named 'msgspec'\n"),
            "The executors' Python lacks the module 'msgspec'.",
        ),
        (Py4JError('java.io.IOException: Cannot run program "/x/python": error=2'), "The executors have no /x/python"),
        (PythonException("[PYTHON_VERSION_MISMATCH] Python in worker"), "is of another version than this one"),
        (PythonException("An exception\n  File x\nValueError: bad thing\n"), "A task failed: ValueError: bad thing"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's Java process has ended: it was killed"),
        (ConnectionRefusedError(111, "Connection refused"), "Spark's Java process has ended: it was killed"),
        (Py4JError("An error\njava.io.IOException: No space left on device\n\tat x"), "Spark failed: No space left"),
        (AnalysisException("[TABLE_NOT_FOUND] no x.\nmore"), "[TABLE_NOT_FOUND] no x."),
    ],
)
def test_errors_are_told_in_words(error, words):
    told = explain(error)
    assert told is not None
    assert words in told
    assert "\n" not in told


def test_errors_of_this_program_keep_their_traceback():
    assert explain(KeyError("x")) is None


def test_a_session_that_runs_is_used_and_left_running(spark):
    with session.session("other", master="local[1]", conf={"spark.sql.shuffle.partitions": "7"}) as found:
        assert found is spark
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.master == "local[2,4]"
    # A shell starts what runs in the background with SIGINT ignored.
    pythons = signal.default_int_handler, signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) in pythons, "Ctrl-C is no matter of Spark's"


def test_a_log_is_kept_when_something_names_it(spark):
    name = uuid.uuid4().hex
    launch = Launch(None, {}, None, False)
    logs = partial(Path(tempfile.gettempdir()).glob, f"babelgate-{name}-*")
    for error in (click.UsageError("x"), JobFailed("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)), launch.spark(name):
            raise error
    with launch.spark(name):
        pass
    assert list(logs()) == []
    with pytest.raises(JobFailed) as failed, launch.spark(name):
        raise AnalysisException("[TABLE_NOT_FOUND] no x.")
    (log,) = logs()
    log.unlink()
    assert f"What Spark wrote is in {log}." in str(failed.value)


def test_elsewhere_than_on_a_terminal_progress_is_lines(capsys):
    over = threading.Event()
    told = iter([(1, 4), (3, 4)])

    def tasks():
        counts = next(told, None)
        if counts is None:
            over.set()
        return counts or (4, 4)

    console._lines("validate", tasks, over, seconds=0.01)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines][:2] == ["validate: 1 of 4 tasks", "validate: 3 of 4 tasks"]


def test_progress_counts_on_when_spark_has_ended():
    class Tracker(StatusTracker):
        def __init__(self):
            self.stages = [1]

        def getActiveStageIds(self):
            if not self.stages:
                raise Py4JNetworkError("Answer from Java side is empty")
            return self.stages

        def getStageInfo(self, stage):
            return SparkStageInfo(stage, 0, "", 8, 2, 3, 0)

    tracker = Tracker()
    tasks = console.counting(tracker)
    assert tasks() == (3, 8)
    tracker.stages = []
    assert tasks() == (3, 8)


def test_progress_ends_with_what_it_watches(spark, capsys):
    with console.progress(spark, "nothing"):
        pass
    assert [thread for thread in threading.enumerate() if thread.name == console.WATCHER] == []
    with pytest.raises(click.ClickException), console.progress(spark, "nothing"):
        raise click.ClickException("x")
    assert [thread for thread in threading.enumerate() if thread.name == console.WATCHER] == []


def test_a_summary_is_whole_or_not_there(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("old")
    launch = Launch(None, {}, OutputFile(str(path)).write, False)
    with pytest.raises(TypeError):
        launch.summarize({"a": object()})
    assert path.read_text() == "old"
    launch.summarize({"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]
    Launch(None, {}, None, False).summarize({})


@pytest.mark.parametrize(
    ("options", "environment", "chosen"),
    [
        (None, {}, False),
        ("-Xmx2g -Djavax.net.ssl.trustStore=/etc/UseMyGC.jks", {"JDK_JAVA_OPTIONS": "-Xlog:gc"}, False),
        ("-Xmx2g -XX:+UseSerialGC", {}, True),
        ("", {"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}, True),
        ("", {"JDK_JAVA_OPTIONS": "-XX:+UseZGC -XX:+ZGenerational"}, True),
    ],
)
def test_a_garbage_collector_is_chosen_once(options, environment, chosen):
    assert session._chooses_collector(options, environment) == chosen


def test_a_short_job_compiles_little_and_has_few_tasks():
    long, short = session.local_settings(False, None, {}), session.local_settings(True, None, {})
    assert long["spark.driver.defaultJavaOptions"] == "-XX:+UseParallelGC"
    assert short["spark.driver.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    assert "spark.sql.codegen.wholeStage" not in long
    assert short["spark.sql.codegen.wholeStage"] == "false"
    assert int(short["spark.sql.shuffle.partitions"]) < int(long["spark.sql.shuffle.partitions"])
    chosen = session.local_settings(True, "-XX:+UseZGC", {})
    assert chosen["spark.driver.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1"
