"""The tables of a report's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import quote

from babelgate.clock import duration
from babelgate.pipeline.formatting import count, share
from babelgate.pipeline.metrics.dates import DAY_MS, midnight
from babelgate.pipeline.report.figures import Figures, Group

MOST_ROWS = 50
_MOST_ERRORS = 20


class Hyperlink(NamedTuple):
    """A text, and where it leads; None: nowhere."""

    text: str
    address: str | None


class Table(NamedTuple):
    """A table of texts. ``numbers``: the index of the first numeric column; ``left_out``: rows not shown."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Sequence[Hyperlink]]]
    numbers: int = 1
    left_out: int = 0


def name_of(name: str | None) -> str:
    """The display text of a name."""
    return "unknown" if name is None else name or "(empty)"


def by_group(head: str, groups: Sequence[Group]) -> Table:
    """The figures of queues, languages or brokers."""
    heads = (
        *(head, "Accepted", "Delivered", "Acked", "Again", "Expired", "Dead", "Dead rate", "Redriven"),
        *("Wait p50", "Wait p95", "Done p95"),
    )
    rows = [
        (
            name_of(each.name),
            *map(count, (each.accepted, each.delivered, each.acked)),
            share(each.retry_rate),
            *map(count, (each.lease_expired, each.dead_lettered)),
            share(each.dead_letter_rate),
            count(each.redriven),
            *map(duration, (each.wait_p50_ms, each.wait_p95_ms, each.e2e_p95_ms)),
        )
        for each in groups
    ]
    return Table(heads, rows[:MOST_ROWS], 1, len(rows[MOST_ROWS:]))


def checked(figures: Figures) -> Table | None:
    """What ``validate`` checked."""
    if figures.checked is None:
        return None
    rows = [
        (name_of(each.lang), count(each.checked), count(each.quarantined), share(each.quarantined / each.checked))
        for each in figures.checked
    ]
    heads = "Producer", "Checked", "Quarantined", "Share"
    return Table(heads, rows[:MOST_ROWS], 1, len(rows[MOST_ROWS:]))


def schema_violations(figures: Figures) -> Table | None:
    """Where the schemas of jobs refuse bodies."""
    if figures.schema_violations is None:
        return None
    rows = [(name_of(each.job), each.pointer, each.code, count(each.bodies)) for each in figures.schema_violations]
    return Table(("Job", "Place", "Code", "Bodies"), rows[:MOST_ROWS], 3, len(rows[MOST_ROWS:]))


def comparison(figures: Figures) -> Table | None:
    """The last day beside the day before and the same weekday a week before; None if neither has events."""
    days = {each.name: each for each in figures.comparison}
    last = days.get(figures.last_date)
    others = [each for each in figures.comparison if each is not last]
    if last is None or not others:
        return None
    measures: list[tuple[str, Callable[[Group], Any], Callable[[Any], str], bool]] = [
        ("Accepted", lambda each: each.accepted, count, False),
        ("Delivered", lambda each: each.delivered, count, False),
        ("Done", lambda each: each.acked, count, False),
        ("Leases expired", lambda each: each.lease_expired, count, False),
        ("Dead-lettered", lambda each: each.dead_lettered, count, False),
        ("Dead rate", lambda each: each.dead_letter_rate, share, True),
        ("Redriven", lambda each: each.redriven, count, False),
        ("Wait, 95 % within", lambda each: each.wait_p95_ms, duration, False),
        ("Done, 95 % within", lambda each: each.e2e_p95_ms, duration, False),
    ]
    heads = ["Measure", _day(last.name)]
    for each in others:
        heads += [_day(each.name), "Change"]
    rows: list[list[str]] = []
    for title, of, shown, is_rate in measures:
        row = [title, shown(of(last))]
        for each in others:
            row += [shown(of(each)), _change(of(last), of(each), is_rate=is_rate)]
        rows.append(row)
    return Table(heads, rows)


def has_partial_day(figures: Figures) -> bool:
    """Whether the last minute of the last day has no events, as on a day that is not over."""
    return figures.as_of < midnight(date.fromisoformat(figures.last_date)) + DAY_MS - 1


def errors(figures: Figures, console: str | None) -> Table | None:
    """The most frequent errors. ``console``: the URL of the gateway's console, to which the ids lead."""
    if not figures.errors:
        return None
    rows = [
        (
            _error(each.event, each.reason),
            name_of(each.queue),
            name_of(each.job),
            [Hyperlink(example, _address(console, example)) for example in each.examples],
            count(each.messages),
        )
        for each in figures.errors[:_MOST_ERRORS]
    ]
    heads = "Error", "Queue", "Job", "Examples", "Messages"
    return Table(heads, rows, 4, len(figures.errors[_MOST_ERRORS:]))


def targets(figures: Figures) -> Table | None:
    """The targets, the missed ones first; None if none was set."""
    if figures.targets is None:
        return None
    order = sorted(figures.targets, key=lambda each: {False: 0, None: 1, True: 2}[each.met])
    rows = [
        (
            name_of(each.queue),
            target_name(each.target),
            duration(each.limit_ms),
            duration(each.actual_ms),
            {False: "missed", None: "not measured", True: "met"}[each.met],
        )
        for each in order
    ]
    return Table(("Queue", "Target", "At most", "Measured", "Result"), rows[:MOST_ROWS], 2, len(rows[MOST_ROWS:]))


def target_name(member: str) -> str:
    """``e2e_p99_ms`` in words: ``done p99``."""
    kind, of, _ = member.split("_")
    return f"{'done' if kind == 'e2e' else kind} {of}"


def _error(event: str, reason: str | None) -> str:
    name = {"nacked": "nacked", "lease_expired": "lease expired", "dead_lettered": "dead-lettered"}.get(event, event)
    return name if reason is None else f"{name}: {reason}"


def _address(console: str | None, message_id: str) -> str | None:
    return None if console is None else f"{console.rstrip('/')}/find?id={quote(message_id, safe='')}"


def _day(name: str | None) -> str:
    return f"{date.fromisoformat(name or ''):%a} {name}"


def _change(now: float | None, then: float | None, *, is_rate: bool) -> str:
    """``+12.0 %``; of a rate ``+1.5 points``; a dash if one is unknown, or there is nothing to compare with."""
    if now is None or then is None or (not then and not is_rate and now):
        return "–"
    change = (now - then) * 100 if is_rate else (now - then) * 100 / (then or 1)
    text = f"{change:+.1f}".replace("-", "\N{MINUS SIGN}")
    return f"{'0.0' if float(f'{change:.1f}') == 0 else text} {'points' if is_rate else '%'}"
