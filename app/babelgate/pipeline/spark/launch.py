"""Starts Spark for one job, keeps its log, and turns its errors into one line."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.extras import how_to_install
from babelgate.pipeline.errors import JobFailed, SparkEnded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LACKING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'")
_PYTHON_ERROR = re.compile(r"^(?!java|org\.|scala|py4j)[\w.]+(?:Error|Exception|Interrupt|Exit)\b.*$", re.M)
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_JAVA_ERROR = re.compile(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error)): (.+)$", re.M)


Note = Callable[[Mapping[str, Any]], None]
"""Takes the facts of a result: of a job once, at its end; of an endless one after each round that changed something."""


WriteFile = Callable[[bytes, str], None]
"""Writes a file, from its content and content type. Raises JobFailed."""


def ignore(facts: Mapping[str, Any]) -> None:
    """A Note that does nothing."""


@dataclass(frozen=True)
class Launch:
    """The options of a command that start Spark, or choose DuckDB. ``summary``: writes the file of the result.

    ``engine``: auto, duckdb or spark. ``duckdb_max_mib``: the most MiB of files that auto lets DuckDB read.
    ``note``: takes the facts of the result, too.
    """

    master: str | None
    conf: dict[str, str]
    summary: WriteFile | None
    verbose: bool
    engine: str = "spark"
    duckdb_max_mib: float = 0.0
    note: Note = ignore

    def summarize(self, facts: Mapping[str, Any]) -> None:
        """Write the result to the file of ``--summary``, as JSON, and pass it to ``note``. Raises JobFailed."""
        if self.summary is not None:
            content = json.dumps(dict(facts), indent=2, sort_keys=True) + "\n"
            self.summary(content.encode(), "application/json")
        self.note(facts)

    @contextmanager
    def spark(self, name: str, *, short: bool = False) -> Iterator[SparkSession]:
        """A Spark session for the job ``name``. Errors of Spark are raised as JobFailed, which names the kept log.

        ``short``: the job reads few records. With ``verbose`` Spark logs to standard error instead.
        """
        from babelgate.pipeline.spark.console import say
        from babelgate.pipeline.spark.session import session

        say(f"{name}: starting Spark")
        log = None
        if not self.verbose:
            with tempfile.NamedTemporaryFile(prefix=f"babelgate-{name}-", suffix=".log", delete=False) as file:
                log = Path(file.name)
        try:
            with session(name, master=self.master, conf=self.conf, log=log, short=short) as started:
                yield started
        except Exception as error:
            reason = None if isinstance(error, click.ClickException) else explain(error)
            if isinstance(error, SparkEnded):
                reason = error.message
            if reason is None:
                raise
            more = "" if log is None else f". What Spark wrote is in {log}."
            log = None
            raise JobFailed(reason.rstrip(".") + more) from error
        finally:
            if log is not None:
                log.unlink()

    @contextmanager
    def kept(self) -> Iterator[Launch]:
        """The same options, for several jobs of one process: the first that needs Spark starts it, and it is ended
        after the block."""
        with ExitStack() as stack:
            yield _KeptLaunch(self.master, self.conf, None, self.verbose, self.engine, self.duckdb_max_mib, stack=stack)


@dataclass(frozen=True)
class _KeptLaunch(Launch):
    stack: ExitStack = field(default_factory=ExitStack)
    started: list[SparkSession] = field(default_factory=list)

    @contextmanager
    def spark(self, name: str, *, short: bool = False) -> Iterator[SparkSession]:
        """The session of all jobs, with the usual settings also for a ``short`` one, because later ones may be long.

        An error of Spark is raised as JobFailed, but one of a Java process that has ended as it is. Raises SparkEnded.
        """
        if not self.started:
            try:
                self.started.append(self.stack.enter_context(super().spark(name)))
            except JobFailed as error:
                raise SparkEnded(error.message) from error
        check_running(self.started[0])
        try:
            yield self.started[0]
        except Exception as error:
            reason = None if isinstance(error, click.ClickException) or has_ended(error) else explain(error)
            if reason is None:
                raise
            raise JobFailed(reason) from error


def check_running(spark: SparkSession) -> None:
    """Raise SparkEnded if Spark has stopped itself, as when a cluster ends the application, while Java lives."""
    context = spark.sparkContext._jsc
    if context is None or context.sc().isStopped():
        raise SparkEnded("Spark has stopped, and its jobs with it")


def has_ended(error: BaseException) -> bool:
    """Whether the error says that Spark's Java process has ended."""
    # A process that works by DuckDB may lack Spark's library.
    py4j = sys.modules.get("py4j.protocol")
    return isinstance(error, ConnectionError) or (py4j is not None and isinstance(error, py4j.Py4JNetworkError))


def reason_of(error: BaseException) -> str | None:
    """One line about an error of a job, while Spark runs; None for one that needs its stack trace."""
    if isinstance(error, JobFailed):
        return error.message
    return str(error) if isinstance(error, OSError) else explain(error)


def explain(error: BaseException) -> str | None:
    """One line about an error of Spark, Java or an executor; None for any other error, which needs its stack trace."""
    if has_ended(error):
        return (
            "Spark's Java process has ended: it was killed, or had too little memory (--conf spark.driver.memory=4g)."
        )
    if "pyspark" not in sys.modules:
        return None
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JError | PySparkException):
        return None
    text = str(error)
    lacking = _LACKING.search(text)
    if lacking:
        extra = "schemas" if lacking[1] == "jsonschema_rs" else "spark"
        return (
            f"The executors' Python lacks the module {lacking[1]!r}. Install what the workers need there: "
            f"{how_to_install(extra)}; or name another Python with PYSPARK_PYTHON."
        )
    no_python = _NO_PYTHON.search(text)
    if no_python:
        return f"The executors have no {no_python[1]}: name their Python with PYSPARK_PYTHON."
    if "PYTHON_VERSION_MISMATCH" in text:
        return "The executors' Python is of another version than this one: name a like one with PYSPARK_PYTHON."
    raised = _PYTHON_ERROR.findall(text)
    java = _JAVA_ERROR.findall(text)
    if isinstance(error, PySparkException) and not raised:
        return text.partition("\n")[0] or type(error).__name__
    if raised:
        return f"A task failed: {raised[-1]}"
    return f"Spark failed: {java[-1][1]}" if java else text.partition("\n")[0]
