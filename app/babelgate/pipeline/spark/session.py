"""Starts Spark sessions from ``--master`` and ``--conf``, locally or on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import babelgate
from babelgate.pipeline.errors import JobFailed, require_spark
from babelgate.terminal import guarded, unguarded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
_OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and later: https://spark.apache.org/docs/latest/#downloading"""
_EPOCH = (1980, 1, 1, 0, 0, 0)
PACKAGE = "babelgate.zip"
"""The file that executors get."""

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # A speculative copy of a slow task would send its messages again.
    "spark.speculation": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Rows of few partitions are written as they come. Otherwise each task sorts its rows by partition first.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # PySpark would ask Java three times more per function, to add a line of this program to messages of errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Small partitions show progress and bound the memory of a task.
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
}

_SHORT = {
    # Each query has few rows, so its tasks and the code compiled for it would cost more than its rows.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of a local job on few records. They do not change its result."""


def check_environment() -> None:
    """Check that Spark, its libraries and Java are installed. Raises ExtraMissing or JobFailed, with the remedy."""
    require_spark()
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        where = f"in JAVA_HOME, {home}" if home else "in PATH, and JAVA_HOME is not set"
        raise JobFailed(
            f"Spark needs Java {_OLDEST_JAVA} or later, and there is none {where}. "
            "On Debian: apt-get install openjdk-17-jre-headless"
        )
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    if found is None:
        raise JobFailed(f"{java} does not run: {printed.strip() or 'it prints no version'}")
    if int(found[1]) < _OLDEST_JAVA:
        raise JobFailed(f"Spark needs Java {_OLDEST_JAVA} or later; {java} is version {found[1]}. Set JAVA_HOME.")
    _check_spark_home()


def _check_spark_home() -> None:
    from pyspark import __version__ as installed

    home = os.environ.get("SPARK_HOME")
    cores = [each.stem for each in Path(home, "jars").glob("spark-core_*.jar")] if home else []
    if cores and not any(core.endswith(f"-{installed}") for core in cores):
        raise JobFailed(f"SPARK_HOME, {home}, has {cores[0]}, and pyspark here is {installed}: unset SPARK_HOME")


def _check_python(python: str) -> None:
    """Check that local workers have the same Python version, because code is sent to them. Raises JobFailed."""
    if python == sys.executable:
        return
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        version = ""
    if version != mine:
        found = f"is of version {version}" if version else "does not run"
        raise JobFailed(
            f"{python}, which PYSPARK_PYTHON or spark.pyspark.python names, {found}; Python {mine} is needed."
        )


@contextmanager
def session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
    short: bool = False,
) -> Iterator[SparkSession]:
    """A session called ``name``. A session that is already active is used unchanged and left running.

    ``master`` None: the master of spark-submit, else ``local[*]``. ``conf`` overrides the defaults set here. ``log``:
    the file for the standard error of Spark's processes. ``short``: the job reads few records, so a local session has
    the settings that cost least. Raises JobFailed. Takes 3 to 20 s.
    """
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    check_environment()
    with tempfile.TemporaryDirectory(prefix="babelgate-") as folder, nullcontext() if log is None else _stderr_to(log):
        started = _start(name, master, conf or {}, Path(folder), short)
        try:
            yield started
        finally:
            # If Java has ended by itself, the job itself has already failed.
            with suppress(Py4JError, OSError):
                started.stop()


def _start(name: str, master: str | None, conf: Mapping[str, str], folder: Path, short: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from babelgate.pipeline.spark.java_classes import remember_classes

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started the JVM and passed its settings to it.
        SparkContext._ensure_initialized()
    settings = SparkConf()
    for key, value in conf.items():
        settings.set(key, value)
    if master is not None:
        settings.setMaster(_with_retries(master))
    settings.setIfMissing("spark.master", _with_retries(DEFAULT_MASTER))
    settings.setIfMissing("spark.app.name", f"babelgate {name}")
    local = settings.get("spark.master", "").startswith("local")
    own = _ALWAYS | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    if local:
        own |= local_settings(short, settings.get("spark.driver.extraJavaOptions"), os.environ)
    for key, value in own.items():
        settings.setIfMissing(key, value)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Otherwise workers use the first python3 in their PATH. As in spark-submit, the setting wins over the variable.
    os.environ["PYSPARK_PYTHON"] = (
        settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    if local:
        _check_python(os.environ["PYSPARK_PYTHON"])
    # PySpark's own Ctrl-C handler calls Java while another call is in progress, which fails. Ending the session cancels
    # the jobs as well.
    interrupt = signal.getsignal(signal.SIGINT)
    started = SparkSession.builder.config(conf=settings).getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
    remember_classes(started.sparkContext._jvm)
    package = packed(folder)
    if package is not None:
        started.sparkContext.addPyFile(str(package))
    return started


def local_settings(short: bool, options: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings where Spark runs in one process. ``short``: as in :func:`session`; ``options``: those given for Java."""
    cores = os.cpu_count() or 1
    own = {
        **_LOCAL,
        "spark.sql.shuffle.partitions": str(8 * cores),
        # Two tasks per core, also of a few files that compress well.
        "spark.sql.files.minPartitionNum": str(2 * cores),
        **(_SHORT if short else {}),
    }
    # A short job ends before Java's second compiler has paid off.
    java = ["-XX:TieredStopAtLevel=1"] if short else []
    # Java's usual collector works beside the tasks, which already use all cores. Java refuses a second choice.
    if not _chooses_collector(options, environment):
        java.append("-XX:+UseSerialGC" if short else "-XX:+UseParallelGC")
    return own | ({"spark.driver.defaultJavaOptions": " ".join(java)} if java else {})


def _chooses_collector(options: str | None, environment: Mapping[str, str]) -> bool:
    """Whether Java's ``options``, or those that it takes from the environment, choose a garbage collector."""
    given = [options or "", *(environment.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))]
    return any(re.search(r"-XX:[+-]Use\w+GC\b", each) for each in given)


def _with_retries(master: str) -> str:
    """``master``, with four attempts per task if it is local, so that a killed worker process does not fail the job."""
    threads = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{threads[1] or 1},4]" if threads else master


def packed(folder: Path) -> Path | None:
    """This package as a zip file for the executors; None if it runs from a zip file, which Spark ships already."""
    home = Path(babelgate.__file__).parent
    if not home.is_dir():
        return None
    target = folder / PACKAGE
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(home.rglob("*.py")):
            entry = zipfile.ZipInfo(path.relative_to(home.parent).as_posix(), _EPOCH)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Send the standard error of processes started in the block to ``log``; this process keeps its own."""
    kept = os.dup(2)
    shown = sys.stderr
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        with os.fdopen(os.dup(kept), "w", buffering=1) as terminal:
            if unguarded(shown) is sys.__stderr__:
                sys.stderr = terminal if unguarded(shown) is shown else guarded(terminal)
            yield
    finally:
        sys.stderr = shown
        os.dup2(kept, 2)
        os.close(kept)
