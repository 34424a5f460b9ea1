"""Output and exit statuses of the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from app.errors import ConfigError

REFUSED, UNREACHABLE, INTERRUPTED = 1, 3, 130


def complain(text: str) -> None:
    """Print to standard error."""
    click.echo(text, err=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns, with a dash for None."""
    for line in aligned([heads, *(["-" if cell is None else printable(str(cell)) for cell in row] for row in rows)]):
        click.echo(line)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row, with the cells of a column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def fields(values: Mapping[str, Any], indent: int = 0) -> None:
    """Print one member per line, and the members of an object below its name."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            click.echo(f"{' ' * indent}{name}:")
            fields(value, indent + 2)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            click.echo(f"{' ' * indent}{name}: {printable(text)}")


def printable(text: str) -> str:
    """``text`` without control characters, which could change what a terminal shows."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


@contextmanager
def configuration_errors(file: Path | None, options: Collection[str] = ()) -> Iterator[None]:
    """Print each bad key of the configuration with its reason and where it was set, and exit with 1.

    ``options``: the keys that the command line has set.
    """
    try:
        yield
    except ConfigError as error:
        from app.config.places import place_of

        for key, reason in error.facts.get("problems", [(error.key, error.reason)]):
            place = place_of(key, file, os.environ, options)
            complain(f"{key}: {reason} ({place})" if place is not None else f"{key}: {reason}")
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
