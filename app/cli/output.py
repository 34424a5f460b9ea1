"""What the command line prints, and how it ends."""

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
    """Print aligned columns; ``None`` is a dash."""
    lines = [heads, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@contextmanager
def configuration_errors() -> Iterator[None]:
    """Say which keys of the configuration are bad, and exit with 1."""
    try:
        yield
    except ConfigError as error:
        for key, reason in error.facts.get("problems", [(error.key, error.reason)]):
            complain(f"{key}: {reason}")
        sys.exit(REFUSED)


@contextmanager
def gateway_errors() -> Iterator[None]:
    """Say in one line what the gateway refused (exit 1), that there is none (3); an interrupt is quiet (130)."""
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
