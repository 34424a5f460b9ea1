"""The commands ``tokens create``, ``list``, ``rotate`` and ``revoke``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.cli.connection import CONFIG, Number, as_json, connects
from babelgate.cli.output import REFUSED, complain, configuration_errors, print_json, say, table
from babelgate.clock import now_ms, utc_text
from babelgate.tokens.grants import grants

if TYPE_CHECKING:
    from babelgate.cli.client import Client
    from babelgate.config.settings import Settings
    from babelgate.gateway.authorization import Right
    from babelgate.tokens.file import PageBounds

DAYS = 90.0
_DAY_SECONDS = 86_400
_BOUNDS = ("origins", "per_minute", "max_message_bytes")
_RIGHTS = ("send", "listen", "manage", "observe")


class _Grant(click.ParamType[str]):
    """``QUEUE=RIGHT,…``: the queue, and a list of rights."""

    name = "grant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        is_granted = all(granted and set(granted) <= set(_RIGHTS) for granted in grants([text]).values())
        if "=" not in text or not is_granted:
            self.fail(f"{value!r} is not QUEUE=RIGHTS, such as 'orders.*=send,listen'.", param, ctx)
        return text


@click.group()
def tokens() -> None:
    """Make, list, rotate and revoke bearer tokens with an end."""


@tokens.command(epilog="\b\nExample:\n  babelgate tokens create shop --right 'orders.*=send,listen' --days 30")
@click.argument("name")
@click.option(
    "--right",
    "rights",
    type=_Grant(),
    multiple=True,
    required=True,
    metavar="QUEUE=RIGHTS",
    help="A queue or a pattern, and what may be done there: send, listen, manage. May be repeated.",
)
@click.option("--days", type=Number(above=True), default=DAYS, show_default=True, help="Days until it ends.")
@click.option(
    "--page",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Make a token for web pages of this origin, such as https://shop.example: it can only publish. "
    "May be repeated.",
)
@click.option("--per-minute", type=click.IntRange(1, 1_000_000), help="With --page: messages a minute.  [default: 60]")
@click.option(
    "--max-message-bytes",
    type=click.IntRange(64, 2_147_483_647),
    help="With --page: size of one message.  [default: 16384]",
)
@click.option("--offline", is_flag=True, help="Write it into the state_dir of --config, without a running gateway.")
@CONFIG
@as_json
@connects
def create(
    client: Client,
    name: str,
    rights: tuple[str, ...],
    days: float,
    origins: tuple[str, ...],
    per_minute: int | None,
    max_message_bytes: int | None,
    offline: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Make a token for the holder NAME, and print its secret, which is shown once.

    With --offline, run it as the user of the gateway. A gateway that runs accepts the token within 5 seconds.
    """
    order: dict[str, Any] = {"name": name, "rights": grants(rights), "ttl_seconds": days * _DAY_SECONDS}
    given = {"per_minute": per_minute, "max_message_bytes": max_message_bytes}
    bounds = {name: value for name, value in given.items() if value is not None}
    if origins:
        order["page"] = {"origins": list(origins), **bounds}
    elif bounds:
        raise click.UsageError("--per-minute and --max-message-bytes are bounds of a page: name it by --page.")
    _print(_made_offline(config, order) if offline else client.create_token(order), as_json)


@tokens.command("list", epilog="\b\nExample:\n  babelgate tokens list")
@as_json
@connects
def list_tokens(client: Client, as_json: bool) -> None:
    """List the tokens that were made and are valid, without their secrets."""
    found = client.tokens()
    if as_json:
        for each in found:
            print_json(each)
        return
    rows = [[each["id"], each["name"], _words(each), utc_text(each["ends_at"]), each["created_by"]] for each in found]
    table(("ID", "NAME", "RIGHTS", "ENDS (UTC)", "MADE BY"), rows)


@tokens.command(epilog="\b\nExample:\n  babelgate tokens rotate 5f0c7a1be24d9863 --overlap-seconds 600")
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap-seconds",
    type=Number(),
    default=3_600.0,
    show_default=True,
    help="How long the old secret stays valid; 0: no longer.",
)
@click.option("--days", type=Number(above=True), help="Days until it ends.  [default: its end stays]")
@as_json
@connects
def rotate(client: Client, token_id: str, overlap_seconds: float, days: float | None, as_json: bool) -> None:
    """Give the token ID a new secret, and print it."""
    order = {"overlap_seconds": overlap_seconds}
    _print(
        client.rotate_token(token_id, order if days is None else order | {"ttl_seconds": days * _DAY_SECONDS}), as_json
    )


