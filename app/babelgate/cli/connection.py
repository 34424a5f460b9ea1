"""What the commands that call a running gateway share: the connection, and how they print."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import click

from babelgate.cli.output import gateway_errors

LOCAL_URL = "http://127.0.0.1:8080"


class Number(click.FloatRange):
    """A finite number from 0, or above it. In JSON, NaN and infinity would be null, which stands for the default."""

    def __init__(self, *, above: bool = False) -> None:
        """``above``: 0 is none of them."""
        super().__init__(min=0, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="BABELGATE_CONFIG",
    help="The YAML configuration file; without it, the defaults apply.",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs, one object per line.")


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Add connection options to ``command`` and pass it a Client. Errors of the client end the program."""

    @functools.wraps(command)
    def connected(url: str, token: str | None, token_file: IO[str] | None, **arguments: Any) -> None:
        from babelgate.cli.client import Client

        secret = (token or (token_file.read() if token_file else "")).strip()
        if not (secret.isascii() and secret.isprintable()):
            # The value may still be a secret, so it is not quoted.
            raise click.BadParameter("a token must be one line of ASCII", param_hint="--token")
        try:
            opened = Client(url, secret or None)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--url") from None
        with gateway_errors(), opened as client:
            command(client, **arguments)

    for option in (
        click.option(
            "--token-file",
            type=click.File(errors="replace"),
            envvar="BABELGATE_TOKEN_FILE",
            help="A file that contains the token.",
        ),
        click.option(
            "--token", envvar="BABELGATE_TOKEN", help="The bearer token; prefer the variable BABELGATE_TOKEN."
        ),
        click.option(
            "--url", envvar="BABELGATE_URL", default=LOCAL_URL, show_default=True, help="The URL of the gateway."
        ),
    ):
        connected = option(connected)
    return connected
