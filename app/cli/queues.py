"""The commands ``queues``, ``brokers``, ``purge`` and ``redrive``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from app.cli.connection import as_json, connects, print_json
from app.cli.output import REFUSED, complain, table

if TYPE_CHECKING:
    from app.cli.client import Client


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
        rows = [[queue["queue"], queue["broker"], *map(queue["stats"].get, counts)] for queue in found]
        table(("QUEUE", "BROKER", "READY", "IN FLIGHT", "DELAYED", "DEAD", "OLDEST (s)"), rows)


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


@click.command(epilog="\b\nExamples:\n  babelgate purge emails\n  babelgate purge emails --dead-letters --yes")
@click.argument("queue")
@click.option("--dead-letters", is_flag=True, help="Remove the dead letters of QUEUE instead of its messages.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@connects
def purge(client: Client, queue: str, dead_letters: bool, yes: bool, as_json: bool) -> None:
    """Remove all ready and delayed messages of QUEUE; leased ones stay. They cannot be brought back."""
    kind = "dead letters" if dead_letters else "messages"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("purge asks on a terminal only: use --yes.")
        click.confirm(f"Remove all {kind} of {queue}?", abort=True)
    answer = client.purge(queue, dead_letters)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['removed']} {kind} removed")


@click.command(epilog="\b\nExample:\n  babelgate redrive emails --reason failed --dry-run")
@click.argument("queue")
@click.option("--limit", type=click.IntRange(min=1), help="The maximum number of dead letters.")
@click.option("--job", help="Only dead letters with this job.")
@click.option(
    "--reason", type=click.Choice(["failed", "poison", "unknown_urn"]), help="Only dead letters with this reason."
)
@click.option("--before", type=int, help="Only dead letters from before this time, Unix milliseconds.")
@click.option("--after", type=int, help="Only dead letters from this time or later, Unix milliseconds.")
@click.option("--trace-id", help="Only dead letters with this trace id.")
@click.option("--to-queue", help="The target queue.  [default: QUEUE]")
@click.option("--dry-run", is_flag=True, help="Only count the dead letters.")
@as_json
@connects
def redrive(
    client: Client,
    queue: str,
    limit: int | None,
    to_queue: str | None,
    dry_run: bool,
    as_json: bool,
    **conditions: Any,
) -> None:
    """Send dead letters of QUEUE back. An interrupted redrive loses nothing and can be repeated."""
    order: dict[str, Any] = {"dry_run": dry_run}
    order |= {name: value for name, value in (("limit", limit), ("to_queue", to_queue)) if value is not None}
    order["filter"] = {name: value for name, value in conditions.items() if value is not None}
    result = client.redrive(queue, order)
    if as_json:
        print_json(result)
    else:
        verb = "match" if dry_run else "were sent back"
        count = result["matched"] if dry_run else result["redriven"]
        click.echo(f"{count} dead letters {verb}, {result['failed']} failed")
    if result["failed"]:
        sys.exit(REFUSED)
