"""The commands ``queues``, ``brokers``, ``pause``, ``resume`` and ``purge``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from babelgate.cli.connection import as_json, connects
from babelgate.cli.output import complain, print_json, say, table

if TYPE_CHECKING:
    from babelgate.cli.client import Client


@click.command(epilog="\b\nExamples:\n  babelgate queues\n  babelgate queues --paused")
@click.option("--paused", is_flag=True, help="Only paused queues.")
@as_json
@connects
def queues(client: Client, paused: bool, as_json: bool) -> None:
    """List the queues with their numbers of messages."""
    found = client.queues(paused)
    if as_json:
        for queue in found:
            print_json(queue)
    else:
        counts = ("depth", "in_flight", "delayed", "dead", "oldest_age_seconds")
        rows = [
            [queue["queue"], queue["broker"], queue["source"], *map(queue["stats"].get, counts), _state(queue)]
            for queue in found
        ]
        table(("QUEUE", "BROKER", "SOURCE", "READY", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST (s)", "STATE"), rows)


def _state(queue: Mapping[str, Any]) -> str | None:
    # A gateway of an older version has no such member.
    pause = queue.get("pause")
    if pause is None:
        return None
    return "paused, refuses publishes" if pause["publishes"] == "refuse" else "paused"


@click.command(epilog="\b\nExample:\n  babelgate pause emails --reason 'The mail server is down.'")
@click.argument("queue")
@click.option("--reason", help="Why: everybody who sees the queue sees it.")
@click.option("--refuse-publishes", is_flag=True, help="Refuse publishes, too.")
@as_json
@connects
def pause(client: Client, queue: str, reason: str | None, refuse_publishes: bool, as_json: bool) -> None:
    """Hand out no message of QUEUE until it is resumed, on all replicas. Consumers finish what they have."""
    asked = {"publishes": "refuse" if refuse_publishes else "accept", **({} if reason is None else {"reason": reason})}
    answer = client.pause(queue, asked)
    print_json(answer) if as_json else say(f"{queue} is paused. {answer['detail']}")


@click.command(epilog="\b\nExample:\n  babelgate resume emails")
@click.argument("queue")
@as_json
@connects
def resume(client: Client, queue: str, as_json: bool) -> None:
    """Hand out the messages of QUEUE again."""
    answer = client.resume(queue)
    print_json(answer) if as_json else say(f"{queue} is not paused. {answer['detail']}")


@click.command(epilog="\b\nExample:\n  babelgate brokers")
@as_json
@connects
def brokers(client: Client, as_json: bool) -> None:
    """List the brokers, and whether they are up."""
    found = client.brokers()
    if as_json:
        for broker in found:
            print_json(broker)
        return
    shown = (
        [each["broker"], each["kind"], "up" if each["up"] else "down", "yes" if each["required"] else "no", each["url"]]
        for each in found
    )
    table(("BROKER", "KIND", "STATE", "REQUIRED", "URL"), [*shown])
    for broker in found:
        for text in filter(None, (broker["detail"], *broker["warnings"])):
            complain(f"{broker['broker']}: {text}")


@click.command(
    epilog="\b\nExamples:\n  babelgate purge emails --dry-run\n  babelgate purge emails --dead-letters --yes"
)
@click.argument("queue")
@click.option("--dead-letters", is_flag=True, help="Remove the dead letters of QUEUE instead of its messages.")
@click.option("--dry-run", is_flag=True, help="Only count them, where the broker can.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@connects
def purge(client: Client, queue: str, dead_letters: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove all ready and delayed messages of QUEUE; leased ones stay. They cannot be brought back."""
    kind = "dead letters" if dead_letters else "messages"
    if not (yes or dry_run):
        if not sys.stdin.isatty():
            raise click.UsageError("purge asks on a terminal only: use --yes.")
        click.confirm(f"Remove all {kind} of {queue}?", abort=True)
    answer = client.purge(queue, dead_letters, dry_run)
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['matched']} {kind} would be removed" if dry_run else f"{answer['removed']} {kind} removed")
