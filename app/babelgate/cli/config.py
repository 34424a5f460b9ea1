"""The command ``config diff``: what differs between two configurations."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from babelgate.cli.connection import as_json, connects
from babelgate.cli.output import complain, print_json, say

if TYPE_CHECKING:
    from babelgate.cli.client import Client
    from babelgate.config.settings import Settings

DIFFERENT, FAILED = 1, 2
_FILE = click.Path(path_type=Path)


@click.group()
def config() -> None:
    """Compare configurations."""


@config.command(epilog="\b\nExample:\n  babelgate config diff babelgate.yaml")
@click.argument("old", type=_FILE, metavar="[OLD]")
@click.argument("new", type=_FILE, metavar="FILE", required=False)
@as_json
@connects
def diff(client: Client, old: Path, new: Path | None, as_json: bool) -> None:
    """Print what differs between the running gateway and FILE, or between the files OLD and FILE.

    Values are shown with secrets masked, and defaults count. Secrets of a running gateway are not compared. Exits with
    0 if nothing differs, with 1 if something does, and with 2 if it cannot be said.
    """
    from babelgate.cli.client import GatewayUnreachable, RequestRefused
    from babelgate.config.differences import between, between_shown

    if new is not None:
        found = between(_loaded(old), _loaded(new))
    else:
        settings = _loaded(old)
        try:
            running = client.configuration()
        except (GatewayUnreachable, RequestRefused) as error:
            complain(str(error))
            sys.exit(FAILED)
        found = between_shown(running, settings)
    for each in found:
        if as_json:
            print_json({"key": each.key, "old": each.old, "new": each.new, "restart": each.restart})
        else:
            restart = " (needs a restart)" if each.restart else ""
            say(f"{each.key}: {_text(each.old)} → {_text(each.new)}{restart}")
    if found:
        sys.exit(DIFFERENT)


def _text(value: object) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False)


def _loaded(path: Path) -> Settings:
    from babelgate.config.settings import load
    from babelgate.errors import ConfigError

    try:
        return load(path, os.environ)
    except ConfigError as error:
        complain(f"{path}: {error}")
        sys.exit(FAILED)
