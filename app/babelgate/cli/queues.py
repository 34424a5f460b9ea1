"""The commands ``queues``, ``brokers`` and ``purge``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from babelgate.cli.connection import as_json, connects
from babelgate.cli.output import complain, print_json, say, table

if TYPE_CHECKING:
    from babelgate.cli.client import Client


@click.command(epilog="\b\nExample:\n  babelgate queues")
@as_json
@connects
def queues(client: Client, as_json: bool) -> None:
    """List the queues with their numbers of messages."""
    found = client.queues()
    if as_json:
        for queue in found:
            print_json(queue)
    else:
        counts = ("depth", "in_flight", "delayed", "dead", "oldest_age_seconds")
        rows = [[queue["queue"], queue["broker"], queue["source"], *map(queue["stats"].get, counts)] for queue in found]
        table(("QUEUE", "BROKER", "SOURCE", "READY", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST (s)"), rows)


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
