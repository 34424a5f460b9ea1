"""Output and exit statuses of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from app.errors import ConfigError

REFUSED, UNREACHABLE, INTERRUPTED = 1, 3, 130


def complain(text: str) -> None:
    """Print to standard error."""
    click.echo(text, err=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns, with a dash for None."""
    lines = [heads, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@contextmanager
def configuration_errors() -> Iterator[None]:
    """Print each bad key of the configuration with its reason, and exit with 1."""
    try:
        yield
    except ConfigError as error:
        for key, reason in error.facts.get("problems", [(error.key, error.reason)]):
            complain(f"{key}: {reason}")
        sys.exit(REFUSED)


@contextmanager
def gateway_errors() -> Iterator[None]:
    """Print an error of the gateway and exit: 1 when it refused the request, 3 when it does not answer. An interrupt
    prints nothing (130)."""
    from app.cli.client import GatewayUnreachable, RequestRefused

    try:
        yield
    except RequestRefused as error:
        complain(str(error))
        sys.exit(REFUSED)
    except GatewayUnreachable as error:
        complain(f"no answer from {error}")
        sys.exit(UNREACHABLE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
