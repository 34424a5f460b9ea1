"""Prints found messages and traces on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from babelgate.clock import duration
from babelgate.pipeline.find.search import FoundMessage, MessageEvent, QueueState, SearchResult, SearchScope
from babelgate.pipeline.formatting import count, moment
from babelgate.terminal import printable, unguarded

_STYLES = {"acked": "green", "dead_lettered": "bold red", "rejected": "red", "poison": "bold red", "waiting": "yellow"}
_PIPED_COLUMNS = 200
"""Line width when the output is no terminal."""


def scope_text(searched: SearchScope) -> str:
    """The extent of the search, as the end of a sentence."""
    if searched.first_at is None:
        return "in 0 records: the journal has none of that time"
    return (
        f"in {count(searched.records)} records of {searched.processes} processes, "
        f"from {moment(searched.first_at)} to {moment(searched.last_at)} UTC"
    )


def warnings(answer: SearchResult) -> Iterator[str]:
    """Yields the warnings about an incomplete answer."""
    if answer.at_least:
        records = sum(each.records or 0 for each in answer.missing)
        begins = min((each.from_at for each in answer.missing if each.from_at is not None), default=None)
        ends = max((each.to_at for each in answer.missing if each.to_at is not None), default=None)
        yield (
            f"{count(records)} records are missing, between {moment(begins)} and {moment(ends)} UTC: "
            "at least this has happened"
        )
    if answer.truncated:
        yield "there are more events than are shown"


def render_message(answer: SearchResult, file: IO[str] | None = None) -> None:
    """Print a table for each message found."""
    console = _console(file)
    for found in answer.messages:
        console.print(Text(f"message {printable(found.message_id or '')}", style="bold"))
        console.print(Padding(_facts(found), (0, 2)))
        console.print(Padding(_events(found), (0, 2)))
        for state in found.standings:
            console.print(_queue_state(state))


def render_trace(answer: SearchResult, trace_id: str, file: IO[str] | None = None) -> None:
    """Print a tree: the trace, its messages, and the events of each."""
    messages = len(answer.messages)
    root = Tree(Text(f"trace {printable(trace_id)}: {messages} message{'s' * (messages != 1)}", style="bold"))
    for found in answer.messages:
        head = Text(printable(found.job or "unknown job"), style="bold")
        head.append(f"  {printable(found.message_id or 'without an id')}", style="dim")
        states = [_queue_state(each) for each in found.standings]
        root.add(Group(head, _events(found), *states))
    _console(file).print(root)


def _console(file: IO[str] | None) -> Console:
    output = unguarded(sys.stdout) if file is None else file
    found = Console(file=output, highlight=False)
    return found if found.is_terminal else Console(file=output, highlight=False, width=_PIPED_COLUMNS)


def _facts(found: FoundMessage) -> Table:
    grid = Table.grid(padding=(0, 2))
    facts = {
        "job": found.job,
        "trace": found.trace_id,
        "producer": found.lang,
        "created": None if found.created_at is None else f"{moment(found.created_at)} UTC",
        "size": None if found.bytes is None else f"{count(found.bytes)} bytes",
    }
    for name, value in facts.items():
        grid.add_row(Text(name, style="dim"), Text("–" if value is None else printable(value)))
    return grid


def _events(found: FoundMessage) -> Table:
    table = Table("time (UTC)", "after", "event", "queue", "attempts", "outcome", "node", box=None, header_style="dim")
    table.columns[1].justify = table.columns[4].justify = "right"
    for each in found.events:
        table.add_row(*(Text(printable(cell), style=_STYLES.get(each.event, "")) for cell in _cells(each)))
    return table


def _cells(each: MessageEvent) -> Iterator[str]:
    yield moment(each.at)
    yield "" if each.after_ms is None else duration(each.after_ms) if each.after_ms >= 0 else f"{each.after_ms} ms"
    yield each.event
    yield (each.queue or "–") + (f" → {each.to_queue}" if each.to_queue and each.to_queue != each.queue else "")
    yield "–" if each.attempts is None else str(each.attempts)
    yield "" if each.outcome in (None, each.event) else str(each.outcome)
    yield each.node


def _queue_state(state: QueueState) -> Text:
    queue = printable(state.queue or "an unknown queue")
    at = moment(state.since)
    words = {
        "acked": f"done: acked in {queue} at {at}",
        "waiting": f"waits in {queue} since {at}",
        "leased": f"with a consumer of {queue} since {at}",
        "dead_lettered": f"in the dead-letter queue of {queue} since {at}",
    }.get(state.state, f"{printable(state.state)} in {queue} at {at}")
    if state.lease_until is not None:
        words += f", leased until {moment(state.lease_until)} or longer"
    if state.reason is not None:
        words += f": {printable(state.reason)}"
    return Text(f"→ {words}", style=_STYLES.get(state.state, "bold"))