@tokens.command(epilog="\b\nExample:\n  babelgate tokens revoke 5f0c7a1be24d9863")
@click.argument("token_id", metavar="ID")
@as_json
@connects
def revoke(client: Client, token_id: str, as_json: bool) -> None:
    """Make the token ID invalid on all replicas."""
    answer = client.revoke_token(token_id)
    print_json(answer) if as_json else say(f"The token {answer['name']} is revoked. {answer['detail']}")


def _print(answer: Mapping[str, Any], as_json: bool) -> None:
    """Print the secret alone to standard output, so that it can go to a file."""
    if as_json:
        print_json(answer)
        return
    token = answer["token"]
    say(answer["secret"])
    complain(
        f"The token {token['name']} has the id {token['id']} and ends at {utc_text(token['ends_at'])} UTC. "
        f"Its secret is not shown again. {answer['detail']}"
    )


def _words(token: Mapping[str, Any]) -> str:
    rights = " ".join(f"{queue}={','.join(granted)}" for queue, granted in token["rights"].items())
    # A gateway of an older version knows no pages.
    page = token.get("page")
    return rights if page is None else f"{rights} (pages of {' '.join(page['origins'])})"


def _page(rights: Mapping[str, tuple[Right, ...]], asked: Mapping[str, Any] | None) -> PageBounds | None:
    """The bounds that the options ask for. Raises ConfigError naming ``page``, and InvalidParameter."""
    from pydantic import ValidationError

    from babelgate.config.pages import PageSettings
    from babelgate.errors import ConfigError
    from babelgate.tokens.making import page_bounds

    if asked is None:
        return None
    try:
        page = PageSettings.model_validate(asked)
    except ValidationError as error:
        raise ConfigError(key="--page", reason=error.errors()[0]["msg"]) from None
    return page_bounds(dict(rights), page.origins, page.per_minute, page.max_message_bytes)


def _made_offline(config: Path | None, order: Mapping[str, Any]) -> dict[str, Any]:
    """Make a token in the file of ``state_dir``; return what the API would. Prints why it cannot, and exits with 1."""
    from babelgate.config import settings
    from babelgate.config.sections import AuthSettings
    from babelgate.config.token_keys import KEY_FILE
    from babelgate.errors import BabelgateError, StateUnavailable
    from babelgate.gateway.authorization import Right
    from babelgate.tokens.errors import TokenNameTaken, TokensDisabled
    from babelgate.tokens.file import TokenFile
    from babelgate.tokens.making import end_of, new_token, with_new

    def made(loaded: Settings) -> dict[str, Any]:
        section = loaded.auth
        if not isinstance(section, AuthSettings) or not section.made_tokens.enabled:
            raise TokensDisabled(reason="auth has no credentials, or auth.made_tokens.enabled is false")
        if order["name"] in loaded.caller_names:
            raise TokenNameTaken(name=order["name"])
        directory = loaded.state_dir.absolute()
        if directory.exists() and directory.stat().st_uid != os.geteuid():
            raise StateUnavailable(reason=f"{directory} belongs to another user; run this command as that user")
        now = now_ms()
        end = end_of(now, section.made_tokens.max_ttl_seconds, order["ttl_seconds"], None)
        assert end is not None
        rights = {queue: tuple(map(Right, granted)) for queue, granted in order["rights"].items()}
        page = _page(rights, order.get("page"))
        token, secret = new_token(order["name"], rights, "(command line)", now, end, page=page)
        TokenFile(directory).change(partial(with_new, token=token, now=now))
        shown = {"id": token.id, "name": token.name, "rights": order["rights"], "created_at": now}
        more = {"created_by": token.created_by, "ends_at": end, "old_ends_at": None}
        more["page"] = None if page is None else {name: getattr(page, name) for name in _BOUNDS}
        detail = f"It is kept in {directory}."
        if not loaded.token_keys and not (directory / KEY_FILE).exists():
            detail += (
                f" That has no {KEY_FILE}: either no gateway has run with it yet, or the path is another one there."
            )
        return {"secret": secret, "token": shown | more, "kept": True, "told": 0, "silent": [], "detail": detail}

    with configuration_errors(config):
        loaded = settings.load(config, os.environ)
    try:
        return made(loaded)
    except BabelgateError as error:
        complain(f"{error.problem_code}: {error.detail}")
        sys.exit(REFUSED)
