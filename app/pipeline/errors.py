"""How a job ends when it does not end well: each kind has its exit code, and says why in one line."""

from __future__ import annotations

import click


class JobFailed(click.ClickException):
    """The job cannot be done, or went wrong: exit code 1."""

    exit_code = 1


class QualityBroken(click.ClickException):
    """All was done, and the data is worse than the threshold that was given: exit code 3."""

    exit_code = 3


class Partial(click.ClickException):
    """A part was done, and the rest is left for another run: exit code 4."""

    exit_code = 4
