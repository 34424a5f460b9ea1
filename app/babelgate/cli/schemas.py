"""The commands ``schemas validate``, ``check`` and ``bundle``, which read directories and need no running gateway."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from babelgate.cli.connection import as_json
from babelgate.cli.output import REFUSED, complain, print_json, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from babelgate.schemas.compatibility import Direction
    from babelgate.schemas.files import SchemaFile

UNDECIDED = 4
"""Exit status of a comparison that found no incompatible schema and could not decide all."""

_DIRECTORY = click.Path(path_type=Path)


@click.group()
def schemas() -> None:
    """Check directories of JSON Schemas of jobs, for example in CI."""


@schemas.command(epilog="\b\nExample:\n  babelgate schemas validate schemas/")
@click.argument("directory", type=_DIRECTORY)
def validate(directory: Path) -> None:
    """Check that a gateway can use the schemas below DIRECTORY; exit with 1 if it would refuse to start."""
    count = len(_files(directory))
    say(f"{count} schemas can be used" if count != 1 else "1 schema can be used")


@schemas.command(epilog="\b\nExample:\n  babelgate schemas check main/schemas schemas --mode full")
@click.argument("old", type=_DIRECTORY)
@click.argument("new", type=_DIRECTORY)
@click.option(
    "--mode",
    type=click.Choice(["backward", "forward", "full"]),
    default="backward",
    show_default=True,
    help="backward: the new schemas allow all data that the old ones do, so that new consumers read old messages; "
    "forward: the old ones allow all data that the new ones do; full: both.",
)
@as_json
def check(old: Path, new: Path, mode: Literal["backward", "forward", "full"], as_json: bool) -> None:
    """Compare the schemas below NEW with those below OLD.

    Exits with 0 if all are compatible, with 1 if one is not, and with 4 if that cannot be decided of one.
    """
    from babelgate.schemas.compatibility import differences

    directions: tuple[Direction, ...] = ("backward", "forward") if mode == "full" else (mode,)
    found = list(differences(_files(old), _files(new), directions))
    for each in found:
        verdict = "cannot be decided" if each.undecided else "incompatible"
        if as_json:
            print_json(asdict(each))
        else:
            say(f"{each.job}: {each.direction} {verdict} at {each.place}: {each.detail}")
    if any(not each.undecided for each in found):
        sys.exit(REFUSED)
    if found:
        sys.exit(UNDECIDED)
    if not as_json:
        say(f"compatible ({mode})")


@schemas.command(epilog="\b\nExample:\n  babelgate schemas bundle schemas/ > schemas.json")
@click.argument("directory", type=_DIRECTORY)
def bundle(directory: Path) -> None:
    """Print the schemas below DIRECTORY as one JSON object, which a gateway can read from a URL (schemas.url)."""
    from babelgate.schemas.files import bundled

    click.echo(bundled(_files(directory).values()), nl=False)


def _files(directory: Path) -> Mapping[str, SchemaFile]:
    """The schemas of a directory without faults; else ends the program with all faults."""
    from babelgate.schemas.job_schemas import compiled

    made, faults = compiled(directory)
    for fault in faults:
        complain(f"{directory}: {fault}")
    if faults:
        sys.exit(REFUSED)
    return {file.job: file for file in made}
