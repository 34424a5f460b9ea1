"""Errors that end a command. Each has an exit code and a one-line message."""

from __future__ import annotations

import click

from babelgate.extras import how_to_install, missing


class JobFailed(click.ClickException):
    """The job failed: exit code 1."""

    exit_code = 1


class Hopeless(JobFailed):
    """Another attempt in this process would fail, too, so that an endless run ends."""


class SparkEnded(Hopeless):
    """Spark could not be started, or has ended."""


class ExtraMissing(click.ClickException):
    """A library of an extra is not installed: exit code 2."""

    exit_code = 2


class QualityBroken(click.ClickException):
    """The job finished, but the data missed the given quality threshold: exit code 3."""

    exit_code = 3


class Partial(click.ClickException):
    """The job finished only a part; another run can do the rest: exit code 4."""

    exit_code = 4


def require_spark(*modules: str) -> None:
    """Raise ExtraMissing, with the remedy, unless ``modules`` (by default what every job needs) are installed here."""
    if lacking := missing(modules or ("pyspark", "py4j", "pyarrow", "pandas")):
        raise ExtraMissing(f"not installed here: {lacking}; {how_to_install('spark')}")
