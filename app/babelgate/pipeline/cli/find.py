"""The commands ``message`` and ``trace``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from babelgate.pipeline.cli.options import DATE, chooses_engine, in_lake
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.spark.launch import Launch

if TYPE_CHECKING:
    from babelgate.pipeline.find.records import Kind
    from babelgate.pipeline.find.search import SearchResult


def _search_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--to", "last", type=DATE, metavar="DATE", help="The last day to search, UTC, included."),
        click.option("--from", "first", type=DATE, metavar="DATE", help="The first day to search, UTC."),
        click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True),
        in_lake,
    ):
        command = option(command)
    return command


@click.command(epilog="\b\nExample:\n  babelgate pipeline message 8c1f2d6e-0a55-4d0a-9d0d-0a6c1f6f2b11 --lake lake")
@click.argument("message_id")
@_search_options
@chooses_engine
def message(
    launch: Launch, message_id: str, lake: str, form: str, first: datetime | None, last: datetime | None
) -> None:
    """Show where the message MESSAGE_ID is, and all its events in the journal of the lake.

    Exits with 1 if the journal has no event of it.
    """
    from babelgate.pipeline.find.render import render_message

    found = _search(launch, "message", message_id, lake, first, last)
    _print_result(launch, found, form, f"message {message_id}", lambda: render_message(found))


@click.command(epilog="\b\nExample:\n  babelgate pipeline trace 7b3e0c55-2f0a-4b9e-8a39-0a4f9a3a7d10 --lake lake")
@click.argument("trace_id")
@_search_options
@chooses_engine
def trace(launch: Launch, trace_id: str, lake: str, form: str, first: datetime | None, last: datetime | None) -> None:
    """Show where the messages of the trace TRACE_ID are, across all queues, from the journal of the lake.

    Exits with 1 if the journal has no event of it.
    """
    from babelgate.pipeline.find.render import render_trace

    found = _search(launch, "trace", trace_id, lake, first, last)
    _print_result(launch, found, form, f"trace {trace_id}", lambda: render_trace(found, trace_id))


def _search(
    launch: Launch, kind: Kind, sought: str, lake: str, first: datetime | None, last: datetime | None
) -> SearchResult:
    from babelgate.pipeline.find.records import records
    from babelgate.pipeline.find.search import dates_between, search_result
    from babelgate.pipeline.journal.reader import require_journal

    if first is not None and last is not None and first > last:
        raise click.BadParameter("it is before --from", param_hint="--to")
    require_journal(lake)
    with records(launch, kind, lake) as found:
        dates = dates_between(found.journal, first and first.date(), last and last.date())
        return search_result(found.journal, found.find(kind, sought, dates), dates)


def _print_result(launch: Launch, found: SearchResult, form: str, sought: str, show: Callable[[], None]) -> None:
    import msgspec

    from babelgate.pipeline.find.render import scope_text, warnings
    from babelgate.pipeline.spark.console import say
    from babelgate.terminal import printable

    launch.summarize(msgspec.to_builtins(found))
    if form == "json":
        text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
        click.echo("\n".join(map(printable, text.split("\n"))))
    elif found.messages:
        show()
    for warning in warnings(found):
        say(f"warning: {warning}")
    if not found.messages:
        raise JobFailed(f"no event of {printable(sought)} {scope_text(found.searched)}")
