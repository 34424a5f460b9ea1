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
from app.terminal import printable, unguarded

REFUSED, UNREACHABLE, INTERRUPTED = 1, 3, 130
_ONE_LINE = bytes.maketrans(b"\n\r\t", b"   ")
"""JSON escapes these characters in strings, so that they occur between tokens only."""


def say(text: str = "") -> None:
    """Print one line for people to standard output."""
    click.echo(printable(text))


def complain(text: str) -> None:
    """Print one line to standard error."""
    click.echo(printable(text), err=True)


def heading(text: str) -> None:
    """Print one line in bold to standard error."""
    click.secho(printable(text), bold=True, file=unguarded(sys.stderr))


def print_json(value: object) -> None:
    """Print ``value`` as JSON on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_json_text(text: bytes) -> None:
    """Print a JSON text on one line. All but line breaks and tabs between its tokens stays as it is."""
    # The standard output is flushed by the caller or at the end, because there may be many lines.
    sys.stdout.buffer.write(text.translate(_ONE_LINE) + b"\n")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns, with a dash for None."""
    for line in aligned([heads, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]):
        click.echo(line)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One printable line per row, with the cells of a column below each other."""
    shown = [[*map(printable, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]


def fields(values: Mapping[str, Any], indent: int = 0) -> None:
    """Print one member per line, and the members of an object below its name."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            say(f"{' ' * indent}{name}:")
            fields(value, indent + 2)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            say(f"{' ' * indent}{name}: {text}")


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
def one_line_errors() -> Iterator[None]:
    """Escape line feeds in the messages of errors that click prints."""
    try:
        yield
    except click.ClickException as error:
        # click declares the attribute as final.
        vars(error)["message"] = printable(error.message)
        raise


@contextmanager
def gateway_errors() -> Iterator[None]:
    """Print an error of the gateway and exit: 1 when it refused the request, 3 when it does not answer. An interrupt
    prints nothing (130)."""
    from app.cli.client import GatewayUnreachable, RequestRefused

    try:
        yield
    except RequestRefused as error:
        for line in error.lines():
            complain(line)
        sys.exit(REFUSED)
    except GatewayUnreachable as error:
        complain(f"no answer from {error}")
        sys.exit(UNREACHABLE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
