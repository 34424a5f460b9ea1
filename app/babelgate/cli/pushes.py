"""The commands ``push show``, ``set``, ``remove``, ``pause``, ``resume`` and ``test``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import click

from babelgate.cli.connection import as_json, connects
from babelgate.cli.output import fields, print_json, say, table
from babelgate.clock import utc_text

if TYPE_CHECKING:
    from babelgate.cli.client import Client


@click.group()
def push() -> None:
    """Post the messages of a queue to a webhook."""


@push.command(epilog="\b\nExample:\n  babelgate push show orders")
@click.argument("queue")
@as_json
@connects
def show(client: Client, queue: str, as_json: bool) -> None:
    """Show where the messages of QUEUE are pushed to, and the state of the push in the process that answers."""
    answer = client.push("GET", queue)
    print_json(answer) if as_json else _show(answer)


@push.command("set", epilog="\b\nExample:\n  babelgate push set orders < push.json")
@click.argument("queue")
@click.argument("file", type=click.File("rb"), default="-")
@as_json
@connects
def set_push(client: Client, queue: str, file: IO[bytes], as_json: bool) -> None:
    """Push the messages of QUEUE as FILE says (default: stdin): a JSON object with url, secrets and more."""
    answer = client.push("PUT", queue, content=file.read())
    print_json(answer) if as_json else say(f"{queue} is pushed to {answer['target']['url']}{_paused(answer)}.")


@push.command(epilog="\b\nExample:\n  babelgate push remove orders")
@click.argument("queue")
@as_json
@connects
def remove(client: Client, queue: str, as_json: bool) -> None:
    """Push the messages of QUEUE no more."""
    answer = client.push("DELETE", queue)
    print_json(answer) if as_json else say(f"{queue} is not pushed any more.")


@push.command(epilog="\b\nExample:\n  babelgate push pause orders")
@click.argument("queue")
@as_json
@connects
def pause(client: Client, queue: str, as_json: bool) -> None:
    """Push nothing of QUEUE until it is resumed. Other consumers still get the messages."""
    answer = client.push("POST", queue, ":pause")
    print_json(answer) if as_json else say(f"The push of {queue} is paused.")


@push.command(epilog="\b\nExample:\n  babelgate push resume orders")
@click.argument("queue")
@as_json
@connects
def resume(client: Client, queue: str, as_json: bool) -> None:
    """Push the messages of QUEUE again."""
    answer = client.push("POST", queue, ":resume")
    print_json(answer) if as_json else say(f"The push of {queue} is not paused.")


@push.command(epilog="\b\nExample:\n  babelgate push test orders")
@click.argument("queue")
@as_json
@connects
def test(client: Client, queue: str, as_json: bool) -> None:
    """Post a message that is on no queue to the target of QUEUE. Exits with 1 unless the answer is a success."""
    answer = client.push("POST", queue, ":test")
    if as_json:
        print_json(answer)
    else:
        said = "no answer" if answer["status"] is None else f"HTTP {answer['status']}"
        say(f"{said} in {answer['seconds']:.3f} s{': ' if answer['detail'] else ''}{answer['detail']}")
    if answer["status"] is None or not 200 <= answer["status"] < 300:
        sys.exit(1)


def _show(push: Mapping[str, Any]) -> None:
    state = push["state"]
    shown = {
        "queue": push["queue"],
        "state": "paused" if push["paused"] else "not running" if state is None else state["circuit"],
        "from": push["source"],
        "target": {name: value for name, value in push["target"].items() if value not in (None, [])},
    }
    if state is None:
        fields(shown)
        return
    fields(shown | {"in flight": state["in_flight"], "outcomes": state["outcomes"]})
    if state["failures"]:
        say()
        rows = [[utc_text(each["at"]), each["webhook_id"], each["detail"]] for each in state["failures"]]
        table(("FAILED AT (UTC)", "WEBHOOK ID", "WHY"), rows)


def _paused(push: Mapping[str, Any]) -> str:
    return " once it is resumed" if push["paused"] else ""
