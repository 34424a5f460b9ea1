"""Output and exit statuses of the command line."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from babelgate.errors import ConfigError
from babelgate.terminal import printable, unguarded

REFUSED, NOT_INSTALLED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130
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
    """Print aligned columns, with a dash for None. On a terminal that is too narrow: a block for each row."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    lines = aligned([heads, *cells])
    if fits(lines):
        for line in lines:
            click.echo(line)
        return
    for number, row in enumerate(cells):
        if number:
            say()
        block(heads, row)


def block(heads: Sequence[str], cells: Sequence[str]) -> None:
    """Print one row of a table as a line for each cell, with the head of its column in lower case."""
    for head, cell in zip(heads, cells, strict=True):
        say_wrapped(f"{head.lower()}: {cell}")


def say_wrapped(text: str, indent: int = 0) -> None:
    """Print ``text`` to standard output, on a terminal in lines of whole words. Further lines are indented by two more
    spaces than the first one."""
    begin = " " * indent
    width = _columns()
    if len(text) + indent <= width:
        say(begin + text)
        return
    lines = textwrap.wrap(
        printable(text),
        width,
        initial_indent=begin,
        subsequent_indent=begin + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        click.echo(line)


def fits(lines: Iterable[str]) -> bool:
    """Whether each of ``lines`` has a line of the terminal; always if standard output is none."""
    width = _columns()
    if width == sys.maxsize:
        return True
    from rich.cells import cell_len

    return all(cell_len(line) <= width for line in lines)


def _columns() -> int:
    """The width of the terminal; without bound if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


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
            say_wrapped(f"{name}: {text}", indent)


@contextmanager
def configuration_errors(file: Path | None, options: Collection[str] = ()) -> Iterator[None]:
    """Print each bad key of the configuration with its reason and where it was set, and exit with 1; with 2 if it needs
    an extra that is not installed.

    ``options``: the keys that the command line has set.
    """
    try:
        yield
    except ConfigError as error:
        from babelgate.config.places import place_of

        for key, reason in error.facts.get("problems", [(error.key, error.reason)]):
            place = place_of(key, file, os.environ, options)
            complain(f"{key}: {reason} ({place})" if place is not None else f"{key}: {reason}")
        sys.exit(NOT_INSTALLED if "extra" in error.facts else REFUSED)


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
    from babelgate.cli.client import GatewayUnreachable, RequestRefused

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
