"""The commands ``message``, ``trace`` and ``events``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from babelgate.cli.connection import as_json, connects
from babelgate.cli.output import complain, fields, print_json_text, say, say_wrapped, table
from babelgate.clock import duration, utc_text

if TYPE_CHECKING:
    from babelgate.cli.client import Client

_HEADS = ("TIME (UTC)", "AFTER", "EVENT", "QUEUE", "ATTEMPTS", "OUTCOME", "GATEWAY")


@click.command(epilog="\b\nExample:\n  babelgate message 8c1f2d6e-0a55-4d0a-9d0d-0a6c1f6f2b11")
@click.argument("message_id")
@as_json
@connects
def message(client: Client, message_id: str, as_json: bool) -> None:
    """Show where the message MESSAGE_ID is, and what happened to it.

    The gateways search their journals. Exits with 1 if none has an event of it.
    """
    answer = client.message(message_id)
    if as_json:
        print_json_text(answer)
        return
    found = _decoded(answer)
    fields({"message": found["message_id"], "job": found["job"], "trace": found["trace_id"]})
    _show(found)
    _warn(found)


@click.command(epilog="\b\nExample:\n  babelgate trace 7b3e0c55-2f0a-4b9e-8a39-0a4f9a3a7d10")
@click.argument("trace_id")
@as_json
@connects
def trace(client: Client, trace_id: str, as_json: bool) -> None:
    """Show where the messages of the trace TRACE_ID are, across all queues, and what happened to them.

    The gateways search their journals. Exits with 1 if none has an event of it.
    """
    answer = client.trace(trace_id)
    if as_json:
        print_json_text(answer)
        return
    found = _decoded(answer)
    fields({"trace": found["trace_id"], "messages": len(found["messages"])})
    for each in found["messages"]:
        say()
        fields({"message": each["message_id"], "job": each["job"]})
        _show(each)
    _warn(found)


@click.command(epilog="\b\nExample:\n  babelgate events --meta ext.shop.tenant=north --event accepted")
@click.option("--job", help="Only events of messages with this job.")
@click.option("--queue", help="Only events of this queue.")
@click.option("--event", help="Only events of this kind, such as accepted.")
@click.option("--meta", metavar="NAME=VALUE", help="Only events with this member of meta; journal.meta names them.")
@click.option("--since", type=int, help="Only events at this time or later, Unix milliseconds.")
@click.option("--until", type=int, help="Only events before this time, Unix milliseconds.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of events.")
@as_json
@connects
def events(client: Client, as_json: bool, **conditions: str | int | None) -> None:
    """List events by what their messages have in common, newest first.

    The gateways search their journals. A message that was published has one event "accepted".
    """
    answer = client.events(conditions)
    if as_json:
        print_json_text(answer)
        return
    found = _decoded(answer)
    rows = [
        (
            utc_text(each["at"], "milliseconds"),
            each["event"],
            each["queue"],
            each["job"],
            each["message_id"],
            each["node"],
        )
        for each in found["events"]
    ]
    table(("TIME (UTC)", "EVENT", "QUEUE", "JOB", "MESSAGE", "GATEWAY"), rows)
    _warn(found)


def _decoded(answer: bytes) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.json.decode(answer)
    return found


def _show(found: Mapping[str, Any]) -> None:
    """Print the status of a message, and its events."""
    say_wrapped(f"status: {found['status']}. {found['detail']}")
    say()
    events: Sequence[Mapping[str, Any]] = found["events"]
    after = ["", *(_after(before["at"], each["at"]) for before, each in pairwise(events))]
    table(_HEADS, [_row(each, waited) for each, waited in zip(events, after, strict=True)])


def _after(before: int, at: int) -> str:
    """The time between two events. The clocks of two gateways may make it negative."""
    return f"+{duration(at - before)}" if at >= before else f"{at - before} ms"


def _row(event: Mapping[str, Any], waited: str) -> tuple[object, ...]:
    queue, to_queue = event["queue"], event["to_queue"]
    outcome = event["outcome"]
    return (
        utc_text(event["at"], "milliseconds") or event["at"],
        waited,
        event["event"],
        queue if to_queue in (None, queue) else f"{queue} → {to_queue}",
        event["attempts"],
        None if outcome == event["event"] else outcome,
        event["node"],
    )


def _warn(found: Mapping[str, Any]) -> None:
    """Print what is missing, or may be."""
    searched = found["searched"]
    if found["next_cursor"] is not None:
        complain("warning: there are more events than are shown")
    for address in searched["silent"]:
        complain(f"warning: no answer from {address}: its events are missing")
